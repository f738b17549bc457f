// The entry of every bundle: it attaches the user's module to the host.
import { toFailure, shown, usage } from "@laufwerk/internal/errors";
import { host, type Program } from "@laufwerk/internal/host";
import { json } from "@laufwerk/internal/check";
import { Driver } from "@laufwerk/internal/operation";

interface Start { mode: "evaluate" | "workflow"; export?: string; call?: boolean; args?: unknown; input?: unknown }

host.describe(error => JSON.stringify(toFailure(error)));

export function attach(module: { readonly [name: string]: unknown }): void {
  let driver: Driver | undefined;
  const program: Program = {
    start(text) {
      const start: Start = JSON.parse(text);
      if (start.mode === "workflow") {
        driver = new Driver();
        const workflow: any = exported(module, start.export || "workflow");
        if (typeof workflow?.run !== "function") throw usage(`the export \`${start.export || "workflow"}\` is not a workflow: make it with defineWorkflow`);
        const generator = workflow.run(start.input);
        if (typeof generator?.next !== "function" || typeof generator?.[Symbol.asyncIterator] === "function") {
          throw usage(`the workflow's run must be a generator function (\`*run(input) { … }\`); calling it gave ${shown(generator)}`);
        }
        driver.run(generator, finish);
        return;
      }
      const value = exported(module, start.export || "default");
      // A promise's end reaches the engine through the job queue, also when it takes many turns.
      Promise.resolve(start.call ? invoke(value, start) : value).then(result => finish(false, data(result)), error => finish(true, error));
    },
    deliver(text) {
      const answer = JSON.parse(text);
      driver!.deliver(answer.id, answer.type === "error" ? answer.error : undefined, answer.value);
    },
  };
  host.attach(program);
}

function finish(failed: boolean, value: unknown): void {
  if (!failed) {
    try {
      host.post(JSON.stringify({ type: "done", value: value === undefined ? null : json(value, "the result") }));
      return;
    } catch (error) {
      value = error;
    }
  }
  host.post(JSON.stringify({ type: "error", error: toFailure(value) }));
}

function invoke(value: unknown, start: Start): unknown {
  if (typeof value !== "function") throw usage(`the export \`${start.export || "default"}\` is not a function, but ${shown(value)}`);
  return value(...(Array.isArray(start.args) ? start.args : start.args == null ? [] : [start.args]));
}

function exported(module: { readonly [name: string]: unknown }, name: string): unknown {
  if (!(name in module)) {
    const names = Object.keys(module);
    throw usage(`the module does not export \`${name}\`${name === "default" ? " (write `export default …`)" : ""}; it exports ${names.length === 0 ? "nothing" : names.map(n => `\`${n}\``).join(", ")}`);
  }
  return module[name];
}

/** The data in a module's value: its functions are left out. */
function data(value: unknown): unknown {
  const seen: unknown[] = [];
  const strip = (v: unknown): unknown => {
    if (typeof v === "function" || typeof v === "symbol") return undefined;
    if (typeof v !== "object" || v === null || typeof (v as any).toJSON === "function") return v;
    if (seen.includes(v)) throw usage("the value contains itself, so it has no JSON form");
    seen.push(v);
    const opaque = ArrayBuffer.isView(v) || v instanceof Map || v instanceof Set || v instanceof Promise;
    const out = opaque ? v : Array.isArray(v) ? v.map(strip)
      : Object.fromEntries(Object.entries(v).map(([k, e]) => [k, strip(e)] as const).filter(([, e]) => e !== undefined));
    seen.pop();
    return out;
  };
  return strip(value);
}
