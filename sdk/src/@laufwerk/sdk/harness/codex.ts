import type { Harness } from "@laufwerk/sdk/harness";
import { notBuilt } from "@laufwerk/internal/unbuilt";

export function createCodex(options?: { model?: string; reasoningEffort?: string; webSearch?: boolean; config?: { readonly [key: string]: string | number | boolean } }): Harness {
  return notBuilt("createCodex", "the Codex harness is not there yet; createCommand of @laufwerk/sdk/harness/command drives an agent program of your own", options);
}
