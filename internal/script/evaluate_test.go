package script

import (
	"testing"
)

func TestEvaluateReadsAConfig(t *testing.T) {
	root := project(t, map[string]string{
		"laufwerk/laufwerk.config.ts": `
import { defineConfig } from "@laufwerk/sdk";
import { execution } from "./execution";
export default defineConfig({ projectId: "demo", executions: [execution] });
`,
		"laufwerk/execution.ts": `
import { createLocalExecution } from "@laufwerk/execution";
export const execution = createLocalExecution({ id: "here" });
`,
	})
	value, bundle, err := testRunner(t).Evaluate(t.Context(), root, "laufwerk/laufwerk.config.ts", EvalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", value)
	if len(bundle.Digest) != 64 || bundle.Code == "" {
		t.Errorf("bundle = %+v", bundle)
	}
}
