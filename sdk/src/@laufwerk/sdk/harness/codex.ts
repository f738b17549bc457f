import type { Harness } from "@laufwerk/sdk/harness";
import { makeHarness } from "@laufwerk/internal/targets";

/** Codex, with a subscription's login of yours. `config` is handed on as `-c key=value`, as far as it does not loosen laufwerk's rules. */
export function createCodex(options?: { model?: string; reasoningEffort?: string; webSearch?: boolean; config?: { readonly [key: string]: string | number | boolean } }): Harness {
  return makeHarness("codex", options);
}
