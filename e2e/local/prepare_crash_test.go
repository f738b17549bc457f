//go:build crashpoints

package local_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/agent/codex"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// TestPrepareKilledAnywhereConverges kills a preparation at each of its crash points, and once in the middle of the package
// manager: the next one succeeds, leaves one tree, and installs at most once more.
func TestPrepareKilledAnywhereConverges(t *testing.T) {
	t.Parallel()
	first := e2e.NewMachine(t)
	log := filepath.Join(first.Dir, "points")
	other := func(w *e2e.Machine) { // what another version left, so that dropping it is a point too
		w.WriteFile(filepath.Join(w.Home, "harness/codex/0123456789abcdef/file"), "")
		if err := os.Chmod(w.Home, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{"harness", "harness/codex"} {
			_ = os.Chmod(filepath.Join(w.Home, dir), files.DirMode)
		}
	}
	other(first)
	if code, _, errs := first.Run(append(writeScriptedNode(first), "LAUFWERK_CRASH_LOG="+log), "prepare", "local"); code != 0 {
		t.Fatal(errs)
	}
	reached, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	points := strings.Fields(string(reached))
	if len(points) < 8 {
		t.Fatalf("only %v were reached", points)
	}
	for _, point := range points {
		t.Run(point, func(t *testing.T) {
			w := e2e.NewMachine(t)
			other(w)
			env := append(writeScriptedNode(w), "NPM_TAKES=0")
			if code, _, errs := w.Run(append(env, "LAUFWERK_CRASH="+point), "prepare", "local"); code != 137 {
				t.Fatalf("exit %d\n%s", code, errs)
			}
			if code, _, errs := w.Run(env, "prepare", "local"); code != 0 {
				t.Fatalf("exit %d\n%s", code, errs)
			}
			if code, _, errs := w.Run(env, "prepare", "local", "--json"); code != 0 {
				t.Fatalf("exit %d\n%s", code, errs)
			}
			if n := w.CountRan()["npm"]; n < 1 || n > 2 {
				t.Errorf("npm ran %d times", n)
			}
			_ = os.RemoveAll(filepath.Join(w.Home, "harness/codex/0123456789abcdef")) // only a fresh receipt drops it
			w.CheckPrepared()
		})
	}
	t.Run("in the package manager", func(t *testing.T) {
		w := e2e.NewMachine(t)
		env := writeScriptedNode(w)
		cmd := w.Command(append(env, "NPM_TAKES=300"), "prepare", "local")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(e2e.HangLimit); w.CountRan()["npm"] == 0; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("npm does not come")
			}
		}
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait()
		if _, err := agent.ReadInstalled(w.Home, codex.New(), ""); err == nil {
			t.Fatal("it is prepared already")
		}
		if code, _, errs := w.Run(env, "prepare", "local"); code != 0 {
			t.Fatalf("exit %d\n%s", code, errs)
		}
		w.CheckPrepared() // and the end of the test finds no process of the first
	})
}
