package local_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/testkit"
)

// What each library's schemas of the input and of an agent's answer look like. The types that they infer are checked below.
var libraries = map[string]string{
	"zod": `import * as z from "zod";
const input = z.object({ issue: z.string().min(1), limits: z.object({ turns: z.number().int().positive() }) });
const answer = z.object({ sure: z.number().min(0).max(1), reasons: z.array(z.string()) });`,
	"valibot": `import * as v from "valibot";
import { toStandardJsonSchema } from "@valibot/to-json-schema";
const input = toStandardJsonSchema(v.object({ issue: v.pipe(v.string(), v.minLength(1)), limits: v.object({ turns: v.pipe(v.number(), v.integer(), v.minValue(1)) }) }));
const answer = toStandardJsonSchema(v.object({ sure: v.pipe(v.number(), v.minValue(0), v.maxValue(1)), reasons: v.array(v.string()) }));`,
	"arktype": `import { type } from "arktype";
const input = type({ issue: "string >= 1", limits: { turns: "number.integer >= 1" } });
const answer = type({ sure: "0 <= number <= 1", reasons: "string[]" });`,
}

const libraryWorkflow = `
import { defineWorkflow, Session, Workspace } from "@laufwerk/sdk";
import { agent, execution } from "../../execution";
SCHEMAS

type Is<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
function is<_ extends true>(): void {}

export const workflow = defineWorkflow({
  name: "NAME",
  input,
  output: answer,
  *run({ issue, limits }) {
    is<Is<typeof issue, string>>();
    is<Is<typeof limits.turns, number>>();
    const workspace = yield* Workspace.open({ source: "sub", execution });
    const judged = yield* Session.run({ key: "judge", agent, workspace, prompt: issue, output: answer });
    is<Is<typeof judged.sure, number>>();
    is<Is<typeof judged.reasons, string[]>>();
    return { sure: judged.sure, reasons: [...judged.reasons, String(limits.turns)] };
  },
});
`

func TestSchemasOfLibraries(t *testing.T) {
	t.Parallel()
	modules := testkit.SchemaLibraries(t)
	tsc := testkit.TypeScript(t)
	w := e2e.NewMachine(t)
	w.Env = append(w.Env, "LAUFWERK_SCRIPT_CONFIG_TIME=10m", "LAUFWERK_SCRIPT_STEP_TIME=10m") // on a busy machine a large library takes seconds
	if err := os.CopyFS(filepath.Join(w.Project, "laufwerk/node_modules"), os.DirFS(modules)); err != nil {
		t.Fatal(err)
	}
	w.WriteFile(filepath.Join(w.Project, "laufwerk/execution.ts"), `
import { createLocalExecution } from "@laufwerk/execution/local";
import { createCommand } from "@laufwerk/sdk/harness/command";
export const execution = createLocalExecution();
export const agent = execution.agent({ harness: createCommand({ command: ["bash", "-c", "head -n 1 | bash"] }) });
`)
	for name, schemas := range libraries {
		w.WriteWorkflow(name, strings.NewReplacer("SCHEMAS", schemas, "NAME", name).Replace(libraryWorkflow))
	}
	if code, _, errs := w.Run(nil, "types"); code != 0 {
		t.Fatal(errs)
	}
	if out, err := exec.Command(tsc, "-p", filepath.Join(w.Project, "laufwerk"), "--skipLibCheck").CombinedOutput(); err != nil {
		t.Errorf("the types are not inferred: %v\n%s", err, out)
	}
	for name := range libraries {
		t.Run(name, func(t *testing.T) {
			input := func(issue, turns string) string { return `{"issue":` + issue + `,"limits":{"turns":` + turns + `}}` }
			fine := `"echo '{\"sure\":0.5,\"reasons\":[\"a\"]}'"`
			if code, out, errs := w.Run(nil, "run", name, "--no-input", "--input", input(fine, "7")); code != 0 || strings.TrimSpace(out) != `{"reasons":["a","7"],"sure":0.5}` {
				t.Errorf("exit %d\n%s%s", code, out, errs)
			}
			for input, place := range map[string]string{
				input(fine, "0"): "limits.turns: ",
				input(`""`, "1"): "issue: ",
				`{"issue":"x"}`:  `missing: "limits"`,
			} {
				code, out, _ := w.Run(nil, "run", name, "--no-input", "--input", input, "--json")
				if e := problem(t, out); code != 2 || !strings.Contains(e.Message, place) {
					t.Errorf("input %s: exit %d, %s %q; want the place %q", input, code, e.Code, e.Message, place)
				}
			}
			code, out, _ := w.Run(nil, "run", name, "--no-input", "--input", input(`"echo '{\"sure\":2,\"reasons\":[]}'"`, "1"), "--json")
			if e := problem(t, out); code != 7 || e.Code != "output_invalid" || !strings.Contains(e.Message, "sure: ") {
				t.Errorf("a wrong answer: exit %d, %s %q", code, e.Code, e.Message)
			}
		})
	}
}

type failed struct{ Code, Message string }

func problem(t *testing.T, document string) failed {
	t.Helper()
	var d struct{ Error failed }
	if err := json.Unmarshal([]byte(document), &d); err != nil {
		t.Fatalf("%v\n%s", err, document)
	}
	return d.Error
}
