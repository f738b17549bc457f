package codex_test

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

// TestCodexFixesABugInCobra: a module of some size, as the module proxy gives it out, with a bug planted in it.
func TestCodexFixesABugInCobra(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "mod", "download", "-json", "github.com/spf13/cobra@v1.10.2").Output()
	var module struct{ Dir string }
	testkit.Need(t, "the module github.com/spf13/cobra", err == nil && json.Unmarshal(out, &module) == nil && module.Dir != "", string(out))

	check := testkit.ShellWith(map[string]any{"cmd": "go test -count=1 -run 'Args' .", "yield_time_ms": 30000})
	patch := "*** Begin Patch\n*** Update File: args.go\n@@ func ExactArgs(n int) PositionalArgs {\n \treturn func(cmd *Command, args []string) error {\n-\t\tif len(args) < n {\n+\t\tif len(args) != n {\n*** End Patch\n"
	w := e2e.NewCodexMachine(t, testkit.Shell("cat args.go"), check, testkit.Patch(patch), check, testkit.Say("ExactArgs took too many."), testkit.Say(`{"sure":1}`))
	for i, kv := range w.Env { // cobra's own modules are needed
		if strings.HasPrefix(kv, "GOPROXY=") || strings.HasPrefix(kv, "GOFLAGS=") {
			w.Env[i] = "LANG=C"
		}
	}
	for _, name := range []string{"go.mod", "fields.go", "fields_test.go"} {
		_ = os.Remove(filepath.Join(w.Project, name))
	}
	if err := os.CopyFS(w.Project, os.DirFS(module.Dir)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("chmod", "-R", "u+w", w.Project).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	args := filepath.Join(w.Project, "args.go")
	whole, err := os.ReadFile(args)
	if err != nil {
		t.Fatal(err)
	}
	broken := strings.Replace(string(whole), "if len(args) != n {", "if len(args) < n {", 1)
	if broken == string(whole) {
		t.Fatal("the bug cannot be planted")
	}
	w.WriteFile(args, broken)
	was := w.ProjectFiles()

	code, stdout, stderr := w.Run(nil, "run", "issue-to-fix", "--no-input", "--input", `{"issue":"ExactArgs takes too many","check":"go test -count=1 -run Args ."}`)
	if code != 8 {
		t.Fatalf("exit %d\n%s%s", code, stdout, stderr)
	}
	diff := w.MustRun([]int{0}, "diff", w.ListRuns()[0].ID)
	if !strings.Contains(diff, "-		if len(args) < n {\n+		if len(args) != n {") || strings.Count(diff, "\n+++") != 1 {
		t.Errorf("the difference:\n%s", diff)
	}
	done := w.MustRun([]int{0}, "answer", w.ListRuns()[0].ID, "write-back", "yes", "--json")
	for _, want := range []string{`"before":1`, `"after":0`} {
		if !strings.Contains(done, want) {
			t.Errorf("no %s in %s", want, done)
		}
	}
	was["args.go"] = string(whole)
	w.CheckSource(was)
	if sent := w.Model.Requests(""); !strings.Contains(sent[2].Raw, "FAIL") || len(sent) != 6 {
		t.Errorf("%d requests; the agent did not see the test fail: %v", len(sent), e2e.LastInput(sent[2]))
	}
	w.MustRun([]int{0}, "cleanup", "--all", "--discard-changes")
	w.CheckNothingLeft()
}
