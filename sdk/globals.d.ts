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
