import { createLocalExecution } from "@laufwerk/execution/local";

// Runs on this machine, with your permissions: an agent works on a copy of the files, but nothing confines it.
export const execution = createLocalExecution({ id: "TARGET_ID", credentials: "codex-subscription" });
