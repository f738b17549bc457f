// What the isolate's host offers. The binary's prelude defines it; only strings cross the boundary.
interface Host {
  /** Sends one protocol message to the engine, as JSON. */
  post(message: string): void;
  /** Asks the host's one set of rules: answers `{value}` or `{error}`, as JSON. */
  validate(subject: string, value: string): string;
  /** Lets the host call the program: its entry points take and return JSON. */
  attach(program: Program): void;
}

export interface Program {
  /** Starts what the start message asks for. */
  start(request: string): void;
  /** Delivers one answer of the engine. */
  deliver(answer: string): void;
  /** How an error crosses the boundary. */
  failure(error: unknown): string;
}

export const host: Host = (globalThis as any)[Symbol.for("laufwerk.host")];
