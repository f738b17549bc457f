// What a program in the isolate finds beside the engine's own globals. Everything that could tell two evaluations apart
// (time, randomness, garbage collection, threads) is replaced by something that follows from the start message alone.
// The host calls this function once, before any user code; its functions take and return strings, numbers and booleans.
(function (hostPost, hostValidate, hostCall, hostDigest, hostURL, hostLog, hostAttach, seed, begin, root) {
  "use strict";
  const global = globalThis;
  const define = (name, value) => Object.defineProperty(global, name, { value, writable: false, enumerable: false, configurable: false });
  const method = (object, name, value) => Object.defineProperty(object, name, { value, writable: true, enumerable: false, configurable: true });

  for (const name of ["WeakRef", "FinalizationRegistry", "Atomics", "SharedArrayBuffer"]) delete global[name];

  // Time stands still between the engine's answers.
  let now = begin;
  const EngineDate = Date;
  function Date_(...args) {
    if (new.target === undefined) return new EngineDate(now).toString();
    return Reflect.construct(EngineDate, args.length === 0 ? [now] : args, new.target);
  }
  Object.defineProperties(Date_, {
    name: { value: "Date", configurable: true },
    length: { value: 7, configurable: true },
    prototype: { value: EngineDate.prototype, writable: false },
  });
  method(Date_, "now", { now() { return now; } }.now);
  method(Date_, "parse", EngineDate.parse);
  method(Date_, "UTC", EngineDate.UTC);
  Object.defineProperty(EngineDate.prototype, "constructor", { value: Date_, writable: false, enumerable: false, configurable: false });
  define("Date", Object.freeze(Date_));
  define("performance", Object.freeze({ now: () => now - begin, timeOrigin: begin, toJSON: () => ({ timeOrigin: begin }) }));

  // sfc32 over the 128 bits of the seed.
  let a = 0, b = 0, c = 0, d = 1;
  [a, b, c] = [0, 8, 16].map(i => parseInt(seed.slice(i, i + 8), 16) | 0);
  d = parseInt(seed.slice(24, 32), 16) | 0;
  function random32() {
    const t = (a + b | 0) + d | 0;
    d = d + 1 | 0;
    a = b ^ b >>> 9;
    b = c + (c << 3) | 0;
    c = (c << 21 | c >>> 11) + t | 0;
    return t >>> 0;
  }
  for (let i = 0; i < 16; i++) random32();
  method(Math, "random", { random() { return (random32() * 2097152 + (random32() >>> 11)) / 9007199254740992; } }.random);
  Object.freeze(Math);

  function fill(view) {
    if (!ArrayBuffer.isView(view) || view instanceof DataView || view instanceof Float32Array || view instanceof Float64Array) throw new TypeError("getRandomValues expects an integer array");
    const bytes = new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
    if (bytes.length > 65536) throw new RangeError("getRandomValues fills at most 65536 bytes");
    for (let i = 0; i < bytes.length; i++) bytes[i] = random32();
    return view;
  }
  function bytesOf(data) {
    if (data instanceof ArrayBuffer) return new Uint8Array(data);
    if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    throw new TypeError("expected an ArrayBuffer or a view of one");
  }
  define("crypto", Object.freeze({
    getRandomValues: fill,
    randomUUID() {
      const bytes = fill(new Uint8Array(16));
      bytes[6] = bytes[6] & 0x0f | 0x40;
      bytes[8] = bytes[8] & 0x3f | 0x80;
      return bytes.toHex().replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
    },
    subtle: Object.freeze({
      async digest(algorithm, data) {
        const name = typeof algorithm === "string" ? algorithm : algorithm?.name;
        if (String(name).toUpperCase() !== "SHA-256") throw new TypeError(`crypto.subtle.digest knows only SHA-256, not ${String(name)}`);
        return Uint8Array.fromHex(hostDigest(bytesOf(data).toBase64())).buffer;
      },
    }),
  }));

  for (const [name, instead] of [
    ["setTimeout", "a workflow sleeps with `yield* Clock.sleep({ key, duration })`"], ["setInterval", "a workflow sleeps with `yield* Clock.sleep({ key, duration })`"],
    ["setImmediate", "use queueMicrotask"], ["fetch", "a workflow runs a program with Host.exec or a session's exec"],
  ]) {
    define(name, { [name]() { throw new TypeError(`${name} is not there: config and workflows run without timers, files, processes or network; ${instead}`); } }[name]);
  }
  // Libraries name these while they are loaded, for `instanceof`: nothing is ever one of them.
  for (const name of ["Blob", "File", "FormData", "Headers", "Request", "Response"]) {
    define(name, { [name]: class { constructor() { throw new TypeError(`${name} is not there: config and workflows run without files and network`); } } }[name]);
  }
  for (const name of ["clearTimeout", "clearInterval", "clearImmediate"]) define(name, { [name]() {} }[name]);

  define("queueMicrotask", function queueMicrotask(callback) {
    if (typeof callback !== "function") throw new TypeError("queueMicrotask expects a function");
    Promise.resolve().then(() => { callback(); });
  });

  function show(value, depth, seen) {
    if (typeof value === "string") return depth === 0 ? value : JSON.stringify(value);
    if (typeof value === "bigint") return `${value}n`;
    if (typeof value === "symbol") return String(value);
    if (typeof value === "function") return `[function ${value.name || "anonymous"}]`;
    if (typeof value !== "object" || value === null) return Object.is(value, -0) ? "-0" : String(value);
    if (seen.includes(value)) return "[circular]";
    if (value instanceof Error) return value.stack ? `${value}\n${value.stack.trimEnd()}` : String(value);
    if (value instanceof EngineDate) return isNaN(value) ? "Invalid Date" : value.toISOString();
    if (value instanceof RegExp || value instanceof Promise) return value instanceof RegExp ? String(value) : "[promise]";
    if (depth > 4) return Array.isArray(value) ? "[…]" : "{…}";
    const inner = [...seen, value], more = (n, all) => n < all ? [`… ${all - n} more`] : [];
    const list = (values, size) => [...Array.from(values).slice(0, 100).map(v => show(v, depth + 1, inner)), ...more(100, size)].join(", ");
    if (Array.isArray(value) || ArrayBuffer.isView(value) && !(value instanceof DataView)) return `[${list(value, value.length)}]`;
    if (value instanceof Set) return `Set {${list(value, value.size)}}`;
    if (value instanceof Map) return `Map {${[...value].slice(0, 100).map(([k, v]) => `${show(k, depth + 1, inner)} => ${show(v, depth + 1, inner)}`).join(", ")}}`;
    const keys = Object.keys(value);
    const fields = keys.slice(0, 100).map(k => `${/^[A-Za-z_$][\w$]*$/.test(k) ? k : JSON.stringify(k)}: ${show(value[k], depth + 1, inner)}`);
    return fields.length === 0 ? "{}" : `{ ${[...fields, ...more(100, keys.length)].join(", ")} }`;
  }
  const console = {};
  for (const level of ["debug", "error", "info", "log", "warn"]) {
    console[level] = { [level](...values) {
      let text;
      try { text = values.map(v => show(v, 0, [])).join(" "); } catch (error) { text = "[a value that cannot be shown]"; }
      hostLog(level, text.slice(0, 65536));
    } }[level];
  }
  console.trace = console.debug;
  console.assert = (fine, ...values) => { if (!fine) console.error("Assertion failed:", ...values); };
  define("console", Object.freeze(console));

  class TextEncoder {
    get encoding() { return "utf-8"; }
    encode(input = "") {
      const text = String(input);
      const out = new Uint8Array(text.length * 3);
      let n = 0;
      for (let i = 0; i < text.length; i++) {
        const unit = text.charCodeAt(i);
        if (unit < 0x80) { out[n++] = unit; }
        else {
          let point = text.codePointAt(i);
          if (point > 0xffff) i++;
          else if (point >= 0xd800 && point <= 0xdfff) point = 0xfffd;
          if (point < 0x800) { out[n++] = 0xc0 | point >> 6; }
          else if (point < 0x10000) { out[n++] = 0xe0 | point >> 12; out[n++] = 0x80 | point >> 6 & 0x3f; }
          else { out[n++] = 0xf0 | point >> 18; out[n++] = 0x80 | point >> 12 & 0x3f; out[n++] = 0x80 | point >> 6 & 0x3f; }
          out[n++] = 0x80 | point & 0x3f;
        }
      }
      return out.slice(0, n);
    }
    encodeInto(input, into) {
      const bytes = this.encode(input);
      if (bytes.length > into.length) throw new RangeError("encodeInto: the destination is too small");
      into.set(bytes);
      return { read: input.length, written: bytes.length };
    }
  }
  define("TextEncoder", TextEncoder);

  class TextDecoder {
    #fatal; #keepBOM;
    constructor(label = "utf-8", options = {}) {
      if (!/^\s*(utf-?8|unicode-1-1-utf-8)\s*$/i.test(label)) throw new RangeError(`TextDecoder knows only utf-8, not ${label}`);
      this.#fatal = Boolean(options.fatal);
      this.#keepBOM = Boolean(options.ignoreBOM);
    }
    get encoding() { return "utf-8"; }
    get fatal() { return this.#fatal; }
    decode(data = new Uint8Array(0)) {
      const bytes = bytesOf(data), out = [];
      let units = [];
      const bad = () => { if (this.#fatal) throw new TypeError("the bytes are not valid UTF-8"); units.push(0xfffd); };
      for (let i = !this.#keepBOM && bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? 3 : 0; i < bytes.length;) {
        const lead = bytes[i++];
        let need = 0, point = 0, low = 0x80, high = 0xbf;
        if (lead < 0x80) { units.push(lead); }
        else if (lead >= 0xc2 && lead <= 0xdf) [need, point] = [1, lead & 0x1f];
        else if (lead >= 0xe0 && lead <= 0xef) { [need, point] = [2, lead & 0x0f]; if (lead === 0xe0) low = 0xa0; if (lead === 0xed) high = 0x9f; }
        else if (lead >= 0xf0 && lead <= 0xf4) { [need, point] = [3, lead & 0x07]; if (lead === 0xf0) low = 0x90; if (lead === 0xf4) high = 0x8f; }
        else bad();
        if (need > 0) {
          while (need > 0 && i < bytes.length && bytes[i] >= low && bytes[i] <= high) {
            point = point << 6 | bytes[i++] & 0x3f;
            [need, low, high] = [need - 1, 0x80, 0xbf];
          }
          if (need > 0) bad();
          else if (point > 0xffff) units.push(0xd800 + (point - 0x10000 >> 10), 0xdc00 + (point - 0x10000 & 0x3ff));
          else units.push(point);
        }
        if (units.length > 4096) { out.push(String.fromCharCode.apply(null, units)); units = []; }
      }
      out.push(String.fromCharCode.apply(null, units));
      return out.join("");
    }
  }
  define("TextDecoder", TextDecoder);

  define("btoa", function btoa(text) {
    return Uint8Array.from(String(text), ch => {
      const unit = ch.charCodeAt(0);
      if (unit > 0xff || ch.length > 1) throw new RangeError("btoa expects characters up to U+00FF");
      return unit;
    }).toBase64();
  });
  define("atob", text => Array.from(Uint8Array.fromBase64(String(text)), byte => String.fromCharCode(byte)).join(""));

  for (const name of ["dispose", "asyncDispose"]) {
    if (!(name in Symbol)) Object.defineProperty(Symbol, name, { value: Symbol(`Symbol.${name}`) });
  }
  if (!("captureStackTrace" in Error)) {
    method(Error, "captureStackTrace", function captureStackTrace(object) { method(object, "stack", new Error().stack); });
  }
  if (!("fromAsync" in Array)) {
    method(Array, "fromAsync", async function fromAsync(items, map, self) {
      const out = typeof this === "function" ? new this() : [];
      let i = 0;
      if (items[Symbol.asyncIterator] != null || items[Symbol.iterator] != null) {
        for await (const item of items) { out[i] = map ? await map.call(self, item, i) : item; i++; }
      } else {
        for (; i < items.length; i++) { const item = await items[i]; out[i] = map ? await map.call(self, item, i) : item; }
      }
      out.length = i;
      return out;
    });
  }

  define("structuredClone", function structuredClone(value) {
    const copies = new Map();
    const clone = v => {
      if (typeof v === "function" || typeof v === "symbol") throw new TypeError(`structuredClone cannot copy a ${typeof v}`);
      if (typeof v !== "object" || v === null) return v;
      if (copies.has(v)) return copies.get(v);
      const keep = copy => { copies.set(v, copy); return copy; };
      if (Array.isArray(v)) { const copy = keep(new Array(v.length)); for (const k of Object.keys(v)) copy[k] = clone(v[k]); return copy; }
      if (v instanceof EngineDate) return keep(new Date_(v.getTime()));
      if (v instanceof RegExp) return keep(new RegExp(v.source, v.flags));
      if (v instanceof Map) { const copy = keep(new Map()); for (const [k, e] of v) copy.set(clone(k), clone(e)); return copy; }
      if (v instanceof Set) { const copy = keep(new Set()); for (const e of v) copy.add(clone(e)); return copy; }
      if (v instanceof ArrayBuffer) return keep(v.slice(0));
      if (v instanceof DataView) return keep(new DataView(clone(v.buffer), v.byteOffset, v.byteLength));
      if (ArrayBuffer.isView(v)) return keep(new v.constructor(clone(v.buffer), v.byteOffset, v.length));
      if (v instanceof Error) {
        const Class = { EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError }[v.name] ?? Error;
        const copy = keep(Object.create(Class.prototype));
        for (const k of ["message", "stack", "cause"]) if (Object.hasOwn(v, k)) method(copy, k, clone(v[k]));
        return copy;
      }
      if (v instanceof Promise || v instanceof WeakMap || v instanceof WeakSet) throw new TypeError(`structuredClone cannot copy a ${v.constructor.name}`);
      const copy = keep({});
      for (const k of Object.keys(v)) Object.defineProperty(copy, k, { value: clone(v[k]), writable: true, enumerable: true, configurable: true });
      return copy;
    };
    return clone(value);
  });

  class AbortSignal {
    #listeners = new Set(); #aborted = false; #reason;
    onabort = null;
    static #abort(signal, reason) {
      if (signal.#aborted) return;
      signal.#aborted = true;
      signal.#reason = reason;
      const event = { type: "abort", target: signal };
      if (typeof signal.onabort === "function") signal.onabort(event);
      for (const listener of [...signal.#listeners]) typeof listener === "function" ? listener.call(signal, event) : listener.handleEvent(event);
    }
    static {
      define("AbortController", class AbortController {
        #signal = new AbortSignal();
        get signal() { return this.#signal; }
        abort(reason = aborted()) { AbortSignal.#abort(this.#signal, reason); }
      });
    }
    get aborted() { return this.#aborted; }
    get reason() { return this.#reason; }
    throwIfAborted() { if (this.#aborted) throw this.#reason; }
    addEventListener(type, listener) { if (type === "abort" && listener != null) this.#listeners.add(listener); }
    removeEventListener(type, listener) { this.#listeners.delete(listener); }
    static abort(reason = aborted()) { const signal = new AbortSignal(); AbortSignal.#abort(signal, reason); return signal; }
    static any(signals) {
      const out = new AbortSignal();
      for (const signal of signals) {
        if (signal.aborted) { AbortSignal.#abort(out, signal.reason); break; }
        signal.addEventListener("abort", () => AbortSignal.#abort(out, signal.reason));
      }
      return out;
    }
  }
  function aborted() { const error = new Error("the operation was aborted"); method(error, "name", "AbortError"); return error; }
  define("AbortSignal", AbortSignal);

  const decodePart = text => {
    const bytes = [];
    for (const piece of text.replaceAll("+", " ").split(/(%[0-9A-Fa-f]{2})/)) {
      if (/^%[0-9A-Fa-f]{2}$/.test(piece)) bytes.push(parseInt(piece.slice(1), 16));
      else bytes.push(...new TextEncoder().encode(piece));
    }
    return new TextDecoder().decode(Uint8Array.from(bytes));
  };
  const encodePart = text => encodeURIComponent(String(text).toWellFormed()).replace(/[!'()~]/g, ch => `%${ch.charCodeAt(0).toString(16).toUpperCase()}`).replaceAll("%20", "+");
  class URLSearchParams {
    #pairs = [];
    constructor(init = "") {
      if (typeof init === "object" && init !== null) {
        for (const [k, v] of init[Symbol.iterator] ? init : Object.entries(init)) this.#pairs.push([String(k), String(v)]);
      } else {
        for (const part of String(init).replace(/^\?/, "").split("&")) {
          if (part === "") continue;
          const at = part.indexOf("=");
          this.#pairs.push(at < 0 ? [decodePart(part), ""] : [decodePart(part.slice(0, at)), decodePart(part.slice(at + 1))]);
        }
      }
    }
    append(name, value) { this.#pairs.push([String(name), String(value)]); }
    delete(name) { this.#pairs = this.#pairs.filter(([k]) => k !== String(name)); }
    get(name) { return this.#pairs.find(([k]) => k === String(name))?.[1] ?? null; }
    getAll(name) { return this.#pairs.filter(([k]) => k === String(name)).map(([, v]) => v); }
    has(name) { return this.#pairs.some(([k]) => k === String(name)); }
    set(name, value) {
      const at = this.#pairs.findIndex(([k]) => k === String(name));
      if (at < 0) return this.append(name, value);
      this.#pairs = this.#pairs.filter(([k], i) => i <= at || k !== String(name));
      this.#pairs[at][1] = String(value);
    }
    sort() { this.#pairs.sort(([x], [y]) => x < y ? -1 : x > y ? 1 : 0); }
    forEach(each, self) { for (const [k, v] of this.#pairs) each.call(self, v, k, this); }
    get size() { return this.#pairs.length; }
    *keys() { for (const [k] of this.#pairs) yield k; }
    *values() { for (const [, v] of this.#pairs) yield v; }
    *entries() { for (const [k, v] of this.#pairs) yield [k, v]; }
    [Symbol.iterator]() { return this.entries(); }
    toString() { return this.#pairs.map(([k, v]) => `${encodePart(k)}=${encodePart(v)}`).join("&"); }
  }
  define("URLSearchParams", URLSearchParams);

  const parseURL = (url, base) => JSON.parse(hostURL(String(url), base === undefined ? "" : String(base)));
  class URL {
    #parts; #params;
    constructor(url, base) {
      this.#parts = parseURL(url, base);
      if (this.#parts === null) throw new TypeError(`Invalid URL: ${url}`);
      this.#params = new URLSearchParams(this.#parts.search);
    }
    static canParse(url, base) { return parseURL(url, base) !== null; }
    static parse(url, base) { return URL.canParse(url, base) ? new URL(url, base) : null; }
    get searchParams() { return this.#params; }
    toString() { return this.#parts.href; }
    toJSON() { return this.#parts.href; }
    static {
      for (const name of ["href", "origin", "protocol", "username", "password", "host", "hostname", "port", "pathname", "search", "hash"]) {
        Object.defineProperty(URL.prototype, name, { get() { return this.#parts[name]; }, configurable: true });
      }
    }
  }
  define("URL", URL);

  for (const name of ["JSON", "Reflect", "Object", "Array", "Promise", "Symbol", "Error", "Map", "Set", "WeakMap", "Uint8Array", "globalThis", "String", "Number", "Boolean"]) {
    Object.defineProperty(global, name, { writable: false, configurable: false });
  }
  Object.freeze(JSON);

  const attached = {};
  // The SDK's first module says how errors are described; what fails before it is a fault of the bundle.
  let describe = error => JSON.stringify({ class: String(error?.name), code: "internal", message: String(error), stack: String(error?.stack ?? "") });
  Object.defineProperty(global, Symbol.for("laufwerk.host"), {
    value: Object.freeze({
      post: hostPost,
      validate: hostValidate,
      call: hostCall,
      root,
      describe(failure) { describe = failure; },
      attach(program) { Object.assign(attached, program); hostAttach(); },
    }),
  });
  const guarded = call => (text, time) => {
    try {
      call(text, time);
    } catch (error) {
      hostPost(`{"type":"error","error":${describe(error)}}`);
    }
  };
  return {
    load(name, failed) { import(name).then(() => {}, error => failed(describe(error))); },
    start: guarded(text => attached.start(text)),
    deliver: guarded((text, time) => { now = time; attached.deliver(text); }),
  };
})
