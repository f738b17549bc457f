import { unsupported } from "@laufwerk/internal/errors";

/** What a function of a later part of laufwerk does until it is built. */
export function notBuilt(what: string, why: string, ..._given: unknown[]): never {
  throw unsupported(`${what} is not part of this build: ${why}`);
}
