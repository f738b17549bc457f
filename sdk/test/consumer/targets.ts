// Consumers as the documents of behaviour describe them.
import { defineConfig } from "@laufwerk/sdk";
import { createDockerExecution, createLocalExecution, loadPreparedCodexImage, prepareCodexImage } from "@laufwerk/execution";
import { prepareDockerCodex } from "@laufwerk/execution/docker";
import { createOpenShellExecution } from "@laufwerk/execution/openshell";
import { pruneExecutionRun } from "@laufwerk/execution/internal";
import { policy } from "./policy";

export const docker = createDockerExecution({
  credentials: "codex-subscription",
  resources: { cpus: 1.5, memoryBytes: 2 * 1024 ** 3, swapBytes: 0, pids: 256 },
  network: "none",
  env: { CI: "true", TOKEN: { fromHost: "DEPLOY_TOKEN" } },
});

export const local = createLocalExecution({ id: "host", credentials: ["codex-subscription", "claude-subscription"] });

export const shell = createOpenShellExecution({
  id: "locked-down", gateway: "desk", credentials: { kind: "codex-subscription", provider: "desk-codex" }, policy,
  resources: { cpus: 2, memoryBytes: 4 * 1024 ** 3 },
});

export default defineConfig({ projectId: "consumer", executions: [docker, local, shell], concurrency: 3 });

export async function prepared(base: string, manifestPath: string) {
  const made: string = await prepareCodexImage({ image: base, manifestPath, resources: { cpus: 2 } });
  const cached: { image: string; manifestPath: string; reused: boolean } = await prepareDockerCodex();
  await pruneExecutionRun("run");
  return [made, cached, createDockerExecution({ image: await loadPreparedCodexImage(manifestPath), codexBootstrap: "prepared" })] as const;
}
