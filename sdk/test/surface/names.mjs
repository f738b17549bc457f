// The modules and their exported names are those of the design. Names that only the compiler of the design's file exports
// (an ambient module exports all of its declarations) may be missing.
import ts from "typescript";

const [designedFile, ourFile] = process.argv.slice(2);
const surface = file => {
  const modules = new Map();
  for (const statement of ts.createSourceFile(file, ts.sys.readFile(file), ts.ScriptTarget.ES2024, true).statements) {
    if (!ts.isModuleDeclaration(statement)) continue;
    const names = new Set();
    for (const inner of statement.body.statements) {
      if (ts.isExportDeclaration(inner)) for (const e of inner.exportClause?.elements ?? []) names.add(e.name.text);
      else if (!ts.getModifiers(inner)?.some(m => m.kind === ts.SyntaxKind.ExportKeyword)) continue;
      else if (ts.isVariableStatement(inner)) for (const d of inner.declarationList.declarations) names.add(d.name.text);
      else if (inner.name) names.add(inner.name.text);
    }
    modules.set(statement.name.text.replace(/^(designed|@laufwerk)\//, ""), names);
  }
  return modules;
};

const designed = surface(designedFile), ours = surface(ourFile);
ours.delete("sandbox"); // it comes with its provider, and says so until then
const problems = [];
for (const [module, names] of designed) {
  for (const name of names) if (!ours.get(module)?.has(name)) problems.push(`${module} does not export ${name}, which the design names`);
}
for (const [module, names] of ours) {
  for (const name of names) if (!designed.get(module)?.has(name)) problems.push(`${module} exports ${name}, which the design does not name`);
}

const printed = file => {
  const source = ts.createSourceFile(file, ts.sys.readFile(file), ts.ScriptTarget.ES2024, true);
  let all = "";
  const visit = node => {
    if (ts.isFunctionDeclaration(node) && node.name?.text === "all") all = ts.createPrinter({ removeComments: true }).printNode(ts.EmitHint.Unspecified, node, source);
    ts.forEachChild(node, visit);
  };
  visit(source);
  return all.replace(/\s+/g, " ").replaceAll("; }", " }");
};
// One difference is meant, and it only infers better: a generator has Symbol.iterator too, so the design's order takes it for
// an operation whose result is a union. test/consumer/workflow.ts shows what is inferred.
const [operation, generator] = ["T[K] extends Operation<infer R> ? R :", "T[K] extends Generator<any, infer R, any> ? R :"];
const wanted = printed(designedFile).replace(`${operation} ${generator}`, `${generator} ${operation}`);
if (wanted === "" || wanted !== printed(ourFile)) {
  problems.push(`all is declared otherwise than designed:\n  ${printed(ourFile)}\n  ${wanted}`);
}

if (problems.length > 0) {
  console.error(problems.join("\n"));
  process.exit(1);
}
