package local_test

import (
	"bytes"
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/e2e"
)

// Commands that only look use the bundles that runs have remembered: of one that was replaced they see the replacement.
func TestReadOnlyCommandsUseRememberedBundles(t *testing.T) {
	w := e2e.NewMachine(t)
	w.WriteFile(filepath.Join(w.Project, "laufwerk/execution.ts"), `import { createLocalExecution } from "@laufwerk/execution/local";
export const execution = createLocalExecution({ id: "first" });`)
	w.WriteWorkflowBody("quick", `return 1;`)
	near := func(id string) {
		t.Helper()
		for _, args := range [][]string{{"doctor"}, {"prepare", "local"}} {
			args = append(args, "--target", id+"x")
			code, _, stderr := w.Run(nil, args...)
			if code == 0 || !strings.Contains(stderr, "--target "+id+"\n") {
				t.Errorf("%v: exit %d: %s, want the target %s", args, code, stderr, id)
			}
		}
	}
	near("first")
	if _, err := os.Lstat(w.Home); !os.IsNotExist(err) {
		t.Errorf("commands that look made a home: %v", err)
	}
	w.MustRun([]int{0}, "run", "quick", "--no-input")
	names, err := filepath.Glob(filepath.Join(w.Home, "bundles", "*"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%v, %v", names, err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		b = bytes.ReplaceAll(b[sha256.Size:], []byte(`\"first\"`), []byte(`\"other\"`))
		sum := sha256.Sum256(b)
		if err := os.WriteFile(name, append(sum[:], b...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	near("other")
}
