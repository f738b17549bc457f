import type { Agent, Environment, ExecutionTarget } from "@laufwerk/sdk";
import type { AgentOptions } from "@laufwerk/sdk/harness";
import { makeTarget } from "@laufwerk/internal/targets";

export type Credential = "codex-subscription" | "claude-subscription";

export interface AgentExecution extends ExecutionTarget { readonly id: string; agent(options: AgentOptions): Agent }

/** Runs with the host user's permissions: it is not a security sandbox. */
export function createLocalExecution(options?: { id?: string; credentials?: Credential | readonly Credential[]; env?: Environment }): AgentExecution {
  return makeTarget("local", options);
}
