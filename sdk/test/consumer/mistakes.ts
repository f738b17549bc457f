// What must not compile. A line that compiles after all is an error of its own.
import { all, defineConfig, defineWorkflow, type ExecutionTarget, Host, Human, type Operation, Session, Workspace } from "@laufwerk/sdk";
import { createDockerExecution, createLocalExecution, loadPreparedCodexImage, prepareCodexImage } from "@laufwerk/execution";
import { createOpenShellExecution } from "@laufwerk/execution/openshell";
import { createCommand } from "@laufwerk/sdk/harness/command";
// @ts-expect-error: internal modules are not for users
import { host } from "@laufwerk/internal/host";
// @ts-expect-error: it comes from its own module, not from the package's root
import { prepareDockerCodex } from "@laufwerk/execution";

const local = createLocalExecution();
const harness = createCommand({ command: ["agent"] });
const agent = local.agent({ harness });

const annotated: ExecutionTarget = createLocalExecution();
// @ts-expect-error: annotating a value as ExecutionTarget hides .agent()
annotated.agent({ harness });

const annotatedDocker: ExecutionTarget = createDockerExecution();
// @ts-expect-error: of a Docker target too
annotatedDocker.agent({ harness });

// @ts-expect-error: an unknown option
createLocalExecution({ resources: { cpus: 1 } });
// @ts-expect-error: an unknown login
createLocalExecution({ credentials: "openai-api-key" });
// @ts-expect-error: a network that there is not
createDockerExecution({ network: "host" });
// @ts-expect-error: only "prepared" is there
createDockerExecution({ codexBootstrap: "own" });
// @ts-expect-error: bytes, not a text
createDockerExecution({ resources: { memoryBytes: "4g" } });
// @ts-expect-error: an unknown resource
createDockerExecution({ resources: { memory: 1 } });
// @ts-expect-error: the id, not the promise of one
createDockerExecution({ image: loadPreparedCodexImage("m.json") });
// @ts-expect-error: where the manifest goes has to be said
prepareCodexImage({ image: "node:22" });
const shell = { id: "s", gateway: "g", credentials: { kind: "codex-subscription" as const, provider: "p" }, policy: {} };
// @ts-expect-error: the login is one that the gateway holds, not one of this machine
createOpenShellExecution({ ...shell, credentials: "codex-subscription" });
// @ts-expect-error: another kind of credentials
createOpenShellExecution({ ...shell, credentials: { kind: "claude-subscription", provider: "p" } });
// @ts-expect-error: a gateway has to be named
createOpenShellExecution({ id: "s", credentials: shell.credentials, policy: {} });
// @ts-expect-error: a policy has to be given
createOpenShellExecution({ id: "s", gateway: "g", credentials: shell.credentials });
// @ts-expect-error: OpenShell does not limit the processes of one sandbox
createOpenShellExecution({ ...shell, resources: { pids: 512 } });
// @ts-expect-error: nor its swap
createOpenShellExecution({ ...shell, resources: { swapBytes: 0 } });
// @ts-expect-error: variables are not an option of it
createOpenShellExecution({ ...shell, env: { A: "1" } });
// @ts-expect-error: a policy without programs permits nothing
createOpenShellExecution({ ...shell, policy: { p: { endpoints: [{ host: "example.com", port: 443 }] } } });
// @ts-expect-error: a port is a number
createOpenShellExecution({ ...shell, policy: { p: { endpoints: [{ host: "example.com", port: "443" }], binaries: [{ path: "/x" }] } } });
// @ts-expect-error: a program is not its path alone
createOpenShellExecution({ ...shell, policy: { p: { endpoints: [{ host: "example.com", port: 443 }], binaries: ["/x"] } } });
// @ts-expect-error: an unknown permission mode
local.agent({ harness, permissionMode: "allow-everything" });
// @ts-expect-error: host tools are not supported yet
local.agent({ harness, tools: {} });
// @ts-expect-error: a command is a list
createCommand({ command: "agent" });
// @ts-expect-error: a target, not its id
defineConfig({ projectId: "p", executions: ["local"] });

export const workflow = defineWorkflow<{ n: number }, string>({
  name: "mistakes",
  *run({ n }) {
    const workspace = yield* Workspace.open({ source: ".", execution: annotated });
    // @ts-expect-error: an access that there is not
    yield* Session.open({ key: "a", agent, workspace, access: "write-only" });
    // @ts-expect-error: keys are required
    const session = yield* Session.open({ agent, workspace });
    // @ts-expect-error: a Date is not a duration
    yield* session.ask({ key: "k", prompt: "p", timeout: new Date() });
    // @ts-expect-error: env values are strings or { fromHost }
    yield* session.exec({ key: "k", command: "c", env: { A: 1 } });
    // @ts-expect-error: a shell command is not a list
    yield* session.exec({ key: "k", command: ["c"] });
    // @ts-expect-error: a program on the host is
    yield* Host.exec({ key: "k", command: "c" });
    // @ts-expect-error: choices need labels
    yield* Human.select({ key: "k", title: "t", options: [{ value: "a" }] });
    // @ts-expect-error: promises are not operations
    yield* all([Promise.resolve(1)]);
    // @ts-expect-error: without yield* it is the operation, not its result
    const change: string = Workspace.diff({ workspace }).digest;
    return String(n);
  },
});

// @ts-expect-error: the result is not a string
export const result = defineWorkflow<{ n: number }, string>({ name: "result", *run({ n }) { return n; } });

// @ts-expect-error: an async function is not a generator
export const promised = defineWorkflow({ name: "promised", async run() {} });

// @ts-expect-error: the input has no such field
export const input = defineWorkflow<{ n: number }>({ name: "input", *run({ m }) {} });

export const operation: Operation<string> = Session.run({ key: "k", agent, prompt: "p", workspace: { id: "w", mode: "copy" } });
