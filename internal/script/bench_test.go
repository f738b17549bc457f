package script

import "testing"

// Reading a project, child process included: compare with `node -e 0`.
func BenchmarkEvaluateAConfig(b *testing.B) {
	root := project(b, map[string]string{entry: `
import { defineConfig } from "@laufwerk/sdk";
import { createLocalExecution } from "@laufwerk/execution";
export default defineConfig({ projectId: "demo", executions: [createLocalExecution()] });
`})
	r := testRunner(b)
	for b.Loop() {
		if _, _, err := r.Evaluate(b.Context(), root, entry, EvalOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}
