// What the isolate's host offers. The binary's prelude defines it; only strings cross the boundary.
interface Host {
  /** Sends one protocol message to the engine, as JSON. */
  post(message: string): void;
  /** Asks the host's one set of rules: answers `{value}` or `{error}`, as JSON. */
  validate(subject: string, value: string): string;
  /** Has the host do something while a module is evaluated, and waits for it: answers as validate does. */
  call(name: string, args: string): string;
  /** The project's root directory, absolute. */
  readonly root: string;
  /** Says how errors cross the boundary, before any user code runs. */
  describe(failure: (error: unknown) => string): void;
  /** Lets the host call the program, once all of its modules are there: its entry points take JSON. */
  attach(program: Program): void;
}

export interface Program {
  /** Starts what the start message asks for. */
  start(request: string): void;
  /** Delivers one answer of the engine. */
  deliver(answer: string): void;
}

export const host: Host = (globalThis as any)[Symbol.for("laufwerk.host")];
