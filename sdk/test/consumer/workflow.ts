import {
  all, type Change, Clock, CommandTimeout, defineWorkflow, Host, Human, OutputTooLarge, Session, WorkspaceBusy, Workspace, WriteBackConflict, WriteBackRefused,
} from "@laufwerk/sdk";
import { createCodex } from "@laufwerk/sdk/harness/codex";
import { createClaudeCode } from "@laufwerk/sdk/harness/claude-code";
import { createCommand } from "@laufwerk/sdk/harness/command";
import { docker, local as execution } from "./targets";

type Is<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
function is<_ extends true>(): void {}

const agent = execution.agent({ harness: createCodex({ model: "m", config: { "a.b": 1 } }), permissionMode: "allow-all" });
const reviewer = docker.agent({
  id: "reviewer", harness: createClaudeCode({ maxTurns: 20 }), instructions: "Only read.", permissionMode: "allow-reads",
  skills: [{ name: "s", description: "d", content: "c", files: { "x.md": "y" } }], activeTools: ["read"],
});
const scripted = execution.agent({ harness: createCommand({ command: ["node", "agent.mjs"], protocol: "json", env: { A: "1" } }) });

interface Input { readonly issue: string }
interface Verdict { readonly fine: boolean; readonly reasons: readonly string[] }
const verdict = { type: "object", required: ["fine"], properties: { fine: { type: "boolean" } } } as { readonly [keyword: string]: unknown } & { readonly __type?: Verdict };

export const workflow = defineWorkflow<Input, { fixed: boolean }>({
  name: "issue-to-fix",
  input: { type: "object", required: ["issue"], properties: { issue: { type: "string" } } },
  *run({ issue }) {
    const workspace = yield* Workspace.open({ source: ".", execution, include: ["dist/**"] });
    is<Is<typeof workspace.mode, "copy" | "direct">>();
    const writer = yield* Session.open({ key: "writer", agent, workspace, access: "read-write" });
    const reply = yield* writer.ask({ key: "edit", prompt: `Solve ${issue}`, timeout: 60_000 });
    is<Is<typeof reply, string>>();
    let checked = yield* writer.exec({ key: "check", command: "make test", stdin: new Uint8Array([1]), env: { CI: "1", T: { fromHost: "T" } } });
    is<Is<typeof checked.exitCode, number>>();
    if (checked.exitCode !== 0) checked = yield* writer.exec({ key: "check-again", command: "make test" });
    const log = yield* writer.readFile("test.log");
    is<Is<typeof log, Uint8Array<ArrayBufferLike> | null>>();
    yield* writer.writeFile("note.txt", "seen");
    yield* writer.close();

    const judged = yield* Session.run({ key: "judge", agent: reviewer, workspace, prompt: "Judge.", output: verdict, access: "read-only" });
    is<Is<typeof judged, Verdict>>();
    const words = yield* Session.run({ key: "sum-up", agent: scripted, workspace, prompt: "Sum up." });
    is<Is<typeof words, string>>();

    const [a, b, c] = yield* all([Clock.now(), longer(3), Host.exec({ key: "lint", command: ["lint", "."] })], { concurrency: 2 });
    is<Is<typeof a, Date>>();
    is<Is<typeof b, number>>();
    is<Is<typeof c.stdout, string>>();

    const { changes } = yield* Workspace.diff({ workspace });
    is<Is<typeof changes, readonly Change[]>>();
    const choice = yield* Human.select({ key: "how", title: "How?", options: [{ value: "all", label: "All" }, { value: "none", label: "None" }], workspace });
    is<Is<typeof choice, "all" | "none">>();
    if (choice === "none") return { fixed: false };
    yield* Human.notify({ key: "tell", title: "Done" });
    const why = yield* Human.text({ key: "why", title: "Why?", placeholder: "because" });
    is<Is<typeof why, string>>();
    if (!(yield* Human.confirm({ key: "apply", title: "Apply?", workspace }))) return { fixed: false };
    try {
      const { approved } = yield* Workspace.writeBack({ workspace, allow: ["laufwerk/workflows/**"] });
      is<Is<typeof approved, boolean>>();
    } catch (error) {
      if (error instanceof WriteBackConflict || error instanceof WriteBackRefused) {
        is<Is<typeof error.pathBase64, readonly string[] | undefined>>();
        throw new Error(error.paths.map((path, i) => error.pathBase64?.[i] || path).join());
      }
      if (error instanceof WorkspaceBusy) throw new Error(error.holder);
      if (error instanceof OutputTooLarge) throw new Error(String(error.exitCode));
      if (error instanceof CommandTimeout) throw new Error(error.code);
      throw error;
    }
    return { fixed: checked.exitCode === 0 };
  },
});

function* longer(n: number) {
  yield* Clock.sleep({ key: "nap", duration: 1000 });
  return n;
}
