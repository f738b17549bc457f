import { defineConfig } from "@laufwerk/sdk";
import { execution } from "./execution";

export default defineConfig({
  projectId: "PROJECT_ID",
  executions: [execution],
});
