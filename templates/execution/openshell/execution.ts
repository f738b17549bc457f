import { createOpenShellExecution } from "@laufwerk/execution/openshell";
import { policy } from "./openshell/policy";

// Runs in sandboxes of the OpenShell gateway of this machine that is registered as "laufwerk-local", one for each session.
// "laufwerk provision openshell" gives the gateway your Codex login, "laufwerk prepare openshell" makes the image of the sandboxes.
export const execution = createOpenShellExecution({
  id: "TARGET_ID",
  gateway: "laufwerk-local",
  credentials: { kind: "codex-subscription", provider: "laufwerk-codex" },
  policy,
  resources: { cpus: 2, memoryBytes: 4 * 1024 ** 3 },
});
