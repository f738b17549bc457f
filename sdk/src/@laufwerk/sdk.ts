import * as check from "@laufwerk/internal/check";
import { frozen, shown, usage } from "@laufwerk/internal/errors";
import { All, Op } from "@laufwerk/internal/operation";
import { agentOf, definitionOf, validate } from "@laufwerk/internal/targets";

export {
  LaufwerkError, AgentFailed, CommandTimeout, OutputTooLarge, OutputInvalid, OutcomeUnknown, SessionLost, WorkspaceLost, WorkspaceBusy,
  CloseFailed, WriteBackConflict, WriteBackRefused, ChangedSinceApproval, NotApproved, Cancelled, Unsupported,
} from "@laufwerk/internal/errors";

/** What every constructor's value can be passed as. `sandbox` is opaque: it carries the described target to the engine. */
export interface ExecutionTarget { readonly kind: string; readonly sandbox: unknown }

/** A JSON Schema object, or a library object that exports one (Standard JSON Schema, zod 4). URLs and files are never resolved. */
export type Schema<T> = { readonly [keyword: string]: unknown } & { readonly __type?: T } | { readonly "~standard": { readonly types?: { readonly output: T } | undefined }; readonly __type?: T };

/** An operation: plain data that a generator yields; the engine answers with R. */
export interface Operation<R> { [Symbol.iterator](): Generator<Operation<R>, R, unknown> }

export interface ProjectConfig {
  /** 1 to 63 letters, digits, `.`, `_` or `-`. */
  readonly projectId: string;
  /** The targets that workflows may use; their ids are unique. */
  readonly executions: readonly ExecutionTarget[];
  /** Live runs of this project; unlimited by default. */
  readonly concurrency?: number;
}

export function defineConfig(config: ProjectConfig): ProjectConfig {
  if (!check.isRecord(config)) throw usage(`defineConfig expects an object with options, got ${shown(config)}`);
  validate("project", plainConfig(config));
  return Object.freeze({ ...config });
}

// What only the types forbid is left for the host's rules to name, with its path.
function plainConfig(config: { readonly [name: string]: unknown }): unknown {
  const described = (target: unknown) => check.isRecord(target) && "sandbox" in target ? { kind: target["kind"], sandbox: target["sandbox"] } : target;
  const plain = (value: unknown) => Array.isArray(value) ? value.map(described) : described(value);
  return check.json(Object.fromEntries(Object.entries(config).map(([name, value]) => [name, plain(value)])), "");
}

export interface WorkflowDefinition<I, O> {
  /** The name of the workflow's folder. */
  readonly name: string;
  readonly input?: Schema<I>;
  readonly output?: Schema<O>;
  run(input: I): Generator<Operation<any>, O, any>;
}

export function defineWorkflow<I = unknown, O = void>(definition: WorkflowDefinition<I, O>): WorkflowDefinition<I, O> {
  const what = "defineWorkflow";
  const { name, input, output } = check.options(what, definition, {
    name: check.nonEmpty,
    run(value, path) {
      if (typeof value !== "function") throw usage(`expected a generator function, got ${shown(value)}`, path);
    },
  }, { input: check.schema, output: check.schema });
  return Object.freeze({
    name,
    ...(input !== undefined && { input }),
    ...(output !== undefined && { output }),
    run: (given: I) => definition.run(given),
  });
}

export interface WorkspaceHandle { readonly id: string; readonly mode: "copy" | "direct" }
export interface Change {
  readonly path: string;
  /** The path's bytes, where they are not valid UTF-8. */
  readonly pathBase64?: string;
  readonly kind: "added" | "modified" | "deleted" | "mode" | "link";
  /** It is of the class that can make code run on this host. */
  readonly runsOnHost: boolean;
}
export interface Difference { readonly digest: string; readonly changes: readonly Change[]; readonly text: string; readonly ignored: number }

export const Workspace: {
  /** `source` is a directory; `include` adds ignored paths (globs); "direct" exists on local targets only. */
  open(options: { source: string; execution: ExecutionTarget; mode?: "copy" | "direct"; include?: readonly string[]; key?: string }): Operation<WorkspaceHandle>;
  diff(options: { workspace: WorkspaceHandle }): Operation<Difference>;
  /** Applies the frozen (and, where a question was bound to it, approved) bytes. `allow` names paths below laufwerk/ that may change. */
  writeBack(options: { workspace: WorkspaceHandle; key?: string; allow?: readonly string[] }): Operation<{ digest: string; approved: boolean; changes: readonly Change[] }>;
} = Object.freeze({
  open(options: unknown) {
    const { key = "", mode = "copy", include = [], ...rest } = check.options("Workspace.open", options,
      { source: check.nonEmpty, execution: definitionOf },
      { mode: check.oneOf("copy", "direct"), include: check.listOf(check.nonEmpty), key: check.key });
    return op("workspace.open", { key }, { ...rest, mode, include }, value => frozen({ id: value.id, mode: value.mode }));
  },
  diff(options: unknown) {
    return op("workspace.diff", {}, check.options("Workspace.diff", options, { workspace: workspaceOf }), frozen);
  },
  writeBack(options: unknown) {
    const { key = "", allow = [], workspace } = check.options("Workspace.writeBack", options,
      { workspace: workspaceOf }, { key: check.key, allow: check.listOf(check.nonEmpty) });
    return op("workspace.writeBack", { key }, { workspace, allow }, frozen);
  },
});

export interface Agent { readonly id: string }

/** Invalid UTF-8 becomes U+FFFD; at most 16 MiB each. */
export interface ExecResult { readonly exitCode: number; readonly stdout: string; readonly stderr: string }

export interface SessionHandle {
  readonly key: string;
  ask(options: { key: string; prompt: string; timeout?: number }): Operation<string>;
  ask<T>(options: { key: string; prompt: string; output: Schema<T>; timeout?: number }): Operation<T>;
  /** `bash -c`, in the workspace. */
  exec(options: { key: string; command: string; stdin?: string | Uint8Array; env?: Environment; timeout?: number }): Operation<ExecResult>;
  /** null: there is no such file; anything else throws. */
  readFile(path: string): Operation<Uint8Array | null>;
  /** At most 16 MiB. */
  writeFile(path: string, bytes: Uint8Array | string): Operation<void>;
  /** Idempotent; ends when absence was observed. */
  close(): Operation<void>;
}

export const Session: {
  /** The default access is read-write. */
  open(options: { key: string; agent: Agent; workspace: WorkspaceHandle; access?: "read-write" | "read-only" }): Operation<SessionHandle>;
  run(options: { key: string; agent: Agent; prompt: string; workspace: WorkspaceHandle; access?: "read-write" | "read-only"; timeout?: number }): Operation<string>;
  run<T>(options: { key: string; agent: Agent; prompt: string; output: Schema<T>; workspace: WorkspaceHandle; access?: "read-write" | "read-only"; timeout?: number }): Operation<T>;
} = Object.freeze({
  open(options: unknown) {
    const { key, access = "read-write", ...rest } = check.options("Session.open", options, { key: check.key, agent: agentOf, workspace: workspaceOf }, { access: accessOf });
    return op("session.open", { key }, { ...rest, access }, () => session(key));
  },
  run(options: unknown) {
    const { key, access = "read-write", ...rest } = check.options("Session.run", options,
      { key: check.key, agent: agentOf, workspace: workspaceOf, prompt: promptOf },
      { access: accessOf, output: check.schema, timeout: timeoutOf });
    return op("session.run", { key }, { ...rest, access }, frozen);
  },
});

function session(scope: string): SessionHandle {
  return Object.freeze({
    key: scope,
    ask(options: unknown) {
      const { key, ...rest } = check.options("ask", options, { key: check.key, prompt: promptOf }, { output: check.schema, timeout: timeoutOf });
      return op("session.ask", { scope, key }, rest, frozen);
    },
    exec(options: unknown) {
      const { key, ...rest } = check.options("exec", options, { key: check.key, command: check.nonEmpty },
        { stdin: stdinOf, env: check.environment, timeout: timeoutOf });
      return op("session.exec", { scope, key }, rest, frozen);
    },
    readFile(path: string) {
      return op("session.readFile", { scope }, { path: check.nonEmpty(path, "path") }, value => value === null ? null : (Uint8Array as any).fromBase64(value.base64));
    },
    writeFile(path: string, bytes: Uint8Array | string) {
      return op("session.writeFile", { scope }, { path: check.nonEmpty(path, "path"), base64: bytesOf(bytes, "bytes").toBase64() }, nothing);
    },
    close() {
      return op("session.close", { scope }, {}, nothing);
    },
  }) as SessionHandle;
}

/** `workspace` binds the question to the exact frozen content, and its difference is shown with it. */
interface Question { readonly key: string; readonly title: string; readonly description?: string; readonly workspace?: WorkspaceHandle }

export const Human: {
  confirm(question: Question): Operation<boolean>;
  text(question: Question & { placeholder?: string }): Operation<string>;
  select<const V extends string>(question: Question & { options: readonly { value: V; label: string; description?: string }[] }): Operation<V>;
  /** Does not wait. */
  notify(message: { key: string; title: string; description?: string }): Operation<void>;
} = Object.freeze({
  confirm(question: unknown) { return ask("Human.confirm", "confirm", question, {}, {}); },
  text(question: unknown) { return ask("Human.text", "text", question, {}, { placeholder: check.string }); },
  select(question: unknown) { return ask("Human.select", "select", question, { options: choices }, {}); },
  notify(message: unknown) {
    const { key, ...rest } = check.options("Human.notify", message, { key: check.key, title: check.nonEmpty }, { description: check.string });
    return op("human.notify", { key }, rest, nothing);
  },
});

function ask(what: string, type: string, question: unknown, required: { [name: string]: check.Check }, optional: { [name: string]: check.Check }): any {
  const { key, ...rest } = check.options(what, question,
    { key: check.key, title: check.nonEmpty, ...required },
    { description: check.string, workspace: workspaceOf, ...optional });
  return op("human", { key }, { type, ...rest }, frozen);
}

function choices(value: unknown, path: string): unknown {
  const seen = new Set<string>();
  return check.listOf((choice, at) => {
    const out = check.options("a choice", choice, { value: check.nonEmpty, label: check.nonEmpty }, { description: check.string });
    if (seen.has(out.value)) throw usage(`the value ${shown(out.value)} is there twice`, at);
    seen.add(out.value);
    return out;
  }, 1)(value, path);
}

/** A program on the host, with the worker's permissions, outside every sandbox policy; at-least-once. */
export const Host: {
  exec(options: { key: string; command: readonly string[]; cwd?: string; env?: Environment; stdin?: string; timeout?: number }): Operation<ExecResult>;
} = Object.freeze({
  exec(options: unknown) {
    const { key, ...rest } = check.options("Host.exec", options, { key: check.key, command: check.listOf(check.string, 1) },
      { cwd: check.nonEmpty, env: check.environment, stdin: stdinOf, timeout: timeoutOf });
    return op("host.exec", { key }, rest, frozen);
  },
});

export const Clock: {
  now(): Operation<Date>;
  /** `duration` in milliseconds. */
  sleep(options: { key: string; duration: number }): Operation<void>;
} = Object.freeze({
  now() { return op("clock.now", {}, {}, value => new Date(value)); },
  sleep(options: unknown) {
    const { key, ...rest } = check.options("Clock.sleep", options, { key: check.key, duration: check.milliseconds(0) });
    return op("clock.sleep", { key }, rest, nothing);
  },
});

/** Runs operations or generators side by side; the first failure (in recorded order) cancels the others. */
export function all<const T extends readonly (Operation<any> | Generator<Operation<any>, any, any>)[]>(items: T, options?: { concurrency?: number }):
  Operation<{ -readonly [K in keyof T]: T[K] extends Generator<any, infer R, any> ? R : T[K] extends Operation<infer R> ? R : never }> {
  if (!Array.isArray(items)) throw usage(`all expects an array of operations or generators, got ${shown(items)}`);
  const { concurrency = Infinity } = check.options("all", options ?? {}, {}, {
    concurrency(value, path) {
      if (value !== Infinity && (!Number.isInteger(value) || (value as number) < 1)) throw usage(`expected a whole number, at least 1, got ${shown(value)}`, path);
      return value;
    },
  });
  const seen = new Set<unknown>();
  const checked = Array.from(items as readonly any[], (item, i) => {
    if (!(item instanceof Op) && !(item instanceof All) && typeof item?.next !== "function") {
      throw usage(`expected an operation or a generator, got ${typeof item === "function" ? "a function: call it" : shown(item)}`, `items[${i}]`);
    }
    if (!(item instanceof Op) && !(item instanceof All)) {
      if (seen.has(item)) throw usage("this generator is in the list already: call its function once for each item", `items[${i}]`);
      seen.add(item);
    }
    return item;
  });
  return new All(checked, concurrency) as any;
}

/** Values are literal, or taken from the worker's environment when the operation starts; journaled as hashes. */
export type Environment = { readonly [name: string]: string | { readonly fromHost: string } };

function op(name: string, where: { scope?: string; key?: string }, args: object, decode: (value: any) => any): any {
  return new Op(name, where, args, decode);
}

function nothing(): void {}

function workspaceOf(value: unknown, path: string): string {
  if (!check.isRecord(value) || typeof value["id"] !== "string" || value["mode"] !== "copy" && value["mode"] !== "direct") {
    throw usage(`expected the result of Workspace.open, got ${value instanceof Op ? "the operation itself: write `yield*` before it" : shown(value)}`, path);
  }
  return value["id"];
}

const accessOf = check.oneOf("read-write", "read-only");
const timeoutOf = check.milliseconds(1);

function promptOf(value: unknown, path: string): unknown {
  check.nonEmpty(value, path);
  return bounded(value as string, path);
}

function bounded<T extends string | Uint8Array>(value: T, path: string): T {
  // A UTF-16 unit is one to three bytes of UTF-8: only in between they must be counted.
  const certain = typeof value === "string" ? value.length : value.byteLength;
  const size = typeof value === "string" && certain * 3 > check.maxBytes && certain <= check.maxBytes ? new TextEncoder().encode(value).length : certain;
  if (size > check.maxBytes) throw usage(`expected at most ${check.maxBytes} bytes, got ${size}`, path);
  return value;
}

function stdinOf(value: unknown, path: string): unknown {
  if (typeof value === "string") return { text: bounded(check.string(value, path) as string, path) };
  return { base64: bytesOf(value, path).toBase64() };
}

function bytesOf(value: unknown, path: string): Uint8Array<ArrayBuffer> & { toBase64(): string } {
  if (typeof value === "string") return new TextEncoder().encode(bounded(check.string(value, path) as string, path)) as any;
  if (!(value instanceof Uint8Array)) throw usage(`expected a Uint8Array or a string, got ${shown(value)}`, path);
  return bounded(value, path) as any;
}
