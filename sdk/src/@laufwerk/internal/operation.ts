// Operations as plain data, and the driver that answers the generators which yield them.
//
// The driver runs strands: the workflow is strand "0", item 2 of its second `all` is "0.1.2". The engine delivers one answer
// at a time and waits until nothing can go on: so the order of answers alone decides what the program does.
import { type Cancelled, type Failure, toError, usage } from "@laufwerk/internal/errors";
import { json } from "@laufwerk/internal/check";
import { host } from "@laufwerk/internal/host";

/** One operation of the engine. `decode` makes the program's value out of the engine's. */
export class Op<R> {
  readonly op: string;
  readonly scope: string;
  /** undefined: keyless, told apart by branch and ordinal; "": the one that may stand without a key */
  readonly key: string | undefined;
  readonly args: string;
  readonly at: string;
  readonly decode: (value: any) => R;

  constructor(op: string, where: { scope?: string; key?: string }, args: object, decode: (value: any) => R) {
    this.op = op;
    this.scope = where.scope ?? "";
    this.key = where.key;
    this.args = JSON.stringify(json(args, ""));
    this.at = new Error().stack ?? "";
    this.decode = decode;
  }

  *[Symbol.iterator](): Generator<any, R, any> {
    return yield this;
  }
}

/** Strands side by side. */
export class All {
  constructor(readonly items: readonly unknown[], readonly concurrency: number) {}

  *[Symbol.iterator](): Generator<any, any, any> {
    return yield this;
  }
}

class Strand {
  ordinals = new Map<string, number>();
  groups = 0;
  started = false;
  /** the operation or group that it waits for */
  waiting: string | Group | undefined;
  /** its `all` is ending: the next operation is answered with Cancelled instead of being asked for */
  cancelled = false;

  constructor(readonly id: string, readonly program: Iterator<any, any, any>, readonly group: Group | undefined, readonly index: number) {}
}

class Group {
  results: unknown[];
  live = new Set<Strand>();
  next = 0;
  failed = false;
  failure: unknown;

  constructor(readonly parent: Strand, readonly branch: string, readonly all: All) {
    this.results = new Array(all.items.length).fill(undefined);
  }

  fail(error: unknown): void {
    if (!this.failed) [this.failed, this.failure] = [true, error];
  }
}

type Resume = { strand: Strand; fail?: true; value?: unknown };

export class Driver {
  private ready: Resume[] = [];
  private pending = new Map<string, { strand: Strand; op: Op<unknown> }>();
  private asked = new Set<string>();
  private outcome: ((failed: boolean, value: unknown) => void) | undefined;

  run(program: Iterator<any, any, any>, outcome: (failed: boolean, value: unknown) => void): void {
    this.outcome = outcome;
    this.ready.push({ strand: new Strand("0", program, undefined, 0) });
    this.settle();
  }

  deliver(id: string, error: Failure | undefined, value: unknown): void {
    const asked = this.pending.get(id);
    if (asked === undefined) throw new Error(`an answer came for ${id}, which was not asked for`);
    this.pending.delete(id);
    const { strand, op } = asked;
    strand.waiting = undefined;
    if (error === undefined) {
      this.ready.push({ strand, value: op.decode(value) });
    } else {
      // Whatever failed, the strand unwinds now: what it asks for in its finally blocks is carried out.
      strand.cancelled = false;
      this.ready.push({ strand, fail: true, value: toError(error) });
    }
    this.settle();
  }

  private settle(): void {
    for (let resume = this.ready.shift(); resume !== undefined; resume = this.ready.shift()) this.step(resume);
  }

  private step({ strand, fail, value }: Resume): void {
    if (strand.cancelled && !strand.started) return this.ended(strand, true, cancelled());
    strand.started = true;
    let turn: IteratorResult<any, any>;
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

  private asks(strand: Strand, what: unknown): void {
    if (strand.cancelled && (what instanceof Op || what instanceof All)) {
      strand.cancelled = false;
      throw cancelled();
    }
    if (what instanceof Op) this.call(strand, what);
    else if (what instanceof All) this.fork(strand, what);
    else throw usage("a workflow may only yield operations: write `yield*` before Session.ask and the like, and use no promises");
  }

  private call(strand: Strand, op: Op<unknown>): void {
    const name = encodeURIComponent;
    let id: string, ordinal = 0;
    if (op.key === undefined) {
      const kind = `${op.op}:${name(op.scope)}`;
      ordinal = strand.ordinals.get(kind) ?? 0;
      strand.ordinals.set(kind, ordinal + 1);
      id = `${kind}@${strand.id}#${ordinal}`;
    } else {
      // Session.run opens a session too: both take from one set of names.
      const kind = op.op === "session.run" ? "session.open" : op.op;
      const identity = `${kind}:${name(op.scope)}:${name(op.key)}`;
      if (this.asked.has(identity)) throw usage(duplicate(op));
      this.asked.add(identity);
      id = `${op.op}:${name(op.scope)}:${name(op.key)}`;
    }
    this.pending.set(id, { strand, op });
    strand.waiting = id;
    // The arguments were made canonical when the operation was described; they are not parsed and printed once more.
    const call = JSON.stringify({
      op: op.op, ...(op.scope && { scope: op.scope }), ...(op.key && { key: op.key }), branch: strand.id, ...(ordinal && { ordinal }), at: op.at,
    });
    host.post(`{"type":"call","id":${JSON.stringify(id)},"call":${call.slice(0, -1)},"args":${op.args}}}`);
  }

  private fork(strand: Strand, all: All): void {
    const group = new Group(strand, `${strand.id}.${strand.groups++}`, all);
    strand.waiting = group;
    if (all.items.length === 0) return this.join(group);
    while (group.next < all.items.length && group.live.size < all.concurrency) this.begin(group);
  }

  private begin(group: Group): void {
    const index = group.next++;
    const item = group.all.items[index] as any;
    const program: Iterator<any, any, any> = item instanceof Op || item instanceof All ? item[Symbol.iterator]() : item;
    const strand = new Strand(`${group.branch}.${index}`, program, group, index);
    group.live.add(strand);
    this.ready.push({ strand });
  }

  private ended(strand: Strand, failed: boolean, value: unknown): void {
    const group = strand.group;
    if (group === undefined) return this.outcome!(failed, value);
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

  private join(group: Group): void {
    const parent = group.parent;
    parent.waiting = undefined;
    if (group.failed) {
      parent.cancelled = false;
      this.ready.push({ strand: parent, fail: true, value: group.failure });
    } else {
      this.ready.push({ strand: parent, value: group.results });
    }
  }

  /** Ends the strands of a group that failed: what is in flight is cancelled in the engine, which answers all the same. */
  private cancel(group: Group): void {
    const ids: string[] = [];
    const visit = (g: Group) => {
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
}

function cancelled(): Cancelled {
  return toError({ class: "Cancelled", code: "cancelled", message: "a sibling of this branch failed, so it was cancelled" }) as Cancelled;
}

function duplicate(op: Op<unknown>): string {
  const calls: { [op: string]: string } = {
    "workspace.open": "Workspace.open", "workspace.writeBack": "Workspace.writeBack", "session.open": "Session.open", "session.run": "Session.run",
    "session.ask": "ask", "session.exec": "exec", "human": "Human.confirm, text or select", "human.notify": "Human.notify", "host.exec": "Host.exec", "clock.sleep": "Clock.sleep",
  };
  const what = calls[op.op] ?? op.op;
  if (op.key === "") return `${what} was called twice without a key: give each call a \`key\` of its own`;
  const within = op.scope === "" ? "this run" : `session "${op.scope}"`;
  const closed = op.op === "session.open" || op.op === "session.run" ? ", also not that of a closed session" : "";
  return `${what} was called twice with the key "${op.key}" in ${within}: a key names one operation and is never used again${closed}`;
}
