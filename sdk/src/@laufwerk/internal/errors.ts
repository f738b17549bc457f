// The classes that workflows catch, and how failures cross the boundary in both directions.
export interface Failure {
  class: string;
  code: string;
  message: string;
  fields?: { [name: string]: unknown };
  option?: string;
  hint?: string;
  stack?: string;
}

export class LaufwerkError extends Error { declare readonly code: string }
export class AgentFailed extends LaufwerkError {}
export class CommandTimeout extends LaufwerkError {}
export class OutputTooLarge extends LaufwerkError { declare readonly exitCode: number }
export class OutputInvalid extends LaufwerkError {}
export class OutcomeUnknown extends LaufwerkError {}
export class SessionLost extends LaufwerkError {}
export class WorkspaceLost extends LaufwerkError {}
export class WorkspaceBusy extends LaufwerkError { declare readonly holder: string }
export class CloseFailed extends LaufwerkError {}
/** Of paths that are not UTF-8, `pathBase64` has the bytes, each at the place that it has in `paths`, and "" for the others. */
export class WriteBackConflict extends LaufwerkError { declare readonly paths: readonly string[]; declare readonly pathBase64?: readonly string[] }
export class WriteBackRefused extends LaufwerkError { declare readonly paths: readonly string[]; declare readonly pathBase64?: readonly string[] }
export class ChangedSinceApproval extends LaufwerkError {}
export class NotApproved extends LaufwerkError {}
export class Cancelled extends LaufwerkError {}
export class Unsupported extends LaufwerkError {}

// Bundling may rename a class, so the names are written down.
const classes: { [name: string]: new (message: string) => LaufwerkError } = {
  LaufwerkError, AgentFailed, CommandTimeout, OutputTooLarge, OutputInvalid, OutcomeUnknown, SessionLost, WorkspaceLost,
  WorkspaceBusy, CloseFailed, WriteBackConflict, WriteBackRefused, ChangedSinceApproval, NotApproved, Cancelled, Unsupported,
};
for (const [name, Class] of Object.entries(classes)) hidden(Class.prototype, "name", name);
// Of what a workflow throws itself; the engine's failures bring their own.
hidden(LaufwerkError.prototype, "code", "workflow_failed");

const details = new WeakMap<object, Pick<Failure, "option" | "hint" | "fields">>();

/** A failure that the engine or the host's rules reported, as the class that a workflow catches. */
export function toError(failure: Failure): LaufwerkError {
  const Class = Object.hasOwn(classes, failure.class) ? classes[failure.class]! : LaufwerkError;
  const error = new Class(failure.message);
  Object.defineProperty(error, "code", { value: failure.code, enumerable: true });
  for (const [name, value] of Object.entries(failure.fields ?? {})) {
    if (name === "name" || name === "message" || name === "stack" || name === "code" || name === "__proto__") continue;
    Object.defineProperty(error, name, { value: frozen(value), enumerable: true, configurable: true });
  }
  details.set(error, { option: failure.option, hint: failure.hint, fields: failure.fields });
  return error;
}

/** Wrong use of the SDK: an option's path, what was expected, what came. */
export function usage(message: string, option?: string): LaufwerkError {
  return toError({ class: "LaufwerkError", code: "usage", message: option ? `${option}: ${message}` : message, option });
}

export function unsupported(message: string): Unsupported {
  return toError({ class: "Unsupported", code: "unsupported", message }) as Unsupported;
}

/** What the engine is told of an exception that ended the program. */
export function toFailure(error: unknown): Failure {
  if (error instanceof LaufwerkError) {
    const more = details.get(error) ?? {};
    return { class: text(() => error.name, "LaufwerkError"), code: error.code, message: error.message, stack: error.stack ?? "", ...more };
  }
  if (error instanceof Error) {
    const name = text(() => error.name, "Error");
    const message = text(() => error.message, "");
    return { class: name, code: "workflow_failed", message: message === "" ? name : `${name}: ${message}`, stack: text(() => error.stack, "") };
  }
  return { class: "Error", code: "workflow_failed", message: `something that is not an Error was thrown: ${shown(error)}` };
}

/** A value as people read it in an error message. */
export function shown(value: unknown): string {
  switch (typeof value) {
    case "string": return JSON.stringify(value.length > 80 ? `${value.slice(0, 80)}…` : value);
    case "function": return "a function";
    case "symbol": return "a symbol";
    case "bigint": return `${value}n`;
    case "object":
      if (value === null) return "null";
      if (Array.isArray(value)) return value.length === 0 ? "an empty array" : "an array";
      return "an object";
    default: return String(value);
  }
}

export function hidden(object: object, name: PropertyKey, value: unknown): void {
  Object.defineProperty(object, name, { value, enumerable: false, writable: true, configurable: true });
}

export function frozen<T>(value: T): T {
  if (typeof value === "object" && value !== null && !ArrayBuffer.isView(value)) {
    for (const inner of Object.values(value)) frozen(inner);
    Object.freeze(value);
  }
  return value;
}

function text(read: () => unknown, otherwise: string): string {
  try {
    const value = read();
    return typeof value === "string" ? value : otherwise;
  } catch {
    return otherwise;
  }
}
