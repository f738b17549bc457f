import { notBuilt } from "@laufwerk/internal/unbuilt";

/** Removes closed session files of a terminal run. */
export function pruneExecutionRun(executionId: string): Promise<void> {
  return notBuilt("pruneExecutionRun", "a terminal run's files are removed by `laufwerk runs prune`", executionId);
}
