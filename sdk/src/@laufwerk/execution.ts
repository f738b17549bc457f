export { createLocalExecution } from "@laufwerk/execution/local";
export { createDockerExecution, prepareCodexImage, loadPreparedCodexImage } from "@laufwerk/execution/docker";
