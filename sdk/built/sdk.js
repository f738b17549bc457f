(() => {
"use strict";
var __defProp = Object.defineProperty;
var __export = (target, all2) => {
  for (var name in all2)
    __defProp(target, name, { get: all2[name], enumerable: true });
};

// laufwerk:@laufwerk/execution
var execution_exports = {};
__export(execution_exports, {
  createDockerExecution: () => createDockerExecution,
  createLocalExecution: () => createLocalExecution,
  loadPreparedCodexImage: () => loadPreparedCodexImage,
  prepareCodexImage: () => prepareCodexImage
});

// laufwerk:@laufwerk/execution/local
var local_exports = {};
__export(local_exports, {
  createLocalExecution: () => createLocalExecution
});

// laufwerk:@laufwerk/internal/errors
var LaufwerkError = class extends Error {
};
var AgentFailed = class extends LaufwerkError {
};
var CommandTimeout = class extends LaufwerkError {
};
var OutputTooLarge = class extends LaufwerkError {
};
var OutputInvalid = class extends LaufwerkError {
};
var OutcomeUnknown = class extends LaufwerkError {
};
var SessionLost = class extends LaufwerkError {
};
var WorkspaceLost = class extends LaufwerkError {
};
var WorkspaceBusy = class extends LaufwerkError {
};
var CloseFailed = class extends LaufwerkError {
};
var WriteBackConflict = class extends LaufwerkError {
};
var WriteBackRefused = class extends LaufwerkError {
};
var ChangedSinceApproval = class extends LaufwerkError {
};
var NotApproved = class extends LaufwerkError {
};
var Cancelled = class extends LaufwerkError {
};
var Unsupported = class extends LaufwerkError {
};
var classes = {
  LaufwerkError,
  AgentFailed,
  CommandTimeout,
  OutputTooLarge,
  OutputInvalid,
  OutcomeUnknown,
  SessionLost,
  WorkspaceLost,
  WorkspaceBusy,
  CloseFailed,
  WriteBackConflict,
  WriteBackRefused,
  ChangedSinceApproval,
  NotApproved,
  Cancelled,
  Unsupported
};
for (const [name, Class] of Object.entries(classes)) hidden(Class.prototype, "name", name);
hidden(LaufwerkError.prototype, "code", "workflow_failed");
var details = /* @__PURE__ */ new WeakMap();
function toError(failure) {
  const Class = Object.hasOwn(classes, failure.class) ? classes[failure.class] : LaufwerkError;
  const error = new Class(failure.message);
  Object.defineProperty(error, "code", { value: failure.code, enumerable: true });
  for (const [name, value] of Object.entries(failure.fields ?? {})) {
    if (name === "name" || name === "message" || name === "stack" || name === "code" || name === "__proto__") continue;
    Object.defineProperty(error, name, { value: frozen(value), enumerable: true, configurable: true });
  }
  details.set(error, { option: failure.option, hint: failure.hint, fields: failure.fields });
  return error;
}
function usage(message, option) {
  return toError({ class: "LaufwerkError", code: "usage", message: option ? `${option}: ${message}` : message, option });
}
function unsupported(message) {
  return toError({ class: "Unsupported", code: "unsupported", message });
}
function toFailure(error) {
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
function shown(value) {
  switch (typeof value) {
    case "string":
      return JSON.stringify(value.length > 80 ? `${value.slice(0, 80)}…` : value);
    case "function":
      return "a function";
    case "symbol":
      return "a symbol";
    case "bigint":
      return `${value}n`;
    case "object":
      if (value === null) return "null";
      if (Array.isArray(value)) return value.length === 0 ? "an empty array" : "an array";
      return "an object";
    default:
      return String(value);
  }
}
function hidden(object, name, value) {
  Object.defineProperty(object, name, { value, enumerable: false, writable: true, configurable: true });
}
function frozen(value) {
  if (typeof value === "object" && value !== null && !ArrayBuffer.isView(value)) {
    for (const inner of Object.values(value)) frozen(inner);
    Object.freeze(value);
  }
  return value;
}
function text(read, otherwise) {
  try {
    const value = read();
    return typeof value === "string" ? value : otherwise;
  } catch {
    return otherwise;
  }
}

// laufwerk:@laufwerk/internal/check
function options(what, value, required, optional = {}) {
  if (!isRecord(value)) throw usage(`${what} expects an object with options, got ${shown(value)}`);
  const known = [...Object.keys(required), ...Object.keys(optional)];
  for (const name of Object.keys(value)) {
    if (!known.includes(name)) throw usage(`${what} has no such option${suggestion(name, known)}`, name);
  }
  const out = {};
  for (const name of Object.keys(required)) {
    if (value[name] === void 0) throw usage(`${what} needs this option`, name);
    out[name] = required[name](value[name], name);
  }
  for (const name of Object.keys(optional)) {
    if (value[name] !== void 0) out[name] = optional[name](value[name], name);
  }
  return out;
}
function suggestion(name, known) {
  let best = "", distance = Math.max(2, Math.floor(name.length / 3)) + 1;
  for (const candidate of known) {
    const d = editDistance(name.toLowerCase(), candidate.toLowerCase());
    if (d < distance) [best, distance] = [candidate, d];
  }
  if (best !== "") return `; did you mean \`${best}\`?`;
  return known.length === 0 ? "" : `; there are ${known.map((k) => `\`${k}\``).join(", ")}`;
}
function editDistance(a, b) {
  if (a.length > 64 || b.length > 64) return 64;
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      next[j] = Math.min(next[j - 1] + 1, row[j] + 1, row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1));
    }
    row = next;
  }
  return row[b.length];
}
function isRecord(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
var string = (value, path) => {
  if (typeof value !== "string") throw usage(`expected a string, got ${shown(value)}`, path);
  if (!value.isWellFormed()) throw usage("expected well-formed text, got a lone surrogate", path);
  return value;
};
var nonEmpty = (value, path) => {
  if (string(value, path) === "") throw usage("expected a string that is not empty", path);
  return value;
};
var key = (value, path) => {
  nonEmpty(value, path);
  if (value.length > 200) throw usage("expected at most 200 characters", path);
  if (/[\u0000-\u001f\u007f-\u009f]/.test(value)) throw usage("expected no control characters", path);
  return value;
};
function milliseconds(least) {
  return (value, path) => {
    if (typeof value !== "number" || !Number.isFinite(value) || value < least || value > Number.MAX_SAFE_INTEGER) {
      throw usage(`expected milliseconds, at least ${least}, got ${shown(value)}`, path);
    }
    return Math.ceil(value);
  };
}
function oneOf(...values) {
  return (value, path) => {
    if (typeof value !== "string" || !values.includes(value)) {
      throw usage(`expected ${values.map((v) => JSON.stringify(v)).join(" or ")}, got ${shown(value)}`, path);
    }
    return value;
  };
}
function listOf(check, least = 0) {
  return (value, path) => {
    if (!Array.isArray(value)) throw usage(`expected an array, got ${shown(value)}`, path);
    if (value.length < least) throw usage(`expected at least ${least} element${least === 1 ? "" : "s"}`, path);
    return Array.from(value, (element, i) => check(element, `${path}[${i}]`));
  };
}
var maxBytes = 16 * 1024 * 1024;
var environment = (value, path) => {
  if (!isRecord(value)) throw usage(`expected an object of variables, got ${shown(value)}`, path);
  const out = {};
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
var schema = (value, path) => {
  if (typeof value !== "object" && typeof value !== "function" || value === null || Array.isArray(value)) {
    throw usage(`expected a JSON Schema object, got ${shown(value)}`, path);
  }
  const standard = value["~standard"];
  if (standard === void 0) {
    if (typeof value === "function") throw usage("expected a JSON Schema object, got a function", path);
    return json(value, path);
  }
  const convert = standard?.jsonSchema?.output ?? standard?.jsonSchema?.input;
  if (typeof convert !== "function") {
    throw unsupported(`${path}: this schema object does not say its JSON Schema (no \`~standard.jsonSchema\`): write the JSON Schema, or use a library version that implements Standard JSON Schema`);
  }
  return json(convert.call(standard.jsonSchema, { target: "draft-2020-12" }), path);
};
function json(value, path) {
  return plain(value, path, []);
}
function plain(value, path, above) {
  switch (typeof value) {
    case "string":
      return value;
    case "boolean":
      return value;
    case "number":
      if (!Number.isFinite(value)) throw usage(`expected a JSON value, got ${value}`, path);
      return value;
    case "object": {
      if (value === null) return null;
      if (above.includes(value)) throw usage("expected a JSON value, got an object that contains itself", path);
      if (above.length > 200) throw usage("expected at most 200 levels", path);
      if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) throw usage("expected a JSON value, got bytes", path);
      if (value instanceof Map || value instanceof Set || value instanceof Promise) throw usage(`expected a JSON value, got a ${value.constructor.name}`, path);
      const toJSON = value.toJSON;
      const inner = [...above, value];
      if (typeof toJSON === "function") return plain(toJSON.call(value, ""), path, inner);
      if (Array.isArray(value)) return Array.from(value, (element, i) => element === void 0 ? null : plain(element, `${path}[${i}]`, inner));
      const out = {};
      for (const name of Object.keys(value).sort()) {
        const element = value[name];
        if (element === void 0) continue;
        Object.defineProperty(out, name, { value: plain(element, path === "" ? name : `${path}.${name}`, inner), enumerable: true, writable: true, configurable: true });
      }
      return out;
    }
    default:
      throw usage(`expected a JSON value, got ${shown(value)}`, path);
  }
}

// laufwerk:@laufwerk/internal/host
var host = globalThis[/* @__PURE__ */ Symbol.for("laufwerk.host")];

// laufwerk:@laufwerk/internal/targets
function validate(subject, value) {
  return answered(host.validate(subject, JSON.stringify(value)));
}
function call(name, args) {
  return answered(host.call(name, JSON.stringify(json(args, ""))));
}
function answered(text2) {
  const answer = JSON.parse(text2);
  if (answer.error !== void 0) throw toError(answer.error);
  return frozen(answer.value);
}
var harnesses = /* @__PURE__ */ new WeakMap();
var agents = /* @__PURE__ */ new WeakMap();
function makeHarness(program, given) {
  const normalised = validate(`harness/${program}`, optionsOf(given));
  const harness = Object.freeze({ program });
  harnesses.set(harness, { program, options: normalised });
  return harness;
}
function makeTarget(kind, given) {
  const definition = validate(`target/${kind}`, optionsOf(given));
  return Object.freeze({
    kind,
    id: definition.id,
    sandbox: definition,
    agent(given2) {
      if (isRecord(given2) && "tools" in given2) {
        throw unsupported("tools: host tools for agents are not supported yet: let the agent use its own, or do the work between turns in the workflow");
      }
      const any = (value, path) => json(value, path);
      const { harness, ...rest } = options(".agent()", given2, { harness: harnessOf }, { id: any, instructions: any, permissionMode: any, skills: any, activeTools: any });
      const agent = validate("agent", { ...rest, harness, target: definition });
      const handle = Object.freeze({ id: agent.id });
      agents.set(handle, agent);
      return handle;
    }
  });
}
function cacheDirectory(given) {
  const directory = isRecord(given) ? given["imageCacheDirectory"] : void 0;
  return typeof directory === "string" && /^[^/~]/.test(directory) ? { ...given, imageCacheDirectory: `${host.root}/${directory}` } : given;
}
function optionsOf(given) {
  if (given === void 0) return {};
  if (!isRecord(given)) throw usage(`expected an object with options, got ${shown(given)}`);
  return json(given, "");
}
function harnessOf(value, path) {
  const harness = isRecord(value) ? harnesses.get(value) : void 0;
  if (harness === void 0) throw usage(`expected a value of createCommand, createCodex or createClaudeCode, got ${shown(value)}`, path);
  return harness;
}
function agentOf(value, path) {
  const agent = isRecord(value) ? agents.get(value) : void 0;
  if (agent === void 0) throw usage(`expected an agent that a target's .agent() made, got ${shown(value)}`, path);
  return agent;
}
function definitionOf(value, path) {
  const d = isRecord(value) ? value["sandbox"] : void 0;
  if (!isRecord(d) || typeof d["kind"] !== "string" || typeof d["id"] !== "string" || typeof d["fingerprint"] !== "string") {
    throw usage(`expected an execution target that a constructor such as createLocalExecution made, got ${shown(value)}`, path);
  }
  return json(d, path);
}

// laufwerk:@laufwerk/execution/local
function createLocalExecution(options2) {
  return makeTarget("local", options2);
}

// laufwerk:@laufwerk/execution/docker
var docker_exports = {};
__export(docker_exports, {
  createDockerExecution: () => createDockerExecution,
  loadPreparedCodexImage: () => loadPreparedCodexImage,
  prepareCodexImage: () => prepareCodexImage,
  prepareDockerCodex: () => prepareDockerCodex
});
var loaded = /* @__PURE__ */ new Map();
function createDockerExecution(options2) {
  if (!isRecord(options2)) return makeTarget("docker", options2);
  if ("prepared" in options2) throw usage("there is no such option; pass the result of loadPreparedCodexImage as `image`", "prepared");
  const { image, ...others } = cacheDirectory(options2);
  const prepared = typeof image === "string" ? loaded.get(image) : void 0;
  return makeTarget("docker", { ...others, ...prepared === void 0 ? { image } : { prepared } });
}
function prepareDockerCodex(options2) {
  return ask("prepareDockerCodex", options2 ?? {}, {}, { image: plain2, cacheDirectory: plain2, resources: plain2, signal: abortSignal });
}
function prepareCodexImage(options2) {
  return ask("prepareCodexImage", options2, { image: plain2, manifestPath: plain2 }, { resources: plain2, signal: abortSignal });
}
function loadPreparedCodexImage(manifestPath, expectedBaseId, signal) {
  const given = { manifestPath, ...expectedBaseId !== void 0 && { expectedBaseId }, ...signal !== void 0 && { signal } };
  const answer = ask("loadPreparedCodexImage", given, { manifestPath: nonEmpty }, { expectedBaseId: nonEmpty, signal: abortSignal });
  return answer.then((found) => {
    loaded.set(found.image, found);
    return found.image;
  });
}
var plain2 = (value, path) => json(value, path);
var abortSignal = (value, path) => {
  if (!isRecord(value) || typeof value["throwIfAborted"] !== "function") throw usage(`expected an AbortSignal, got ${shown(value)}`, path);
  return value;
};
function ask(name, given, required, optional) {
  const { signal, ...args } = options(name, given, required, optional);
  if (signal?.aborted) return Promise.reject(signal.reason);
  try {
    return Promise.resolve(call(name, args));
  } catch (error) {
    if (error instanceof LaufwerkError && (error.code === "usage" || error.code === "unsupported")) throw error;
    return Promise.reject(error);
  }
}

// laufwerk:@laufwerk/execution/internal
var internal_exports = {};
__export(internal_exports, {
  pruneExecutionRun: () => pruneExecutionRun
});

// laufwerk:@laufwerk/internal/unbuilt
function notBuilt(what, why, ..._given) {
  throw unsupported(`${what} is not part of this build: ${why}`);
}

// laufwerk:@laufwerk/execution/internal
function pruneExecutionRun(executionId) {
  return notBuilt("pruneExecutionRun", "a terminal run's files are removed by `laufwerk runs prune`", executionId);
}

// laufwerk:@laufwerk/execution/openshell
var openshell_exports = {};
__export(openshell_exports, {
  createOpenShellExecution: () => createOpenShellExecution
});
function createOpenShellExecution(options2) {
  return makeTarget("openshell", cacheDirectory(options2));
}

// laufwerk:@laufwerk/internal/program
var program_exports = {};
__export(program_exports, {
  attach: () => attach
});

// laufwerk:@laufwerk/internal/operation
var Op = class {
  op;
  scope;
  /** undefined: keyless, told apart by branch and ordinal; "": the one that may stand without a key */
  key;
  args;
  at;
  decode;
  constructor(op2, where, args, decode) {
    this.op = op2;
    this.scope = where.scope ?? "";
    this.key = where.key;
    this.args = JSON.stringify(json(args, ""));
    this.at = new Error().stack ?? "";
    this.decode = decode;
  }
  *[Symbol.iterator]() {
    return yield this;
  }
};
var All = class {
  constructor(items, concurrency) {
    this.items = items;
    this.concurrency = concurrency;
  }
  items;
  concurrency;
  *[Symbol.iterator]() {
    return yield this;
  }
};
var Strand = class {
  constructor(id, program, group, index) {
    this.id = id;
    this.program = program;
    this.group = group;
    this.index = index;
  }
  id;
  program;
  group;
  index;
  ordinals = /* @__PURE__ */ new Map();
  groups = 0;
  started = false;
  /** the operation or group that it waits for */
  waiting;
  /** its `all` is ending: the next operation is answered with Cancelled instead of being asked for */
  cancelled = false;
};
var Group = class {
  constructor(parent, branch, all2) {
    this.parent = parent;
    this.branch = branch;
    this.all = all2;
    this.results = new Array(all2.items.length).fill(void 0);
  }
  parent;
  branch;
  all;
  results;
  live = /* @__PURE__ */ new Set();
  next = 0;
  failed = false;
  failure;
  fail(error) {
    if (!this.failed) [this.failed, this.failure] = [true, error];
  }
};
var Driver = class {
  ready = [];
  pending = /* @__PURE__ */ new Map();
  asked = /* @__PURE__ */ new Set();
  outcome;
  run(program, outcome) {
    this.outcome = outcome;
    this.ready.push({ strand: new Strand("0", program, void 0, 0) });
    this.settle();
  }
  deliver(id, error, value) {
    const asked = this.pending.get(id);
    if (asked === void 0) throw new Error(`an answer came for ${id}, which was not asked for`);
    this.pending.delete(id);
    const { strand, op: op2 } = asked;
    strand.waiting = void 0;
    if (error === void 0) {
      this.ready.push({ strand, value: op2.decode(value) });
    } else {
      strand.cancelled = false;
      this.ready.push({ strand, fail: true, value: toError(error) });
    }
    this.settle();
  }
  settle() {
    for (let resume = this.ready.shift(); resume !== void 0; resume = this.ready.shift()) this.step(resume);
  }
  step({ strand, fail, value }) {
    if (strand.cancelled && !strand.started) return this.ended(strand, true, cancelled());
    strand.started = true;
    let turn;
    try {
      if (fail) {
        if (typeof strand.program.throw !== "function") throw value;
        turn = strand.program.throw(value);
      } else {
        turn = strand.program.next(value);
      }
    } catch (error) {
      return this.ended(strand, true, error);
    }
    if (turn === null || typeof turn !== "object" || turn.done) return this.ended(strand, false, turn?.value);
    try {
      this.asks(strand, turn.value);
    } catch (error) {
      this.ready.push({ strand, fail: true, value: error });
    }
  }
  asks(strand, what) {
    if (strand.cancelled && (what instanceof Op || what instanceof All)) {
      strand.cancelled = false;
      throw cancelled();
    }
    if (what instanceof Op) this.call(strand, what);
    else if (what instanceof All) this.fork(strand, what);
    else throw usage("a workflow may only yield operations: write `yield*` before Session.ask and the like, and use no promises");
  }
  call(strand, op2) {
    const name = encodeURIComponent;
    let id, ordinal = 0;
    if (op2.key === void 0) {
      const kind = `${op2.op}:${name(op2.scope)}`;
      ordinal = strand.ordinals.get(kind) ?? 0;
      strand.ordinals.set(kind, ordinal + 1);
      id = `${kind}@${strand.id}#${ordinal}`;
    } else {
      const kind = op2.op === "session.run" ? "session.open" : op2.op;
      const identity = `${kind}:${name(op2.scope)}:${name(op2.key)}`;
      if (this.asked.has(identity)) throw usage(duplicate(op2));
      this.asked.add(identity);
      id = `${op2.op}:${name(op2.scope)}:${name(op2.key)}`;
    }
    this.pending.set(id, { strand, op: op2 });
    strand.waiting = id;
    const call2 = JSON.stringify({
      op: op2.op,
      ...op2.scope && { scope: op2.scope },
      ...op2.key && { key: op2.key },
      branch: strand.id,
      ...ordinal && { ordinal },
      at: op2.at
    });
    host.post(`{"type":"call","id":${JSON.stringify(id)},"call":${call2.slice(0, -1)},"args":${op2.args}}}`);
  }
  fork(strand, all2) {
    const group = new Group(strand, `${strand.id}.${strand.groups++}`, all2);
    strand.waiting = group;
    if (all2.items.length === 0) return this.join(group);
    while (group.next < all2.items.length && group.live.size < all2.concurrency) this.begin(group);
  }
  begin(group) {
    const index = group.next++;
    const item = group.all.items[index];
    const program = item instanceof Op || item instanceof All ? item[Symbol.iterator]() : item;
    const strand = new Strand(`${group.branch}.${index}`, program, group, index);
    group.live.add(strand);
    this.ready.push({ strand });
  }
  ended(strand, failed, value) {
    const group = strand.group;
    if (group === void 0) return this.outcome(failed, value);
    group.live.delete(strand);
    if (failed) {
      const first = !group.failed;
      group.fail(value);
      if (first) this.cancel(group);
    } else {
      group.results[strand.index] = value;
    }
    if (!group.failed && group.next < group.all.items.length) this.begin(group);
    if (group.live.size === 0 && (group.failed || group.next === group.all.items.length)) this.join(group);
  }
  join(group) {
    const parent = group.parent;
    parent.waiting = void 0;
    if (group.failed) {
      parent.cancelled = false;
      this.ready.push({ strand: parent, fail: true, value: group.failure });
    } else {
      this.ready.push({ strand: parent, value: group.results });
    }
  }
  /** Ends the strands of a group that failed: what is in flight is cancelled in the engine, which answers all the same. */
  cancel(group) {
    const ids = [];
    const visit = (g) => {
      for (const strand of g.live) {
        strand.cancelled = true;
        if (typeof strand.waiting === "string") {
          ids.push(strand.waiting);
        } else if (strand.waiting instanceof Group) {
          strand.waiting.fail(cancelled());
          visit(strand.waiting);
        }
      }
    };
    visit(group);
    if (ids.length > 0) host.post(JSON.stringify({ type: "cancel", ids }));
  }
};
function cancelled() {
  return toError({ class: "Cancelled", code: "cancelled", message: "a sibling of this branch failed, so it was cancelled" });
}
function duplicate(op2) {
  const calls = {
    "workspace.open": "Workspace.open",
    "workspace.writeBack": "Workspace.writeBack",
    "session.open": "Session.open",
    "session.run": "Session.run",
    "session.ask": "ask",
    "session.exec": "exec",
    "human": "Human.confirm, text or select",
    "human.notify": "Human.notify",
    "host.exec": "Host.exec",
    "clock.sleep": "Clock.sleep"
  };
  const what = calls[op2.op] ?? op2.op;
  if (op2.key === "") return `${what} was called twice without a key: give each call a \`key\` of its own`;
  const within = op2.scope === "" ? "this run" : `session "${op2.scope}"`;
  const closed = op2.op === "session.open" || op2.op === "session.run" ? ", also not that of a closed session" : "";
  return `${what} was called twice with the key "${op2.key}" in ${within}: a key names one operation and is never used again${closed}`;
}

// laufwerk:@laufwerk/internal/program
host.describe((error) => JSON.stringify(toFailure(error)));
function attach(module) {
  let driver;
  const program = {
    start(text2) {
      const start = JSON.parse(text2);
      if (start.mode === "workflow") {
        driver = new Driver();
        const workflow = exported(module, start.export || "workflow");
        if (typeof workflow?.run !== "function") throw usage(`the export \`${start.export || "workflow"}\` is not a workflow: make it with defineWorkflow`);
        const generator = workflow.run(start.input);
        if (typeof generator?.next !== "function" || typeof generator?.[Symbol.asyncIterator] === "function") {
          throw usage(`the workflow's run must be a generator function (\`*run(input) { … }\`); calling it gave ${shown(generator)}`);
        }
        driver.run(generator, finish);
        return;
      }
      const value = exported(module, start.export || "default");
      Promise.resolve(start.call ? invoke(value, start) : value).then((result) => finish(false, data(result)), (error) => finish(true, error));
    },
    deliver(text2) {
      const answer = JSON.parse(text2);
      driver.deliver(answer.id, answer.type === "error" ? answer.error : void 0, answer.value);
    }
  };
  host.attach(program);
}
function finish(failed, value) {
  if (!failed) {
    try {
      host.post(JSON.stringify({ type: "done", value: value === void 0 ? null : json(value, "the result") }));
      return;
    } catch (error) {
      value = error;
    }
  }
  host.post(JSON.stringify({ type: "error", error: toFailure(value) }));
}
function invoke(value, start) {
  if (typeof value !== "function") throw usage(`the export \`${start.export || "default"}\` is not a function, but ${shown(value)}`);
  return value(...Array.isArray(start.args) ? start.args : start.args == null ? [] : [start.args]);
}
function exported(module, name) {
  if (!(name in module)) {
    const names = Object.keys(module);
    throw usage(`the module does not export \`${name}\`${name === "default" ? " (write `export default …`)" : ""}; it exports ${names.length === 0 ? "nothing" : names.map((n) => `\`${n}\``).join(", ")}`);
  }
  return module[name];
}
function data(value) {
  const seen = [];
  const strip = (v) => {
    if (typeof v === "function" || typeof v === "symbol") return void 0;
    if (typeof v !== "object" || v === null || typeof v.toJSON === "function") return v;
    if (seen.includes(v)) throw usage("the value contains itself, so it has no JSON form");
    seen.push(v);
    const opaque = ArrayBuffer.isView(v) || v instanceof Map || v instanceof Set || v instanceof Promise;
    const out = opaque ? v : Array.isArray(v) ? v.map(strip) : Object.fromEntries(Object.entries(v).map(([k, e]) => [k, strip(e)]).filter(([, e]) => e !== void 0));
    seen.pop();
    return out;
  };
  return strip(value);
}

// laufwerk:@laufwerk/sandbox
var sandbox_exports = {};
__export(sandbox_exports, {
  createMicrosandbox: () => createMicrosandbox
});
function createMicrosandbox(options2) {
  return notBuilt("createMicrosandbox", "the microsandbox target is not there yet; createLocalExecution of @laufwerk/execution/local is", options2);
}

// laufwerk:@laufwerk/sdk
var sdk_exports = {};
__export(sdk_exports, {
  AgentFailed: () => AgentFailed,
  Cancelled: () => Cancelled,
  ChangedSinceApproval: () => ChangedSinceApproval,
  Clock: () => Clock,
  CloseFailed: () => CloseFailed,
  CommandTimeout: () => CommandTimeout,
  Host: () => Host,
  Human: () => Human,
  LaufwerkError: () => LaufwerkError,
  NotApproved: () => NotApproved,
  OutcomeUnknown: () => OutcomeUnknown,
  OutputInvalid: () => OutputInvalid,
  OutputTooLarge: () => OutputTooLarge,
  Session: () => Session,
  SessionLost: () => SessionLost,
  Unsupported: () => Unsupported,
  Workspace: () => Workspace,
  WorkspaceBusy: () => WorkspaceBusy,
  WorkspaceLost: () => WorkspaceLost,
  WriteBackConflict: () => WriteBackConflict,
  WriteBackRefused: () => WriteBackRefused,
  all: () => all,
  defineConfig: () => defineConfig,
  defineWorkflow: () => defineWorkflow
});
function defineConfig(config) {
  if (!isRecord(config)) throw usage(`defineConfig expects an object with options, got ${shown(config)}`);
  validate("project", plainConfig(config));
  return Object.freeze({ ...config });
}
function plainConfig(config) {
  const described = (target) => isRecord(target) && "sandbox" in target ? { kind: target["kind"], sandbox: target["sandbox"] } : target;
  const plain3 = (value) => Array.isArray(value) ? value.map(described) : described(value);
  return json(Object.fromEntries(Object.entries(config).map(([name, value]) => [name, plain3(value)])), "");
}
function defineWorkflow(definition) {
  const what = "defineWorkflow";
  const { name, input, output } = options(what, definition, {
    name: nonEmpty,
    run(value, path) {
      if (typeof value !== "function") throw usage(`expected a generator function, got ${shown(value)}`, path);
    }
  }, { input: schema, output: schema });
  return Object.freeze({
    name,
    ...input !== void 0 && { input },
    ...output !== void 0 && { output },
    run: (given) => definition.run(given)
  });
}
var Workspace = Object.freeze({
  open(options2) {
    const { key: key2 = "", mode = "copy", include = [], ...rest } = options(
      "Workspace.open",
      options2,
      { source: nonEmpty, execution: definitionOf },
      { mode: oneOf("copy", "direct"), include: listOf(nonEmpty), key }
    );
    return op("workspace.open", { key: key2 }, { ...rest, mode, include }, (value) => frozen({ id: value.id, mode: value.mode }));
  },
  diff(options2) {
    return op("workspace.diff", {}, options("Workspace.diff", options2, { workspace: workspaceOf }), frozen);
  },
  writeBack(options2) {
    const { key: key2 = "", allow = [], workspace } = options(
      "Workspace.writeBack",
      options2,
      { workspace: workspaceOf },
      { key, allow: listOf(nonEmpty) }
    );
    return op("workspace.writeBack", { key: key2 }, { workspace, allow }, frozen);
  }
});
var Session = Object.freeze({
  open(options2) {
    const { key: key2, access = "read-write", ...rest } = options("Session.open", options2, { key, agent: agentOf, workspace: workspaceOf }, { access: accessOf });
    return op("session.open", { key: key2 }, { ...rest, access }, () => session(key2));
  },
  run(options2) {
    const { key: key2, access = "read-write", ...rest } = options(
      "Session.run",
      options2,
      { key, agent: agentOf, workspace: workspaceOf, prompt: promptOf },
      { access: accessOf, output: schema, timeout: timeoutOf }
    );
    return op("session.run", { key: key2 }, { ...rest, access }, frozen);
  }
});
function session(scope) {
  return Object.freeze({
    key: scope,
    ask(options2) {
      const { key: key2, ...rest } = options("ask", options2, { key, prompt: promptOf }, { output: schema, timeout: timeoutOf });
      return op("session.ask", { scope, key: key2 }, rest, frozen);
    },
    exec(options2) {
      const { key: key2, ...rest } = options(
        "exec",
        options2,
        { key, command: nonEmpty },
        { stdin: stdinOf, env: environment, timeout: timeoutOf }
      );
      return op("session.exec", { scope, key: key2 }, rest, frozen);
    },
    readFile(path) {
      return op("session.readFile", { scope }, { path: nonEmpty(path, "path") }, (value) => value === null ? null : Uint8Array.fromBase64(value.base64));
    },
    writeFile(path, bytes) {
      return op("session.writeFile", { scope }, { path: nonEmpty(path, "path"), base64: bytesOf(bytes, "bytes").toBase64() }, nothing);
    },
    close() {
      return op("session.close", { scope }, {}, nothing);
    }
  });
}
var Human = Object.freeze({
  confirm(question) {
    return ask2("Human.confirm", "confirm", question, {}, {});
  },
  text(question) {
    return ask2("Human.text", "text", question, {}, { placeholder: string });
  },
  select(question) {
    return ask2("Human.select", "select", question, { options: choices }, {});
  },
  notify(message) {
    const { key: key2, ...rest } = options("Human.notify", message, { key, title: nonEmpty }, { description: string });
    return op("human.notify", { key: key2 }, rest, nothing);
  }
});
function ask2(what, type, question, required, optional) {
  const { key: key2, ...rest } = options(
    what,
    question,
    { key, title: nonEmpty, ...required },
    { description: string, workspace: workspaceOf, ...optional }
  );
  return op("human", { key: key2 }, { type, ...rest }, frozen);
}
function choices(value, path) {
  const seen = /* @__PURE__ */ new Set();
  return listOf((choice, at) => {
    const out = options("a choice", choice, { value: nonEmpty, label: nonEmpty }, { description: string });
    if (seen.has(out.value)) throw usage(`the value ${shown(out.value)} is there twice`, at);
    seen.add(out.value);
    return out;
  }, 1)(value, path);
}
var Host = Object.freeze({
  exec(options2) {
    const { key: key2, ...rest } = options(
      "Host.exec",
      options2,
      { key, command: listOf(string, 1) },
      { cwd: nonEmpty, env: environment, stdin: stdinOf, timeout: timeoutOf }
    );
    return op("host.exec", { key: key2 }, rest, frozen);
  }
});
var Clock = Object.freeze({
  now() {
    return op("clock.now", {}, {}, (value) => new Date(value));
  },
  sleep(options2) {
    const { key: key2, ...rest } = options("Clock.sleep", options2, { key, duration: milliseconds(0) });
    return op("clock.sleep", { key: key2 }, rest, nothing);
  }
});
function all(items, options2) {
  if (!Array.isArray(items)) throw usage(`all expects an array of operations or generators, got ${shown(items)}`);
  const { concurrency = Infinity } = options("all", options2 ?? {}, {}, {
    concurrency(value, path) {
      if (value !== Infinity && (!Number.isInteger(value) || value < 1)) throw usage(`expected a whole number, at least 1, got ${shown(value)}`, path);
      return value;
    }
  });
  const seen = /* @__PURE__ */ new Set();
  const checked = Array.from(items, (item, i) => {
    if (!(item instanceof Op) && !(item instanceof All) && typeof item?.next !== "function") {
      throw usage(`expected an operation or a generator, got ${typeof item === "function" ? "a function: call it" : shown(item)}`, `items[${i}]`);
    }
    if (!(item instanceof Op) && !(item instanceof All)) {
      if (seen.has(item)) throw usage("this generator is in the list already: call its function once for each item", `items[${i}]`);
      seen.add(item);
    }
    return item;
  });
  return new All(checked, concurrency);
}
function op(name, where, args, decode) {
  return new Op(name, where, args, decode);
}
function nothing() {
}
function workspaceOf(value, path) {
  if (!isRecord(value) || typeof value["id"] !== "string" || value["mode"] !== "copy" && value["mode"] !== "direct") {
    throw usage(`expected the result of Workspace.open, got ${value instanceof Op ? "the operation itself: write `yield*` before it" : shown(value)}`, path);
  }
  return value["id"];
}
var accessOf = oneOf("read-write", "read-only");
var timeoutOf = milliseconds(1);
function promptOf(value, path) {
  nonEmpty(value, path);
  return bounded(value, path);
}
function bounded(value, path) {
  const certain = typeof value === "string" ? value.length : value.byteLength;
  const size = typeof value === "string" && certain * 3 > maxBytes && certain <= maxBytes ? new TextEncoder().encode(value).length : certain;
  if (size > maxBytes) throw usage(`expected at most ${maxBytes} bytes, got ${size}`, path);
  return value;
}
function stdinOf(value, path) {
  if (typeof value === "string") return { text: bounded(string(value, path), path) };
  return { base64: bytesOf(value, path).toBase64() };
}
function bytesOf(value, path) {
  if (typeof value === "string") return new TextEncoder().encode(bounded(string(value, path), path));
  if (!(value instanceof Uint8Array)) throw usage(`expected a Uint8Array or a string, got ${shown(value)}`, path);
  return bounded(value, path);
}

// laufwerk:@laufwerk/sdk/harness
var harness_exports = {};

// laufwerk:@laufwerk/sdk/harness/claude-code
var claude_code_exports = {};
__export(claude_code_exports, {
  createClaudeCode: () => createClaudeCode
});
function createClaudeCode(options2) {
  return notBuilt("createClaudeCode", "the Claude Code harness is not there yet; createCommand of @laufwerk/sdk/harness/command drives an agent program of your own", options2);
}

// laufwerk:@laufwerk/sdk/harness/codex
var codex_exports = {};
__export(codex_exports, {
  createCodex: () => createCodex
});
function createCodex(options2) {
  return makeHarness("codex", options2);
}

// laufwerk:@laufwerk/sdk/harness/command
var command_exports = {};
__export(command_exports, {
  createCommand: () => createCommand
});
function createCommand(options2) {
  return makeHarness("command", options2);
}

// entry
var modules = {};
modules["@laufwerk/execution"] = Object.freeze({ ...execution_exports });
modules["@laufwerk/execution/docker"] = Object.freeze({ ...docker_exports });
modules["@laufwerk/execution/internal"] = Object.freeze({ ...internal_exports });
modules["@laufwerk/execution/local"] = Object.freeze({ ...local_exports });
modules["@laufwerk/execution/openshell"] = Object.freeze({ ...openshell_exports });
modules["@laufwerk/internal/program"] = Object.freeze({ ...program_exports });
modules["@laufwerk/sandbox"] = Object.freeze({ ...sandbox_exports });
modules["@laufwerk/sdk"] = Object.freeze({ ...sdk_exports });
modules["@laufwerk/sdk/harness"] = Object.freeze({ ...harness_exports });
modules["@laufwerk/sdk/harness/claude-code"] = Object.freeze({ ...claude_code_exports });
modules["@laufwerk/sdk/harness/codex"] = Object.freeze({ ...codex_exports });
modules["@laufwerk/sdk/harness/command"] = Object.freeze({ ...command_exports });
Object.defineProperty(globalThis, /* @__PURE__ */ Symbol.for("laufwerk.sdk"), { value: Object.freeze(modules) });
})();
