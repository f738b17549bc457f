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
	tsc, err := filepath.Abs("../../sdk/node_modules/.bin/tsc")
	if err == nil {
		_, err = os.Stat(tsc)
	}
	testkit.Need(t, "tsc", err == nil, "make verify-sdk installs it")
	list, err := Render(Options{ProjectID: "fresh", Execution: "local", Example: true, AgentCommand: []string{"agent", "--fast"}})
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
	if out, err := run(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	out, err := run("--showConfig")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var config struct {
		CompilerOptions struct {
			Target, ModuleResolution string
			Strict                   bool
		}
		Files []string
	}
	if err := json.Unmarshal([]byte(out), &config); err != nil {
		t.Fatal(err)
	}
	o := config.CompilerOptions
	if o.Target != "es2024" || o.ModuleResolution != "bundler" || !o.Strict || len(config.Files) != 4 {
		t.Errorf("the compiler reads %+v of %v", o, config.Files)
	}

	execution := filepath.Join(root, Directory, "execution.ts")
	if err := os.WriteFile(execution, []byte("import { createLocalExecution } from \"@laufwerk/execution/local\";\nexport const execution = createLocalExecution({ idd: \"x\" });\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := run(); err == nil || !strings.Contains(out, "execution.ts(2,") || !strings.Contains(out, "idd") {
		t.Errorf("an unknown option compiles: %v\n%s", err, out)
	}
}
