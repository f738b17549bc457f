// The examples of the documents of behaviour on Docker targets, as they stand there.
import { createDockerExecution, createLocalExecution } from "@laufwerk/execution";
import { loadPreparedCodexImage, prepareCodexImage } from "@laufwerk/execution";
import { type DockerResources, prepareDockerCodex } from "@laufwerk/execution/docker";
import type { ExecutionTarget } from "@laufwerk/sdk";
import { createCodex } from "@laufwerk/sdk/harness/codex";

export const docker = createDockerExecution({
  credentials: "codex-subscription",
  resources: {
    cpus: 2,
    memoryBytes: 4 * 1024 ** 3,
    swapBytes: 0,
    pids: 512,
  },
});

export const local = createLocalExecution({ credentials: "codex-subscription" });

export async function prepare(baseImage: string, manifestPath: string) {
  await prepareCodexImage({
    image: baseImage, manifestPath,
    resources: { memoryBytes: 4 * 1024 ** 3, cpus: 2 },
  });
  return createDockerExecution({
    image: await loadPreparedCodexImage(manifestPath),
    credentials: "codex-subscription",
  });
}

// The constructor's value is an ExecutionTarget, and more.
export const target: ExecutionTarget = docker;
export const agent = docker.agent({ harness: createCodex() });

const few: DockerResources = { pids: 64 };
export async function everything(signal: AbortSignal) {
  const { image, manifestPath, reused } = await prepareDockerCodex({ image: "node:22", cacheDirectory: "~/images", resources: few, signal });
  const loaded: string = await loadPreparedCodexImage(manifestPath, "sha256:base", new AbortController().signal);
  return [reused, createDockerExecution({
    id: "own", image: reused ? image : loaded, codexBootstrap: "prepared", credentials: ["codex-subscription", "claude-subscription"],
    resources: few, network: "bridge", env: { A: "1", B: { fromHost: "B" } }, imageCacheDirectory: "cache",
  })] as const;
}
