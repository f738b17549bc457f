import { notBuilt } from "@laufwerk/internal/unbuilt";

export function createMicrosandbox(options?: object): never {
  return notBuilt("createMicrosandbox", "the microsandbox target is not there yet; createLocalExecution of @laufwerk/execution/local is", options);
}
