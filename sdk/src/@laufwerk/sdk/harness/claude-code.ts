import type { Harness } from "@laufwerk/sdk/harness";
import { notBuilt } from "@laufwerk/internal/unbuilt";

export function createClaudeCode(options?: { model?: string; effort?: string; maxTurns?: number }): Harness {
  return notBuilt("createClaudeCode", "the Claude Code harness is not there yet; createCommand of @laufwerk/sdk/harness/command drives an agent program of your own", options);
}
