//go:build crashpoints

package local_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/testkit"
)

// points are the crash points that a job reaches: those of the first worker, until it waits for a person, and those of the
// second one, from the answer to the end. Supervisors reach theirs in both.
func points(t *testing.T) (first, second []string) {
	w := e2e.NewMachine(t)
	read := func(log string) []string {
		b, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		seen := map[string]bool{}
		for line := range strings.Lines(string(b)) {
			if p := strings.TrimSpace(line); !seen[p] {
				seen[p] = true
				out = append(out, p)
			}
		}
		return out
	}
	logs := []string{filepath.Join(w.Dir, "first.log"), filepath.Join(w.Dir, "second.log")}
	if code, out, errs := w.Run([]string{"LAUFWERK_CRASH_LOG=" + logs[0]}, "run", "job", "--no-input"); code != 8 {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	if code, out, errs := w.Run([]string{"LAUFWERK_CRASH_LOG=" + logs[1]}, "answer", w.ListRuns()[0].ID, "approve", "yes"); code != 0 {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	w.FinishAndCheck(1)
	first, second = read(logs[0]), read(logs[1])
	if len(first) < 40 || len(second) < 20 {
		t.Fatalf("only %d and %d crash points: %v %v", len(first), len(second), first, second)
	}
	return first, second
}

// abortWriteBack undoes a half-applied write-back. One that had put every change in place is done, and not undone any more.
func abortWriteBack(w *e2e.Machine, run string) {
	w.T.Helper()
	switch code, out, errs := w.Run(nil, "writeback", "abort", run); {
	case code == 0:
		w.CheckSource(e2e.SourceBefore())
	case code == 5 && strings.Contains(errs, "already in place"):
		w.CheckSource(e2e.SourceAfter())
	default:
		w.T.Fatalf("writeback abort: exit %d\n%s%s", code, out, errs)
	}
}

// inSupervisor says whether a point is reached in a supervisor, whose end may cut what it runs.
func inSupervisor(point string) bool {
	return strings.HasPrefix(point, "supervise/") && !strings.HasPrefix(point, "supervise/before-launch") && !strings.HasPrefix(point, "supervise/after-launch")
}

// atEveryPoint kills the worker at crash points of a run, in CI at one in three, and follows what comes then.
func atEveryPoint(t *testing.T, then func(t *testing.T, w *e2e.Machine, point string)) {
	random := testkit.NewRandom(t)
	first, second := points(t)
	for _, p := range testkit.EveryNth(random, 3, first) {
		t.Run("first/"+strings.ReplaceAll(p, "/", "."), func(t *testing.T) {
			t.Parallel()
			w := e2e.NewMachine(t)
			w.Run(w.CrashAt(p), "run", "job", "--no-input")
			then(t, w, p)
		})
	}
	for _, p := range testkit.EveryNth(random, 3, second) {
		t.Run("second/"+strings.ReplaceAll(p, "/", "."), func(t *testing.T) {
			t.Parallel()
			w := e2e.NewMachine(t)
			w.MustRun([]int{8}, "run", "job", "--no-input")
			w.Run(w.CrashAt(p), "answer", w.ListRuns()[0].ID, "approve", "yes")
			then(t, w, p)
		})
	}
}

// TestKilledAnywhereThenResumed: the run ends as if nothing had happened.
func TestKilledAnywhereThenResumed(t *testing.T) {
	atEveryPoint(t, func(_ *testing.T, w *e2e.Machine, point string) {
		most := 1
		if inSupervisor(point) {
			most = 2 // cut, and made once more
		}
		w.FinishAndCheck(most)
	})
}

// TestKilledAnywhereThenCancelled: no process, no directory, no claim of ours is left, and nothing of a stranger's is touched.
func TestKilledAnywhereThenCancelled(t *testing.T) {
	atEveryPoint(t, func(t *testing.T, w *e2e.Machine, _ string) {
		stranger := filepath.Join(w.Home, "workspaces", "stranger", "file")
		if err := os.MkdirAll(filepath.Dir(stranger), 0o700); err != nil {
			t.Fatal(err)
		}
		w.WriteFile(stranger, "not ours")
		for _, r := range w.ListRuns() {
			if r.HalfApplied {
				w.MustRun([]int{5}, "runs", "cancel", r.ID)
				abortWriteBack(w, r.ID)
			}
			w.MustRun([]int{0}, "runs", "cancel", r.ID)
		}
		w.MustRun([]int{0}, "cleanup", "--all", "--discard-changes")
		if b, err := os.ReadFile(stranger); err != nil || string(b) != "not ours" {
			t.Errorf("the stranger's file: %q, %v", b, err)
		}
		if err := os.RemoveAll(filepath.Dir(stranger)); err != nil {
			t.Fatal(err)
		}
		w.CheckNothingLeft()
		if got := w.ProjectFiles(); len(got) != len(e2e.SourceBefore()) && len(got) != len(e2e.SourceAfter()) {
			t.Errorf("the source is half changed: %v", got)
		}
		if folders, _ := filepath.Glob(filepath.Join(w.Home, "runs/*")); len(folders) != len(w.ListRuns()) {
			t.Errorf("%d folders of %d runs", len(folders), len(w.ListRuns()))
		}
	})
}
