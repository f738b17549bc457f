import type { Environment } from "@laufwerk/sdk";
import type { AgentExecution, Credential } from "@laufwerk/execution/local";
import { type Check, isRecord, json, nonEmpty, options } from "@laufwerk/internal/check";
import { LaufwerkError, shown, usage } from "@laufwerk/internal/errors";
import { cacheDirectory, call, makeTarget } from "@laufwerk/internal/targets";

export interface DockerResources {
  /** Cores, more than 0, at most 3 decimals. */
  readonly cpus?: number;
  readonly memoryBytes?: number;
  /** Only with memoryBytes; 0 is no additional swap. */
  readonly swapBytes?: number;
  readonly pids?: number;
}

// What loadPreparedCodexImage gave, by image id: such an id says where the same thing is found, and does not define a target.
const loaded = new Map<string, { readonly image: string; readonly manifestPath: string }>();

/** Sessions run in containers of a local engine, one each: with limits and, for read-only access, mounts that enforce it. */
export function createDockerExecution(options?: {
  id?: string; image?: string; codexBootstrap?: "prepared"; credentials?: Credential | readonly Credential[];
  resources?: DockerResources; network?: "bridge" | "none"; env?: Environment; imageCacheDirectory?: string;
}): AgentExecution {
  if (!isRecord(options)) return makeTarget("docker", options);
  // Only this module may say that an image is prepared.
  if ("prepared" in options) throw usage("there is no such option; pass the result of loadPreparedCodexImage as `image`", "prepared");
  const { image, ...others } = cacheDirectory(options);
  const prepared = typeof image === "string" ? loaded.get(image) : undefined;
  return makeTarget("docker", { ...others, ...(prepared === undefined ? { image } : { prepared }) });
}

/**
 * Prepares the standard Codex image in its cache; only in `laufwerk script`. `signal` is looked at when the function is called:
 * nothing else of a script runs until the preparation is done, so that only Ctrl-C ends it before.
 */
export function prepareDockerCodex(options?: { image?: string; cacheDirectory?: string; resources?: DockerResources; signal?: AbortSignal }): Promise<{ image: string; manifestPath: string; reused: boolean }> {
  return ask("prepareDockerCodex", options ?? {}, {}, { image: plain, cacheDirectory: plain, resources: plain, signal: abortSignal });
}

/** Prepares an image of your own and writes its manifest; only in `laufwerk script`. `signal` as for prepareDockerCodex. */
export function prepareCodexImage(options: { image: string; manifestPath: string; resources?: DockerResources; signal?: AbortSignal }): Promise<string> {
  return ask("prepareCodexImage", options, { image: plain, manifestPath: plain }, { resources: plain, signal: abortSignal });
}

/**
 * The id of the prepared image that a manifest names. Recipe and user are checked against this laufwerk at once, the engine's
 * images when a run needs them. In a workflow's module a run hears the same id each time that the module is evaluated.
 */
export function loadPreparedCodexImage(manifestPath: string, expectedBaseId?: string, signal?: AbortSignal): Promise<string> {
  const given = { manifestPath, ...(expectedBaseId !== undefined && { expectedBaseId }), ...(signal !== undefined && { signal }) };
  const answer = ask<{ image: string; manifestPath: string }>("loadPreparedCodexImage", given, { manifestPath: nonEmpty }, { expectedBaseId: nonEmpty, signal: abortSignal });
  return answer.then(found => {
    loaded.set(found.image, found);
    return found.image;
  });
}

const plain: Check = (value, path) => json(value, path);

const abortSignal: Check = (value, path) => {
  if (!isRecord(value) || typeof value["throwIfAborted"] !== "function") throw usage(`expected an AbortSignal, got ${shown(value)}`, path);
  return value;
};

/** Has the host do it. Wrong use throws at once, whether or not anybody awaits; what does not go well rejects. */
function ask<T>(name: string, given: unknown, required: { [name: string]: Check }, optional: { [name: string]: Check }): Promise<T> {
  const { signal, ...args } = options(name, given, required, optional);
  if (signal?.aborted) return Promise.reject(signal.reason);
  try {
    return Promise.resolve(call(name, args));
  } catch (error) {
    if (error instanceof LaufwerkError && (error.code === "usage" || error.code === "unsupported")) throw error;
    return Promise.reject(error);
  }
}
