// Makes types/laufwerk.d.ts (or the file named) out of what tsc emitted: the globals of the isolate, then the public
// modules. Internal modules are left out; what public ones re-export from them is put in its place.
import { readFileSync, writeFileSync } from "node:fs";

const [emitted, globals, out] = process.argv.slice(2);
const modules = new Map();
for (const [, name, body] of readFileSync(emitted, "utf8").matchAll(/^declare module "(.+)" \{\n([^]*?)^\}\n/gm)) modules.set(name, body);

const internal = name => name.startsWith("@laufwerk/internal/");
let text = `// Made from sdk/ by sdk/update.sh: do not edit.\n\n${readFileSync(globals, "utf8").trimEnd()}\n`;
for (const name of [...modules.keys()].filter(n => !internal(n)).sort()) {
  const body = modules.get(name).replace(/^ {4}export \{ ([^}]*?),? \} from "(@laufwerk\/internal\/.+)";\n/gm, (_, names, from) => names.split(", ").map(n => {
    const declared = modules.get(from).match(new RegExp(`^    export class ${n}\\b[^]*?^    \\}\\n`, "m"));
    if (declared === null) throw new Error(`${from} does not declare ${n}`);
    return declared[0];
  }).join(""));
  if (body.includes("@laufwerk/internal/")) throw new Error(`${name} shows an internal module`);
  text += `\ndeclare module "${name}" {\n${body}}\n`;
}
writeFileSync(out, text);
