// The example of the documents of behaviour on OpenShell targets, as it stands there, and everything that the options take.
import { createOpenShellExecution, type NetworkPolicies } from "@laufwerk/execution/openshell";
import { createCodex } from "@laufwerk/sdk/harness/codex";
import { defineConfig, defineWorkflow, type ExecutionTarget, Session, Workspace } from "@laufwerk/sdk";
import { policy } from "./policy";

export const execution = createOpenShellExecution({
  id: "secure-coding",
  gateway: "laufwerk-local",
  credentials: { kind: "codex-subscription", provider: "laufwerk-codex" },
  policy,
  resources: { cpus: 2, memoryBytes: 4 * 1024 ** 3 },
});

export default defineConfig({ projectId: "my-project", executions: [execution] });

export const target: ExecutionTarget = execution;

export const workflow = defineWorkflow({
  name: "example",
  *run() {
    const agent = execution.agent({ harness: createCodex(), permissionMode: "allow-all" });
    const workspace = yield* Workspace.open({ source: ".", execution });
    const writer = yield* Session.open({ key: "writer", agent, workspace, access: "read-write" });
    yield* writer.ask({ key: "edit", prompt: "Implement the requested change." });
    const checked = yield* writer.exec({ key: "check", command: "bun test" });
    yield* writer.close();
    if (checked.exitCode === 0) yield* Workspace.writeBack({ workspace });
  },
});

const everything: NetworkPolicies = {
  "with a space": {
    name: "n",
    endpoints: [
      { host: "*.example.com", ports: [443, 8443], protocol: "rest", enforcement: "enforce", rules: [{ allow: { method: "GET", path: "/x/**", query: { a: { any: ["1", "2"] } } } }] },
      { port: 5432, allowedIps: ["10.0.5.0/24"], tls: "skip" },
      { host: "mcp.example.com", port: 443, protocol: "mcp", enforcement: "enforce", mcp: { allowAllKnownMcpMethods: true }, jsonRpcMaxBodyBytes: 1024, allowEncodedSlash: true },
    ],
    binaries: [{ path: "/sandbox/.harness-bootstrap/codex/node_modules/**" }, { path: "/usr/bin/git" }],
  },
};
export const own = createOpenShellExecution({
  id: "own", gateway: "g", credentials: { kind: "codex-subscription", provider: "p" }, policy: everything, image: "registry.example/own:1", imageCacheDirectory: "~/images",
});
export const closed = createOpenShellExecution({ id: "closed", gateway: "g", credentials: { kind: "codex-subscription", provider: "p" }, policy: {} });
