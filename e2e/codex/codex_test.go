package codex_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/testkit"
)

// The real Codex, through the whole product, against a model server on loopback.

func TestCodexFixesAnIssue(t *testing.T) {
	check := testkit.ShellWith(map[string]any{"cmd": "go test ./...", "yield_time_ms": 30000})
	w := e2e.NewCodexMachine(t, testkit.Think("Let me see it fail.", check), testkit.Patch(e2e.FixPatch), check, testkit.Say("It was the comment."), testkit.Say(`{"sure":0.9}`))
	own, err := os.ReadFile(filepath.Join(w.Dir, ".codex/auth.json"))
	if err != nil {
		t.Fatal(err)
	}

	input := `{"issue":"Parse drops the last field when the line ends in a comment","check":"go test ./..."}`
	code, out, errs := w.Run(nil, "run", "issue-to-fix", "--no-input", "--input", input)
	if code != 8 {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	w.CheckNoSecret(out, errs)
	run := w.ListRuns()[0].ID
	diff := w.MustRun([]int{0}, "diff", run)
	if !strings.Contains(diff, "-	if comment != \"\" {") {
		t.Errorf("the difference:\n%s", diff)
	}
	code, out, errs = w.Run(nil, "answer", run, "write-back", "yes", "--json")
	if code != 0 {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	for _, want := range []string{`"before":1`, `"after":0`, `"said":"It was the comment."`, `"sure":0.9`, `"fields.go"`} {
		if !strings.Contains(strings.ReplaceAll(out, " ", ""), strings.ReplaceAll(want, " ", "")) {
			t.Errorf("the value has no %s:\n%s", want, out)
		}
	}
	want := e2e.SourceBefore()
	want["go.mod"], want["fields.go"], want["fields_test.go"] = "module example.com/fields\n\ngo 1.22\n", e2e.FixedGo, e2e.GoTest
	w.CheckSource(want)

	sent := w.Model.Requests("")
	if len(sent) != 5 || len(w.Model.Threads()) != 1 {
		t.Fatalf("%d requests, threads %v", len(sent), w.Model.Threads())
	}
	if !strings.Contains(sent[1].Raw, "FAIL") || !strings.Contains(sent[3].Raw, "ok") {
		t.Errorf("the agent did not see the test fail and then succeed:\n%v\n%v", e2e.LastInput(sent[1]), e2e.LastInput(sent[3]))
	}
	for i, r := range sent {
		if r.Auth != "Bearer "+w.Secrets[1] {
			t.Errorf("request %d came with %q", i, r.Auth)
		}
	}
	if now, err := os.ReadFile(filepath.Join(w.Dir, ".codex/auth.json")); err != nil || string(now) != string(own) {
		t.Errorf("the user's own login was changed: %v", err)
	}
	if entries, _ := os.ReadDir(filepath.Join(w.Dir, ".codex")); len(entries) != 1 {
		t.Errorf("the user's own home of Codex was used: %v", entries)
	}
	show := w.MustRun([]int{0}, "runs", "show", run, "--json")
	if !strings.Contains(show, fmt.Sprint(4*testkit.InputTokens)) {
		t.Errorf("the usage of the turn is not shown:\n%s", show)
	}
	logs := w.MustRun([]int{0}, "runs", "logs", run)
	for _, want := range []string{"go test ./...", "update ", "It was the comment."} {
		if !strings.Contains(logs, want) {
			t.Errorf("the log does not tell %q:\n%s", want, logs)
		}
	}
	w.CheckNoSecret(out, errs, show, logs, diff)
	w.MustRun([]int{0}, "cleanup", "--all", "--discard-changes")
	w.CheckNothingLeft()
	w.CheckNoSecret()
}

// What cannot be is said where the agent is made, before anything runs.
func TestCodexAgentsThatAreRefused(t *testing.T) {
	t.Parallel()
	w := e2e.NewMachine(t)
	for _, c := range []struct{ target, agent, says string }{
		{`{}`, `{ harness: createCodex() }`, "give its constructor `credentials: \"codex-subscription\"`"},
		{`{ credentials: "claude-subscription" }`, `{ harness: createCodex() }`, "credentials"},
		{`{ credentials: "codex-subscription" }`, `{ harness: createCodex({ reasoningEffort: "lots" }) }`, "reasoningEffort: expected"},
		{`{ credentials: "codex-subscription" }`, `{ harness: createCodex({ config: { "mcp_servers.x.command": "sh" } }) }`, "config.mcp_servers.x.command: is refused"},
		{`{ credentials: "codex-subscription" }`, `{ harness: createCodex(), activeTools: ["x"] }`, "activeTools: the tools of Codex cannot be selected"},
		{`{ credentials: "codex-subscription", env: { OPENAI_API_KEY: "sk" } }`, `{ harness: createCodex() }`, "never fall back to billing"},
	} {
		w.WriteFile(filepath.Join(w.Project, "laufwerk/execution.ts"), `import { createLocalExecution } from "@laufwerk/execution/local";
import { createCodex } from "@laufwerk/sdk/harness/codex";
export const execution = createLocalExecution(`+c.target+`);
execution.agent(`+c.agent+`);
`)
		code, out, errs := w.Run(nil, "run", "job", "--no-input")
		if code != 3 || !strings.Contains(errs, c.says) {
			t.Errorf("%s %s: exit %d, want 3 and %q\n%s%s", c.target, c.agent, code, c.says, out, errs)
		}
	}
}
