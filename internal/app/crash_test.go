//go:build crashpoints

package app_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// points are the crash points that a job reaches: those of the first worker, until it waits for a person, and those of the
// second one, from the answer to the end. Supervisors reach theirs in both.
func points(t *testing.T) (first, second []string) {
	w := newWorld(t)
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
	logs := []string{filepath.Join(w.dir, "first.log"), filepath.Join(w.dir, "second.log")}
	if code, out, errs := w.laufwerk([]string{"LAUFWERK_CRASH_LOG=" + logs[0]}, "run", "job", "--no-input"); code != 8 {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	if code, out, errs := w.laufwerk([]string{"LAUFWERK_CRASH_LOG=" + logs[1]}, "answer", w.runs()[0].ID, "approve", "yes"); code != 0 {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	w.done(1)
	first, second = read(logs[0]), read(logs[1])
	if len(first) < 40 || len(second) < 20 {
		t.Fatalf("only %d and %d crash points: %v %v", len(first), len(second), first, second)
	}
	return first, second
}

// dies is the environment in which the first process that reaches a point is killed there.
func (w *world) dies(point string) []string {
	return []string{"LAUFWERK_CRASH=" + point, "LAUFWERK_CRASH_ONCE=" + filepath.Join(w.dir, "crashed")}
}

// aborted undoes a half-applied write-back. One that had put every change in place is done, and not undone any more.
func (w *world) aborted(run string) {
	w.t.Helper()
	switch code, out, errs := w.laufwerk(nil, "writeback", "abort", run); {
	case code == 0:
		w.sourceIs(before())
	case code == 5 && strings.Contains(errs, "already in place"):
		w.sourceIs(after())
	default:
		w.t.Fatalf("writeback abort: exit %d\n%s%s", code, out, errs)
	}
}

// inSupervisor says whether a point is reached in a supervisor, whose end may cut what it runs.
func inSupervisor(point string) bool {
	return strings.HasPrefix(point, "supervise/") && !strings.HasPrefix(point, "supervise/before-launch") && !strings.HasPrefix(point, "supervise/after-launch")
}

func atEveryPoint(t *testing.T, then func(t *testing.T, w *world, point string)) {
	first, second := points(t)
	for _, p := range first {
		t.Run("first/"+strings.ReplaceAll(p, "/", "."), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.laufwerk(w.dies(p), "run", "job", "--no-input")
			then(t, w, p)
		})
	}
	for _, p := range second {
		t.Run("second/"+strings.ReplaceAll(p, "/", "."), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.must([]int{8}, "run", "job", "--no-input")
			w.laufwerk(w.dies(p), "answer", w.runs()[0].ID, "approve", "yes")
			then(t, w, p)
		})
	}
}

// TestKilledAnywhereThenResumed: the run ends as if nothing had happened.
func TestKilledAnywhereThenResumed(t *testing.T) {
	atEveryPoint(t, func(_ *testing.T, w *world, point string) {
		most := 1
		if inSupervisor(point) {
			most = 2 // cut, and made once more
		}
		w.done(most)
	})
}

// TestKilledAnywhereThenCancelled: no process, no directory, no claim of ours is left, and nothing of a stranger's is touched.
func TestKilledAnywhereThenCancelled(t *testing.T) {
	atEveryPoint(t, func(t *testing.T, w *world, _ string) {
		stranger := filepath.Join(w.home, "workspaces", "stranger", "file")
		if err := os.MkdirAll(filepath.Dir(stranger), 0o700); err != nil {
			t.Fatal(err)
		}
		w.write(stranger, "not ours")
		for _, r := range w.runs() {
			if r.HalfApplied {
				w.must([]int{5}, "runs", "cancel", r.ID)
				w.aborted(r.ID)
			}
			w.must([]int{0}, "runs", "cancel", r.ID)
		}
		w.must([]int{0}, "cleanup", "--all", "--discard-changes")
		if b, err := os.ReadFile(stranger); err != nil || string(b) != "not ours" {
			t.Errorf("the stranger's file: %q, %v", b, err)
		}
		if err := os.RemoveAll(filepath.Dir(stranger)); err != nil {
			t.Fatal(err)
		}
		w.nothingIsLeft()
		if got := w.files(); len(got) != len(before()) && len(got) != len(after()) {
			t.Errorf("the source is half changed: %v", got)
		}
		if folders, _ := filepath.Glob(filepath.Join(w.home, "runs/*")); len(folders) != len(w.runs()) {
			t.Errorf("%d folders of %d runs", len(folders), len(w.runs()))
		}
	})
}
