// What stands behind the values that constructors return. The rules are the host's: one set for constructors and engine.
import type { Agent, ExecutionTarget } from "@laufwerk/sdk";
import type { AgentOptions, Harness } from "@laufwerk/sdk/harness";
import { toError, type Failure, frozen, shown, unsupported, usage } from "@laufwerk/internal/errors";
import { isRecord, json, options } from "@laufwerk/internal/check";
import { host } from "@laufwerk/internal/host";

export interface Definition { readonly kind: string; readonly id: string; readonly options: unknown; readonly fingerprint: string }

/** Asks the host's rules about a value; throws with the option's path, or returns the normalised form. */
export function validate(subject: string, value: unknown): any {
  return answered(host.validate(subject, JSON.stringify(value)));
}

/** Has the host do what a function stands for; returns when it is done, or throws why not. */
export function call(name: string, args: object): any {
  return answered(host.call(name, JSON.stringify(json(args, ""))));
}

function answered(text: string): unknown {
  const answer: { value?: unknown; error?: Failure } = JSON.parse(text);
  if (answer.error !== undefined) throw toError(answer.error);
  return frozen(answer.value);
}

const harnesses = new WeakMap<object, { program: string; options: unknown }>();
const agents = new WeakMap<object, unknown>();

export function makeHarness(program: string, given: unknown): Harness {
  const normalised = validate(`harness/${program}`, optionsOf(given));
  const harness = Object.freeze({ program });
  harnesses.set(harness, { program, options: normalised });
  return harness;
}

export function makeTarget(kind: string, given: unknown): ExecutionTarget & { readonly id: string; agent(options: AgentOptions): Agent } {
  const definition: Definition = validate(`target/${kind}`, optionsOf(given));
  return Object.freeze({
    kind,
    id: definition.id,
    sandbox: definition,
    agent(given: AgentOptions): Agent {
      if (isRecord(given) && "tools" in given) {
        throw unsupported("tools: host tools for agents are not supported yet: let the agent use its own, or do the work between turns in the workflow");
      }
      const any = (value: unknown, path: string) => json(value, path);
      const { harness, ...rest } = options(".agent()", given, { harness: harnessOf }, { id: any, instructions: any, permissionMode: any, skills: any, activeTools: any });
      const agent = validate("agent", { ...rest, harness, target: definition });
      const handle: Agent = Object.freeze({ id: agent.id });
      agents.set(handle, agent);
      return handle;
    },
  });
}

/** The options with the folder of prepared images as an absolute path: a target is also used where its project is not known. */
export function cacheDirectory(given: any): any {
  const directory = isRecord(given) ? given["imageCacheDirectory"] : undefined;
  return typeof directory === "string" && /^[^/~]/.test(directory) ? { ...given, imageCacheDirectory: `${host.root}/${directory}` } : given;
}

function optionsOf(given: unknown): unknown {
  if (given === undefined) return {};
  if (!isRecord(given)) throw usage(`expected an object with options, got ${shown(given)}`);
  return json(given, "");
}

function harnessOf(value: unknown, path: string): unknown {
  const harness = isRecord(value) ? harnesses.get(value) : undefined;
  if (harness === undefined) throw usage(`expected a value of createCommand, createCodex or createClaudeCode, got ${shown(value)}`, path);
  return harness;
}

/** The description of an agent that `.agent()` made. */
export function agentOf(value: unknown, path: string): unknown {
  const agent = isRecord(value) ? agents.get(value) : undefined;
  if (agent === undefined) throw usage(`expected an agent that a target's .agent() made, got ${shown(value)}`, path);
  return agent;
}

/** The definition that an execution target carries. */
export function definitionOf(value: unknown, path: string): Definition {
  const d = isRecord(value) ? value["sandbox"] : undefined;
  if (!isRecord(d) || typeof d["kind"] !== "string" || typeof d["id"] !== "string" || typeof d["fingerprint"] !== "string") {
    throw usage(`expected an execution target that a constructor such as createLocalExecution made, got ${shown(value)}`, path);
  }
  return json(d, path);
}
