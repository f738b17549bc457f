import type { Environment } from "@laufwerk/sdk";
import type { Harness } from "@laufwerk/sdk/harness";
import { makeHarness } from "@laufwerk/internal/targets";

/** An agent program of your own: the prompt on stdin and the reply on stdout ("text", the default), or JSON lines ("json"). */
export function createCommand(options: { command: readonly string[]; env?: Environment; protocol?: "text" | "json" }): Harness {
  return makeHarness("command", options);
}
