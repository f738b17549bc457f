import { createDockerExecution } from "@laufwerk/execution/docker";

// Runs in containers of the Docker engine of this machine, one for each session. "laufwerk prepare docker" makes their image.
export const execution = createDockerExecution({
  id: "TARGET_ID",
  credentials: "codex-subscription",
  resources: {
    cpus: 2,
    memoryBytes: 4 * 1024 ** 3,
    swapBytes: 0,
    pids: 512,
  },
});
