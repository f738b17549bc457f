// Made from sdk/ by sdk/update.sh: do not edit.

// What the isolate offers beside ECMAScript 2024. There is no file, network, process or timer.

interface AbortSignal {
  readonly aborted: boolean;
  readonly reason: any;
  throwIfAborted(): void;
  addEventListener(type: "abort", listener: (event: any) => void, options?: any): void;
  removeEventListener(type: "abort", listener: (event: any) => void): void;
}
declare var AbortSignal: { abort(reason?: any): AbortSignal; any(signals: Iterable<AbortSignal>): AbortSignal };
interface AbortController {
  readonly signal: AbortSignal;
  abort(reason?: any): void;
}
declare var AbortController: { new(): AbortController };

interface TextEncoder {
  readonly encoding: string;
  encode(input?: string): Uint8Array<ArrayBuffer>;
}
declare var TextEncoder: { new(): TextEncoder };
interface TextDecoder {
  readonly encoding: string;
  decode(input?: ArrayBufferView | ArrayBuffer): string;
}
declare var TextDecoder: { new(label?: string, options?: { fatal?: boolean; ignoreBOM?: boolean }): TextDecoder };

interface Console {
  debug(...data: any[]): void;
  error(...data: any[]): void;
  info(...data: any[]): void;
  log(...data: any[]): void;
  warn(...data: any[]): void;
}
declare var console: Console;

interface Crypto {
  getRandomValues<T extends ArrayBufferView>(array: T): T;
  randomUUID(): `${string}-${string}-${string}-${string}-${string}`;
  readonly subtle: { digest(algorithm: "SHA-256" | { name: "SHA-256" }, data: ArrayBufferView | ArrayBuffer): Promise<ArrayBuffer> };
}
declare var crypto: Crypto;

interface Performance {
  now(): number;
  readonly timeOrigin: number;
}
declare var performance: Performance;

interface URL {
  readonly href: string;
  readonly origin: string;
  readonly protocol: string;
  readonly username: string;
  readonly password: string;
  readonly host: string;
  readonly hostname: string;
  readonly port: string;
  readonly pathname: string;
  readonly search: string;
  readonly hash: string;
  readonly searchParams: URLSearchParams;
  toString(): string;
  toJSON(): string;
}
declare var URL: { new(url: string | URL, base?: string | URL): URL; canParse(url: string | URL, base?: string | URL): boolean };
interface URLSearchParams extends Iterable<[string, string]> {
  get(name: string): string | null;
  getAll(name: string): string[];
  has(name: string): boolean;
  toString(): string;
}
declare var URLSearchParams: { new(init?: string | Iterable<[string, string]> | Record<string, string>): URLSearchParams };

declare function queueMicrotask(callback: () => void): void;
declare function structuredClone<T>(value: T): T;
declare function atob(data: string): string;
declare function btoa(data: string): string;

declare module "@laufwerk/execution" {
    export { createLocalExecution } from "@laufwerk/execution/local";
    export { createDockerExecution, prepareCodexImage, loadPreparedCodexImage } from "@laufwerk/execution/docker";
}

declare module "@laufwerk/execution/docker" {
    import type { Environment } from "@laufwerk/sdk";
    import type { AgentExecution, Credential } from "@laufwerk/execution/local";
    export interface DockerResources {
        /** Cores, more than 0, at most 3 decimals. */
        readonly cpus?: number;
        readonly memoryBytes?: number;
        /** Only with memoryBytes; 0 is no additional swap. */
        readonly swapBytes?: number;
        readonly pids?: number;
    }
    /** Sessions run in containers of a local engine, one each: with limits and, for read-only access, mounts that enforce it. */
    export function createDockerExecution(options?: {
        id?: string;
        image?: string;
        codexBootstrap?: "prepared";
        credentials?: Credential | readonly Credential[];
        resources?: DockerResources;
        network?: "bridge" | "none";
        env?: Environment;
        imageCacheDirectory?: string;
    }): AgentExecution;
    /**
     * Prepares the standard Codex image in its cache; only in `laufwerk script`. `signal` is looked at when the function is called:
     * nothing else of a script runs until the preparation is done, so that only Ctrl-C ends it before.
     */
    export function prepareDockerCodex(options?: {
        image?: string;
        cacheDirectory?: string;
        resources?: DockerResources;
        signal?: AbortSignal;
    }): Promise<{
        image: string;
        manifestPath: string;
        reused: boolean;
    }>;
    /** Prepares an image of your own and writes its manifest; only in `laufwerk script`. `signal` as for prepareDockerCodex. */
    export function prepareCodexImage(options: {
        image: string;
        manifestPath: string;
        resources?: DockerResources;
        signal?: AbortSignal;
    }): Promise<string>;
    /**
     * The id of the prepared image that a manifest names. Recipe and user are checked against this laufwerk at once, the engine's
     * images when a run needs them. In a workflow's module a run hears the same id each time that the module is evaluated.
     */
    export function loadPreparedCodexImage(manifestPath: string, expectedBaseId?: string, signal?: AbortSignal): Promise<string>;
}

declare module "@laufwerk/execution/internal" {
    /** Removes closed session files of a terminal run. */
    export function pruneExecutionRun(executionId: string): Promise<void>;
}

declare module "@laufwerk/execution/local" {
    import type { Agent, Environment, ExecutionTarget } from "@laufwerk/sdk";
    import type { AgentOptions } from "@laufwerk/sdk/harness";
    export type Credential = "codex-subscription" | "claude-subscription";
    export interface AgentExecution extends ExecutionTarget {
        readonly id: string;
        agent(options: AgentOptions): Agent;
    }
    /** Runs with the host user's permissions: it is not a security sandbox. */
    export function createLocalExecution(options?: {
        id?: string;
        credentials?: Credential | readonly Credential[];
        env?: Environment;
    }): AgentExecution;
}

declare module "@laufwerk/execution/openshell" {
    import type { AgentExecution } from "@laufwerk/execution/local";
    /** OpenShell's v1 networkPolicies, in the camelCase of its TypeScript SDK; plain strings, checked when constructed. */
    export interface NetworkPolicies {
        readonly [name: string]: {
            readonly name?: string;
            readonly endpoints: readonly {
                readonly host?: string;
                readonly port?: number;
                readonly ports?: readonly number[];
                readonly protocol?: string;
                readonly enforcement?: string;
                readonly access?: string;
                readonly tls?: string;
                readonly [field: string]: unknown;
            }[];
            readonly binaries: readonly {
                readonly path: string;
            }[];
        };
    }
    /** Sessions run in sandboxes of an OpenShell gateway of this host, one each: with hard file rules, and a network policy. */
    export function createOpenShellExecution(options: {
        id: string;
        gateway: string;
        credentials: {
            kind: "codex-subscription";
            provider: string;
        };
        policy: NetworkPolicies;
        resources?: {
            cpus?: number;
            memoryBytes?: number;
        };
        image?: string;
        imageCacheDirectory?: string;
    }): AgentExecution;
}

declare module "@laufwerk/sandbox" {
    export function createMicrosandbox(options?: object): never;
}

declare module "@laufwerk/sdk" {
    export class LaufwerkError extends Error {
        readonly code: string;
    }
    export class AgentFailed extends LaufwerkError {
    }
    export class CommandTimeout extends LaufwerkError {
    }
    export class OutputTooLarge extends LaufwerkError {
        readonly exitCode: number;
    }
    export class OutputInvalid extends LaufwerkError {
    }
    export class OutcomeUnknown extends LaufwerkError {
    }
    export class SessionLost extends LaufwerkError {
    }
    export class WorkspaceLost extends LaufwerkError {
    }
    export class WorkspaceBusy extends LaufwerkError {
        readonly holder: string;
    }
    export class CloseFailed extends LaufwerkError {
    }
    export class WriteBackConflict extends LaufwerkError {
        readonly paths: readonly string[];
        readonly pathBase64?: readonly string[];
    }
    export class WriteBackRefused extends LaufwerkError {
        readonly paths: readonly string[];
        readonly pathBase64?: readonly string[];
    }
    export class ChangedSinceApproval extends LaufwerkError {
    }
    export class NotApproved extends LaufwerkError {
    }
    export class Cancelled extends LaufwerkError {
    }
    export class Unsupported extends LaufwerkError {
    }
    /** What every constructor's value can be passed as. `sandbox` is opaque: it carries the described target to the engine. */
    export interface ExecutionTarget {
        readonly kind: string;
        readonly sandbox: unknown;
    }
    /** A JSON Schema object, or a library object that exports one (Standard JSON Schema, zod 4). URLs and files are never resolved. */
    export type Schema<T> = ({
        readonly [keyword: string]: unknown;
    } & {
        readonly __type?: T;
    }) | {
        readonly "~standard": {
            readonly types?: {
                readonly output: T;
            } | undefined;
        };
        readonly __type?: T;
    };
    /** An operation: plain data that a generator yields; the engine answers with R. */
    export interface Operation<R> {
        [Symbol.iterator](): Generator<Operation<R>, R, unknown>;
    }
    export interface ProjectConfig {
        /** 1 to 63 letters, digits, `.`, `_` or `-`. */
        readonly projectId: string;
        /** The targets that workflows may use; their ids are unique. */
        readonly executions: readonly ExecutionTarget[];
        /** Live runs of this project; unlimited by default. */
        readonly concurrency?: number;
    }
    export function defineConfig(config: ProjectConfig): ProjectConfig;
    export interface WorkflowDefinition<I, O> {
        /** The name of the workflow's folder. */
        readonly name: string;
        readonly input?: Schema<I>;
        readonly output?: Schema<O>;
        run(input: I): Generator<Operation<any>, O, any>;
    }
    export function defineWorkflow<I = unknown, O = void>(definition: WorkflowDefinition<I, O>): WorkflowDefinition<I, O>;
    export interface WorkspaceHandle {
        readonly id: string;
        readonly mode: "copy" | "direct";
    }
    export interface Change {
        readonly path: string;
        /** The path's bytes, where they are not valid UTF-8. */
        readonly pathBase64?: string;
        readonly kind: "added" | "modified" | "deleted" | "mode" | "link";
        /** It is of the class that can make code run on this host. */
        readonly runsOnHost: boolean;
    }
    export interface Difference {
        readonly digest: string;
        readonly changes: readonly Change[];
        readonly text: string;
        readonly ignored: number;
    }
    export const Workspace: {
        /** `source` is a directory; `include` adds ignored paths (globs); "direct" exists on local targets only. */
        open(options: {
            source: string;
            execution: ExecutionTarget;
            mode?: "copy" | "direct";
            include?: readonly string[];
            key?: string;
        }): Operation<WorkspaceHandle>;
        diff(options: {
            workspace: WorkspaceHandle;
        }): Operation<Difference>;
        /** Applies the frozen (and, where a question was bound to it, approved) bytes. `allow` names paths below laufwerk/ that may change. */
        writeBack(options: {
            workspace: WorkspaceHandle;
            key?: string;
            allow?: readonly string[];
        }): Operation<{
            digest: string;
            approved: boolean;
            changes: readonly Change[];
        }>;
    };
    export interface Agent {
        readonly id: string;
    }
    /** Invalid UTF-8 becomes U+FFFD; at most 16 MiB each. */
    export interface ExecResult {
        readonly exitCode: number;
        readonly stdout: string;
        readonly stderr: string;
    }
    export interface SessionHandle {
        readonly key: string;
        ask(options: {
            key: string;
            prompt: string;
            timeout?: number;
        }): Operation<string>;
        ask<T>(options: {
            key: string;
            prompt: string;
            output: Schema<T>;
            timeout?: number;
        }): Operation<T>;
        /** `bash -c`, in the workspace. */
        exec(options: {
            key: string;
            command: string;
            stdin?: string | Uint8Array;
            env?: Environment;
            timeout?: number;
        }): Operation<ExecResult>;
        /** null: there is no such file; anything else throws. */
        readFile(path: string): Operation<Uint8Array | null>;
        /** At most 16 MiB. */
        writeFile(path: string, bytes: Uint8Array | string): Operation<void>;
        /** Idempotent; ends when absence was observed. */
        close(): Operation<void>;
    }
    export const Session: {
        /** The default access is read-write. */
        open(options: {
            key: string;
            agent: Agent;
            workspace: WorkspaceHandle;
            access?: "read-write" | "read-only";
        }): Operation<SessionHandle>;
        run(options: {
            key: string;
            agent: Agent;
            prompt: string;
            workspace: WorkspaceHandle;
            access?: "read-write" | "read-only";
            timeout?: number;
        }): Operation<string>;
        run<T>(options: {
            key: string;
            agent: Agent;
            prompt: string;
            output: Schema<T>;
            workspace: WorkspaceHandle;
            access?: "read-write" | "read-only";
            timeout?: number;
        }): Operation<T>;
    };
    /** `workspace` binds the question to the exact frozen content, and its difference is shown with it. */
    interface Question {
        readonly key: string;
        readonly title: string;
        readonly description?: string;
        readonly workspace?: WorkspaceHandle;
    }
    export const Human: {
        confirm(question: Question): Operation<boolean>;
        text(question: Question & {
            placeholder?: string;
        }): Operation<string>;
        select<const V extends string>(question: Question & {
            options: readonly {
                value: V;
                label: string;
                description?: string;
            }[];
        }): Operation<V>;
        /** Does not wait. */
        notify(message: {
            key: string;
            title: string;
            description?: string;
        }): Operation<void>;
    };
    /** A program on the host, with the worker's permissions, outside every sandbox policy; at-least-once. */
    export const Host: {
        exec(options: {
            key: string;
            command: readonly string[];
            cwd?: string;
            env?: Environment;
            stdin?: string;
            timeout?: number;
        }): Operation<ExecResult>;
    };
    export const Clock: {
        now(): Operation<Date>;
        /** `duration` in milliseconds. */
        sleep(options: {
            key: string;
            duration: number;
        }): Operation<void>;
    };
    /** Runs operations or generators side by side; the first failure (in recorded order) cancels the others. */
    export function all<const T extends readonly (Operation<any> | Generator<Operation<any>, any, any>)[]>(items: T, options?: {
        concurrency?: number;
    }): Operation<{
        -readonly [K in keyof T]: T[K] extends Generator<any, infer R, any> ? R : T[K] extends Operation<infer R> ? R : never;
    }>;
    /** Values are literal, or taken from the worker's environment when the operation starts; journaled as hashes. */
    export type Environment = {
        readonly [name: string]: string | {
            readonly fromHost: string;
        };
    };
}

declare module "@laufwerk/sdk/harness" {
    export interface Harness {
        readonly program: string;
    }
    export interface HarnessAgentSkill {
        readonly name: string;
        readonly description: string;
        readonly content: string;
        readonly files?: {
            readonly [path: string]: string;
        };
    }
    export type PermissionMode = "allow-all" | "allow-edits" | "allow-reads";
    export interface AgentOptions {
        readonly id?: string;
        readonly harness: Harness;
        readonly instructions?: string;
        /** The default is allow-all. */
        readonly permissionMode?: PermissionMode;
        readonly skills?: readonly HarnessAgentSkill[];
        readonly activeTools?: readonly string[];
    }
}

declare module "@laufwerk/sdk/harness/claude-code" {
    import type { Harness } from "@laufwerk/sdk/harness";
    export function createClaudeCode(options?: {
        model?: string;
        effort?: string;
        maxTurns?: number;
    }): Harness;
}

declare module "@laufwerk/sdk/harness/codex" {
    import type { Harness } from "@laufwerk/sdk/harness";
    /** Codex, with a subscription's login of yours. `config` is handed on as `-c key=value`, as far as it does not loosen laufwerk's rules. */
    export function createCodex(options?: {
        model?: string;
        reasoningEffort?: string;
        webSearch?: boolean;
        config?: {
            readonly [key: string]: string | number | boolean;
        };
    }): Harness;
}

declare module "@laufwerk/sdk/harness/command" {
    import type { Environment } from "@laufwerk/sdk";
    import type { Harness } from "@laufwerk/sdk/harness";
    /** An agent program of your own: the prompt on stdin and the reply on stdout ("text", the default), or JSON lines ("json"). */
    export function createCommand(options: {
        command: readonly string[];
        env?: Environment;
        protocol?: "text" | "json";
    }): Harness;
}
