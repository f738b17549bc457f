// Checks of the shapes of options, with the path of what is wrong.
import { shown, unsupported, usage } from "@laufwerk/internal/errors";

export type Check = (value: unknown, path: string) => unknown;

/** The options object of a function: required and optional names, each with its check. Unknown names get a suggestion. */
export function options(what: string, value: unknown, required: { [name: string]: Check }, optional: { [name: string]: Check } = {}): any {
  if (!isRecord(value)) throw usage(`${what} expects an object with options, got ${shown(value)}`);
  const known = [...Object.keys(required), ...Object.keys(optional)];
  for (const name of Object.keys(value)) {
    if (!known.includes(name)) throw usage(`${what} has no such option${suggestion(name, known)}`, name);
  }
  const out: { [name: string]: unknown } = {};
  for (const name of Object.keys(required)) {
    if (value[name] === undefined) throw usage(`${what} needs this option`, name);
    out[name] = required[name]!(value[name], name);
  }
  for (const name of Object.keys(optional)) {
    if (value[name] !== undefined) out[name] = optional[name]!(value[name], name);
  }
  return out;
}

export function suggestion(name: string, known: readonly string[]): string {
  let best = "", distance = Math.max(2, Math.floor(name.length / 3)) + 1;
  for (const candidate of known) {
    const d = editDistance(name.toLowerCase(), candidate.toLowerCase());
    if (d < distance) [best, distance] = [candidate, d];
  }
  if (best !== "") return `; did you mean \`${best}\`?`;
  return known.length === 0 ? "" : `; there are ${known.map(k => `\`${k}\``).join(", ")}`;
}

function editDistance(a: string, b: string): number {
  if (a.length > 64 || b.length > 64) return 64;
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      next[j] = Math.min(next[j - 1]! + 1, row[j]! + 1, row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1));
    }
    row = next;
  }
  return row[b.length]!;
}

export function isRecord(value: unknown): value is { [name: string]: unknown } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export const string: Check = (value, path) => {
  if (typeof value !== "string") throw usage(`expected a string, got ${shown(value)}`, path);
  if (!value.isWellFormed()) throw usage("expected well-formed text, got a lone surrogate", path);
  return value;
};

export const nonEmpty: Check = (value, path) => {
  if (string(value, path) === "") throw usage("expected a string that is not empty", path);
  return value;
};

/** Keys name operations in journals, commands and on terminals. */
export const key: Check = (value, path) => {
  nonEmpty(value, path);
  if ((value as string).length > 200) throw usage("expected at most 200 characters", path);
  if (/[\u0000-\u001f\u007f-\u009f]/.test(value as string)) throw usage("expected no control characters", path);
  return value;
};

export const boolean: Check = (value, path) => {
  if (typeof value !== "boolean") throw usage(`expected true or false, got ${shown(value)}`, path);
  return value;
};

/** A time in milliseconds. */
export function milliseconds(least: number): Check {
  return (value, path) => {
    if (typeof value !== "number" || !Number.isFinite(value) || value < least || value > Number.MAX_SAFE_INTEGER) {
      throw usage(`expected milliseconds, at least ${least}, got ${shown(value)}`, path);
    }
    return Math.ceil(value);
  };
}

export function oneOf(...values: string[]): Check {
  return (value, path) => {
    if (typeof value !== "string" || !values.includes(value)) {
      throw usage(`expected ${values.map(v => JSON.stringify(v)).join(" or ")}, got ${shown(value)}`, path);
    }
    return value;
  };
}

export function listOf(check: Check, least = 0): Check {
  return (value, path) => {
    if (!Array.isArray(value)) throw usage(`expected an array, got ${shown(value)}`, path);
    if (value.length < least) throw usage(`expected at least ${least} element${least === 1 ? "" : "s"}`, path);
    return Array.from(value, (element, i) => check(element, `${path}[${i}]`));
  };
}

/** A bound on the text of one operation: what is larger belongs into a file. */
export const maxBytes = 16 * 1024 * 1024;

/** Values are `{value}` or `{fromHost}`, whatever the caller wrote: a variable named in place is a literal. */
export const environment: Check = (value, path) => {
  if (!isRecord(value)) throw usage(`expected an object of variables, got ${shown(value)}`, path);
  const out: { [name: string]: unknown } = {};
  for (const [name, entry] of Object.entries(value)) {
    const at = `${path}.${name}`;
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) throw usage("expected a name of letters, digits and _", at);
    if (typeof entry === "string") {
      string(entry, at);
      if (entry.includes("\0")) throw usage("expected no NUL byte", at);
      out[name] = { value: entry };
    } else if (isRecord(entry)) {
      for (const k of Object.keys(entry)) if (k !== "fromHost") throw usage(`an environment value has no such field${suggestion(k, ["fromHost"])}`, `${at}.${k}`);
      out[name] = { fromHost: nonEmpty(entry["fromHost"], `${at}.fromHost`) };
    } else {
      throw usage(`expected a string or { fromHost: "NAME" }, got ${shown(entry)}`, at);
    }
  }
  return out;
};

/** A JSON Schema: as it is, or taken out of a library object. References to other documents are never followed. */
export const schema: Check = (value, path) => {
  if (typeof value !== "object" && typeof value !== "function" || value === null || Array.isArray(value)) {
    throw usage(`expected a JSON Schema object, got ${shown(value)}`, path);
  }
  const standard = (value as any)["~standard"];
  if (standard === undefined) {
    if (typeof value === "function") throw usage("expected a JSON Schema object, got a function", path);
    return json(value, path);
  }
  const convert = standard?.jsonSchema?.output ?? standard?.jsonSchema?.input;
  if (typeof convert !== "function") {
    throw unsupported(`${path}: this schema object does not say its JSON Schema (no \`~standard.jsonSchema\`): write the JSON Schema, or use a library version that implements Standard JSON Schema`);
  }
  return json(convert.call(standard.jsonSchema, { target: "draft-2020-12" }), path);
};

/** The JSON form of a value: own enumerable data only, keys in order of their names. */
export function json(value: unknown, path: string): any {
  return plain(value, path, []);
}

function plain(value: unknown, path: string, above: unknown[]): any {
  switch (typeof value) {
    case "string": return value;
    case "boolean": return value;
    case "number":
      if (!Number.isFinite(value)) throw usage(`expected a JSON value, got ${value}`, path);
      return value;
    case "object": {
      if (value === null) return null;
      if (above.includes(value)) throw usage("expected a JSON value, got an object that contains itself", path);
      if (above.length > 200) throw usage("expected at most 200 levels", path);
      if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) throw usage("expected a JSON value, got bytes", path);
      if (value instanceof Map || value instanceof Set || value instanceof Promise) throw usage(`expected a JSON value, got a ${value.constructor.name}`, path);
      const toJSON = (value as any).toJSON;
      const inner = [...above, value];
      if (typeof toJSON === "function") return plain(toJSON.call(value, ""), path, inner);
      if (Array.isArray(value)) return Array.from(value, (element, i) => element === undefined ? null : plain(element, `${path}[${i}]`, inner));
      const out: { [name: string]: unknown } = {};
      for (const name of Object.keys(value).sort()) {
        const element = (value as any)[name];
        if (element === undefined) continue;
        Object.defineProperty(out, name, { value: plain(element, path === "" ? name : `${path}.${name}`, inner), enumerable: true, writable: true, configurable: true });
      }
      return out;
    }
    default: throw usage(`expected a JSON value, got ${shown(value)}`, path);
  }
}
