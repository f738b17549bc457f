package scaffold

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/internal/testkit"
)

// TestANewProjectTypeChecks runs the real compiler on what init writes, and on the same with one mistake.
func TestANewProjectTypeChecks(t *testing.T) {
	tsc := testkit.TypeScript(t)
	for name, o := range map[string]Options{
		"codex":   {Execution: "local", Example: true},
		"command": {Execution: "local", Example: true, AgentCommand: []string{"agent", "--fast"}},
		"plain":   {Execution: "local", Target: "own"},

		"docker":         {Execution: "docker", Example: true},
		"docker command": {Execution: "docker", Example: true, AgentCommand: []string{"agent", "--fast"}},
		"docker plain":   {Execution: "docker", Target: "own"},

		"openshell":         {Execution: "openshell", Example: true},
		"openshell command": {Execution: "openshell", Example: true, AgentCommand: []string{"agent", "--fast"}},
		"openshell plain":   {Execution: "openshell", Target: "own"},
	} {
		o.ProjectID = "fresh"
		t.Run(name, func(t *testing.T) { typeChecks(t, tsc, o) })
	}
}

func typeChecks(t *testing.T, tsc string, o Options) {
	list, err := Render(o)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for _, f := range list {
		path := filepath.Join(root, f.Path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) (string, error) {
		out, err := exec.Command(tsc, append([]string{"-p", filepath.Join(root, Directory)}, args...)...).CombinedOutput()
		return string(out), err
	}
	config, err := os.ReadFile(filepath.Join(root, "laufwerk/laufwerk.config.ts"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := render(Options{ProjectID: "fresh", Execution: "docker", Target: "two"}, "execution.two")
	if err != nil {
		t.Fatal(err)
	}
	e, ok := addTarget(config, "execution.two", "two")
	if !ok {
		t.Fatalf("the new config cannot be edited:\n%s", config)
	}
	for _, f := range append(second, File{"laufwerk/laufwerk.config.ts", e.text}) { // the last one stays
		if err := os.WriteFile(filepath.Join(root, f.Path), f.Content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := run(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if o.AgentCommand != nil || !o.Example {
		return
	}

	out, err := run("--showConfig")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var seen struct {
		CompilerOptions struct {
			Target, ModuleResolution string
			Strict                   bool
		}
		Files []string
	}
	if err := json.Unmarshal([]byte(out), &seen); err != nil {
		t.Fatal(err)
	}
	files := 5
	if o.Execution == "openshell" {
		files++ // the policy
	}
	c := seen.CompilerOptions
	if c.Target != "es2024" || c.ModuleResolution != "bundler" || !c.Strict || len(seen.Files) != files {
		t.Errorf("the compiler reads %+v of %v", c, seen.Files)
	}

	execution := filepath.Join(root, Directory, "execution.ts")
	if err := os.WriteFile(execution, []byte("import { createLocalExecution } from \"@laufwerk/execution/local\";\nexport const execution = createLocalExecution({ idd: \"x\" });\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := run(); err == nil || !strings.Contains(out, "execution.ts(2,") || !strings.Contains(out, "idd") {
		t.Errorf("an unknown option compiles: %v\n%s", err, out)
	}
}
