import type { Environment } from "@laufwerk/sdk";
import type { AgentExecution, Credential } from "@laufwerk/execution/local";
import { notBuilt } from "@laufwerk/internal/unbuilt";

export interface DockerResources {
  /** Cores, more than 0, at most 3 decimals. */
  readonly cpus?: number;
  readonly memoryBytes?: number;
  /** Only with memoryBytes; 0 is no additional swap. */
  readonly swapBytes?: number;
  readonly pids?: number;
}

const why = "the docker target is not there yet; createLocalExecution of @laufwerk/execution/local is";

export function createDockerExecution(options?: {
  id?: string; image?: string; codexBootstrap?: "prepared"; credentials?: Credential | readonly Credential[];
  resources?: DockerResources; network?: "bridge" | "none"; env?: Environment; imageCacheDirectory?: string;
}): AgentExecution {
  return notBuilt("createDockerExecution", why, options);
}

export function prepareDockerCodex(options?: { image?: string; cacheDirectory?: string; resources?: DockerResources; signal?: AbortSignal }): Promise<{ image: string; manifestPath: string; reused: boolean }> {
  return notBuilt("prepareDockerCodex", why, options);
}

export function prepareCodexImage(options: { image: string; manifestPath: string; resources?: DockerResources; signal?: AbortSignal }): Promise<string> {
  return notBuilt("prepareCodexImage", why, options);
}

export function loadPreparedCodexImage(manifestPath: string, expectedBaseId?: string, signal?: AbortSignal): Promise<string> {
  return notBuilt("loadPreparedCodexImage", why, manifestPath, expectedBaseId, signal);
}
