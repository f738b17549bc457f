package project

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/script"
	"github.com/laufwerk/laufwerk/internal/system"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == script.Argument {
		os.Exit(script.Main(nil, os.Stdin, os.Stdout, rules{}))
	}
	goleak.VerifyTestMain(m)
}

// rules are the project's own, and small ones for a target.
type rules struct{}

func (rules) Validate(subject string, value json.RawMessage) (json.RawMessage, error) {
	switch subject {
	case "project":
		return Validate(value)
	case "target/local":
		var o struct{ ID string }
		if err := json.Unmarshal(value, &o); err != nil {
			return nil, err
		}
		if o.ID == "" {
			o.ID = "local"
		}
		sum := sha256.Sum256(value)
		return json.Marshal(map[string]any{"kind": "local", "id": o.ID, "options": value, "fingerprint": hex.EncodeToString(sum[:])})
	}
	return nil, failure.New(failure.Unsupported, "%s is not part of this build", subject)
}

func runner() *script.Runner { return &script.Runner{Executable: system.Executable()} }

const imports = "import { defineConfig } from \"@laufwerk/sdk\";\nimport { createLocalExecution } from \"@laufwerk/execution\";\n"

func write(t *testing.T, files map[string]string) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	for name, content := range files {
		p := filepath.Join(root, name)
		must(t, os.MkdirAll(filepath.Dir(p), 0o755))
		must(t, os.WriteFile(p, []byte(content), 0o644))
	}
	return root
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestFind(t *testing.T) {
	root := write(t, map[string]string{Config: "", "a/b/file": "", "other/c": ""})
	for name, c := range map[string]struct{ dir, explicit, home, want string }{
		"here":              {root, "", "", root},
		"above":             {root + "/a/b", "", "", root},
		"explicit":          {"/", root, "", root},
		"explicit relative": {root + "/a", "..", "", root},
		"home elsewhere":    {root, "", root + "/a", root},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Find(c.dir, c.explicit, c.home)
			if err != nil || got != c.want {
				t.Errorf("Find = %q, %v; want %q", got, err, c.want)
			}
		})
	}
	for name, c := range map[string]struct {
		dir, explicit, home string
		kind                failure.Kind
		message, hint       string
	}{
		"none":          {t.TempDir(), "", "", failure.ProjectNotFound, "there is no project here", "laufwerk init --execution local"},
		"explicit only": {root, "a", "", failure.ProjectNotFound, "is not a project", "cd " + root + "/a && laufwerk init --execution local"},
		"no directory":  {root, "nosuch", "", failure.ProjectNotFound, root + "/nosuch is not a directory", "laufwerk --help"},
		"inside home":   {root, "", filepath.Dir(root), failure.ProjectInvalid, "is inside laufwerk's own state", "use the project that the run came from"},
		"home itself":   {root, "", root, failure.ProjectInvalid, "is inside laufwerk's own state", "use the project that the run came from"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Find(c.dir, c.explicit, c.home)
			f := failure.As(err)
			if f == nil || f.Kind != c.kind || !strings.Contains(f.Message, c.message) || f.Hint != c.hint {
				t.Errorf("Find = %v (hint %q)", err, failure.As(err).Hint)
			}
		})
	}
}

func TestLoad(t *testing.T) {
	root := write(t, map[string]string{Config: imports + `
export default defineConfig({ projectId: "demo.1", executions: [createLocalExecution(), createLocalExecution({ id: "b" })], concurrency: 2 });`})
	p, err := Load(t.Context(), runner(), root)
	must(t, err)
	if p.Root != root || p.ID != "demo.1" || p.Concurrency != 2 || len(p.Targets) != 2 || p.Targets[1].ID != "b" || p.Targets[1].Kind != "local" || len(p.Bundle) != 64 {
		t.Errorf("project = %+v", p)
	}
	again, err := Load(t.Context(), runner(), root)
	must(t, err)
	if again.Scope != p.Scope || again.Targets[0].Fingerprint != p.Targets[0].Fingerprint {
		t.Errorf("loaded twice: %+v and %+v", p, again)
	}
	clone := write(t, map[string]string{Config: imports + `export default defineConfig({ projectId: "demo.1", executions: [] });`})
	other, err := Load(t.Context(), runner(), clone)
	must(t, err)
	if other.Scope == p.Scope {
		t.Error("two clones with one id have one scope")
	}
}

func TestBadConfigs(t *testing.T) {
	for name, c := range map[string]struct{ config, want string }{
		"bad projectId":    {`defineConfig({ projectId: "a b", executions: [] })`, `:3:16: projectId: expected 1 to 63 letters, digits, '.', '_' or '-', got "a b"`},
		"dots":             {`defineConfig({ projectId: "..", executions: [] })`, `:3:16: projectId: expected 1 to 63 letters, digits, '.', '_' or '-', got ".."`},
		"long projectId":   {`defineConfig({ projectId: "` + strings.Repeat("a", 64) + `", executions: [] })`, `:3:16: projectId: expected 1 to 63 letters, digits, '.', '_' or '-', got "` + strings.Repeat("a", 64) + `"`},
		"no projectId":     {`defineConfig({ executions: [] } as any)`, `:3:16: projectId: defineConfig needs this option: 1 to 63 letters, digits, '.', '_' or '-'`},
		"no executions":    {`defineConfig({ projectId: "a" } as any)`, `:3:16: executions: defineConfig needs this option: an array of execution targets`},
		"duplicate":        {`defineConfig({ projectId: "a", executions: [createLocalExecution(), createLocalExecution({})] })`, ":3:16: executions[1]: executions[0] has the id \"local\" already: give one an `id`, as in createLocalExecution({ id: \"local-2\" })"},
		"unknown key":      {`defineConfig({ projectId: "a", execution: [], executions: [] } as any)`, ":3:16: execution: defineConfig has no such option; did you mean `executions`?"},
		"unknown, targets": {`defineConfig({ projectId: "a", executoins: [createLocalExecution()] } as any)`, ":3:16: executoins: defineConfig has no such option; did you mean `executions`?"},
		"not a target":     {`defineConfig({ projectId: "a", executions: [{ kind: "local" }] } as any)`, `:3:16: executions[0]: expected an execution target that a constructor such as createLocalExecution made, got an object`},
		"not an array":     {`defineConfig({ projectId: "a", executions: createLocalExecution() } as any)`, `:3:16: executions: expected an array of execution targets, got an object`},
		"concurrency":      {`defineConfig({ projectId: "a", executions: [], concurrency: 0.5 })`, `:3:16: concurrency: expected a whole number of live runs, at least 1, got 0.5`},
		"no defineConfig":  {`({ projectId: "a" })`, `: executions: defineConfig needs this option: an array of execution targets`},
		"a number":         {`3`, `: the config is not an object: expected the value of defineConfig, got 3`},
	} {
		t.Run(name, func(t *testing.T) {
			root := write(t, map[string]string{Config: imports + "export default " + c.config + ";"})
			_, err := Load(t.Context(), runner(), root)
			if !failure.Is(err, failure.ProjectInvalid) || err.Error() != Config+c.want {
				t.Errorf("got  %v (%s)\nwant %s", err, failure.KindOf(err), Config+c.want)
			}
		})
	}
}

const header = "import { defineWorkflow } from \"@laufwerk/sdk\";\n"

func loaded(t *testing.T, files map[string]string) *Project {
	t.Helper()
	files[Config] = imports + `export default defineConfig({ projectId: "p", executions: [createLocalExecution()] });`
	p, err := Load(t.Context(), runner(), write(t, files))
	must(t, err)
	return p
}

func TestWorkflows(t *testing.T) {
	p := loaded(t, map[string]string{
		"laufwerk/workflows/issue-to-fix/workflow.ts": header + `export const workflow = defineWorkflow<{ n: number }>({ name: "issue-to-fix", input: { type: "object" }, *run() {} });`,
		"laufwerk/workflows/plain/workflow.ts":        header + `export const workflow = defineWorkflow({ name: "plain", *run() {} });`,
		"laufwerk/workflows/empty/notes.md":           "",
		"laufwerk/workflows/renamed/workflow.ts":      header + `export const workflow = defineWorkflow({ name: "plain", *run() {} });`,
		"laufwerk/workflows/bare/workflow.ts":         `export const workflow = { run: 1 };`,
		"laufwerk/workflows/misspelt/workflow.ts":     header + "export const workflow = defineWorkflow({\n  name: 'misspelt', inputs: {}, *run() {} } as any);",
		"laufwerk/workflows/bad\nname/workflow.ts":    "",
	})
	names, err := Workflows(p.Root)
	must(t, err)
	if got := strings.Join(names, " "); got != "bare issue-to-fix misspelt plain renamed" {
		t.Errorf("workflows = %s", got)
	}
	w, err := p.Workflow(t.Context(), "issue-to-fix")
	must(t, err)
	if w.Name != "issue-to-fix" || string(w.Input) != `{"type":"object"}` || w.Output != nil || w.File != "laufwerk/workflows/issue-to-fix/workflow.ts" || w.Bundle.Code == "" {
		t.Errorf("workflow = %+v", w)
	}
	for name, c := range map[string]struct {
		kind failure.Kind
		want string
	}{
		"issue-to-fux": {failure.NotFound, `there is no workflow "issue-to-fux"; did you mean "issue-to-fix"? The project has: bare, issue-to-fix, misspelt, plain, renamed`},
		"empty":        {failure.NotFound, `there is no workflow "empty". The project has: bare, issue-to-fix, misspelt, plain, renamed`},
		"../plain":     {failure.NotFound, `there is no workflow "../plain". The project has: bare, issue-to-fix, misspelt, plain, renamed`},
		"renamed":      {failure.ProjectInvalid, "laufwerk/workflows/renamed/workflow.ts: its `name` is \"plain\", but its folder is \"renamed\": a workflow has the name of its folder"},
		"bare":         {failure.ProjectInvalid, "laufwerk/workflows/bare/workflow.ts: the export `workflow` is not a workflow: make it with defineWorkflow"},
		"misspelt":     {failure.ProjectInvalid, "laufwerk/workflows/misspelt/workflow.ts:2:25: inputs: defineWorkflow has no such option; did you mean `input`?"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := p.Workflow(t.Context(), name)
			if !failure.Is(err, c.kind) || err.Error() != c.want {
				t.Errorf("got  %v (%s)\nwant %s", err, failure.KindOf(err), c.want)
			}
		})
	}
}

// Modes and owners are looked at by an ordinary user: root may own anything, and may be refused nothing.
func TestProjectsThatOthersCanWriteAreRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making files of several owners needs root; CI is root")
	}
	const nobody, stranger = 65534, 65533
	for name, c := range map[string]struct {
		change func(root string) error
		want   string
	}{
		"own":                 {func(string) error { return nil }, "found"},
		"others can write":    {func(root string) error { return os.Chmod(root, 0o777) }, "everybody can write it (mode 0777)"},
		"config":              {func(root string) error { return os.Chmod(filepath.Join(root, Config), 0o666) }, "everybody can write it (mode 0666)"},
		"folder":              {func(root string) error { return os.Chmod(filepath.Join(root, Dir), 0o757) }, "everybody can write it (mode 0757)"},
		"foreign root":        {func(root string) error { return os.Chown(root, stranger, nobody) }, "it belongs to user 65533, not to nobody"},
		"foreign config":      {func(root string) error { return os.Chown(filepath.Join(root, Config), stranger, nobody) }, "it belongs to user 65533, not to nobody"},
		"root's":              {func(root string) error { return os.Chown(root, 0, 0) }, "found"},
		"foreign group":       {func(root string) error { return chmodGroup(root, stranger) }, "the group 65533 can write it (mode 0775)"},
		"not a private group": {func(root string) error { return chmodGroup(root, nobody) }, "the group nogroup can write it (mode 0775)"},
	} {
		t.Run(name, func(t *testing.T) {
			base, err := os.MkdirTemp("/tmp", "laufwerk-trust-")
			must(t, err)
			t.Cleanup(func() { _ = os.RemoveAll(base) })
			must(t, os.Chmod(base, 0o755))
			root := filepath.Join(base, "p")
			must(t, os.MkdirAll(filepath.Join(root, Dir), 0o755))
			must(t, os.WriteFile(filepath.Join(root, Config), nil, 0o644))
			for _, p := range []string{"", Dir, Config} {
				must(t, os.Chown(filepath.Join(root, p), nobody, nobody))
			}
			must(t, c.change(root))
			if got := asNobody(t, root); !strings.HasSuffix(got, c.want) {
				t.Errorf("found: %s\nwant … %s", got, c.want)
			}
		})
	}
}

func chmodGroup(root string, gid int) error {
	if err := os.Chown(root, -1, gid); err != nil {
		return err
	}
	return os.Chmod(root, 0o775)
}

// asNobody says what Find says to an unprivileged user.
func asNobody(t *testing.T, root string) string {
	t.Helper()
	if at := os.Getenv("LAUFWERK_TEST_FIND"); at != "" {
		t.Fatal("a child started a child")
	}
	exe := filepath.Join(filepath.Dir(root), "test")
	b, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	must(t, os.WriteFile(exe, b, 0o755))
	cmd := exec.CommandContext(context.Background(), "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", exe, "-test.run", "^TestFindAsSomebody$", "-test.v")
	cmd.Env = []string{"LAUFWERK_TEST_FIND=" + root, "PATH=" + os.Getenv("PATH")}
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if _, said, ok := strings.Cut(strings.TrimSpace(line), "FIND: "); ok {
			return said
		}
	}
	t.Fatalf("nothing was said:\n%s", out)
	return ""
}

// The other half of asNobody.
func TestFindAsSomebody(t *testing.T) {
	root := os.Getenv("LAUFWERK_TEST_FIND")
	if root == "" {
		t.Skip("it is run by TestProjectsThatOthersCanWriteAreRefused")
	}
	if _, err := Find(root, "", ""); err != nil {
		t.Logf("FIND: %v", err)
		return
	}
	t.Log("FIND: found")
}

func TestTheFileToEditIsTheOneThatIsWrong(t *testing.T) {
	root := write(t, map[string]string{
		Config:                  `import { defineConfig } from "@laufwerk/sdk"; import { execution } from "./execution"; export default defineConfig({ projectId: "p", executions: [execution] });`,
		"laufwerk/execution.ts": `import { createLocalExecution } from "@laufwerk/execution/local"; export const execution = createLocalExecution({ id: 5 as any });`,
	})
	_, err := Load(t.Context(), runner(), root)
	if want := "${EDITOR:-vi} " + filepath.Join(root, "laufwerk/execution.ts"); err == nil || failure.As(err).Hint != want {
		t.Errorf("Load = %v, want the hint %q", err, want)
	}
}
