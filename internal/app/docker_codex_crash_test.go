//go:build crashpoints

package app_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/internal/testkit"
)

// reachedByTurn are the crash points of a first turn, from the intent of its session to its end: those of the worker, and
// those of the supervisor in the container.
func reachedByTurn(t *testing.T) (worker, supervisor []string) {
	t.Helper()
	w := newCodexBoxed(t, "crashpoints")
	w.point(nil)
	w.prepare()
	w.model.Play(testkit.Shell("echo hi >> hi.txt"), testkit.Say("done"))
	turn := "laufwerk/workflows/turn/workflow.ts" // that waits with its session open, whose files are looked at
	w.change(turn, "{ defineWorkflow,", "{ defineWorkflow, Human,")
	w.change(turn, "return yield* s.ask({ key: \"ask\", prompt: \"do it\" });", "yield* s.ask({ key: \"ask\", prompt: \"do it\" });\n    return yield* Human.confirm({ key: \"go\", title: \"Go on?\" });")
	log := filepath.Join("/tmp", filepath.Base(w.dir)+filepath.Base(filepath.Dir(w.dir))) // the container has a /tmp of its own, which is the session's
	t.Cleanup(func() { _ = os.Remove(log) })
	if code, out, errs := w.laufwerk([]string{"LAUFWERK_CRASH_LOG=" + log}, "run", "turn", "--no-input"); code != 8 {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	read := func(path string) []string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(b))
	}
	worker = read(log)
	first, last := slices.Index(worker, "claims/before-intent#2"), slices.Index(worker, "journal/after-completed#3")
	if first < 0 || last < first {
		t.Fatalf("the turn's points are not among %v", worker)
	}
	inside, _ := filepath.Glob(filepath.Join(w.home, "runs/*/sessions/*/tmp", filepath.Base(log)))
	if len(inside) != 1 {
		t.Fatalf("the supervisor's points are in %v", inside)
	}
	supervisor = read(inside[0])
	w.must([]int{0}, "cleanup", "--all", "--cancel", "--discard-changes")
	w.nothingIsLeftOnTheEngine()
	return worker[first : last+1], supervisor
}

// TestCodexInContainersIsKilledAnywhere: at every point of a turn the worker, or the supervisor in the container, is killed;
// resumed, it is the same turn. The model server counts what was paid.
func TestCodexInContainersIsKilledAnywhere(t *testing.T) {
	worker, supervisor := reachedByTurn(t)
	for _, needed := range []string{"dockerengine/after-create#1", "docker/after-start#1", "entered/after-take#1", "session/after-launch#1", "supervise/after-spawn#1", "supervise/after-exit#1"} {
		if !slices.Contains(worker, needed) && !slices.Contains(supervisor, needed) {
			t.Errorf("the turn does not reach %s: %v %v", needed, worker, supervisor)
		}
	}
	for _, point := range slices.Concat(worker, supervisor) {
		t.Run(strings.ReplaceAll(point, "/", "."), func(t *testing.T) {
			t.Parallel()
			w := newCodexBoxed(t, "crashpoints")
			w.point(nil)
			w.model.Play(testkit.Shell("echo hi >> hi.txt"), testkit.Say("done"))
			inside := slices.Contains(supervisor, point)
			env := w.dies(point) // the container does not see the file: no supervisor in it dies
			if inside {
				env[1] = "LAUFWERK_CRASH_ONCE=/tmp/crashed" // the first one dies, by a file of its own
			}
			code, out, errs := w.laufwerk(env, "run", "turn", "--no-input")
			if !inside && code != 128+9 {
				t.Fatalf("the worker was not killed: exit %d\n%s%s", code, out, errs)
			}
			most, threads := 2, 1
			switch point {
			case "supervise/after-spawn#1": // Codex was at its beginning
				most, threads = 3, 2
			case "supervise/before-exit#1": // nobody knows that it had ended: it is asked to go on
				most = 3
			}
			w.settles(code, most, threads)
		})
	}
}

// settles resumes the only run, unless it has ended by itself, and counts.
func (w *codexBoxed) settles(code, requests, threads int) {
	w.t.Helper()
	if code != 0 {
		code, out, errs := w.laufwerk(nil, "resume", w.onlyRun().ID, "--no-input", "--json")
		if code != 0 || !strings.Contains(out, "done") {
			w.t.Fatalf("resume: exit %d\n%s%s", code, out, errs)
		}
		w.noSecret(out, errs)
	}
	if r := w.onlyRun(); r.State != "succeeded" {
		w.t.Errorf("the run is %s", r.State)
	}
	if n := w.model.Requests(""); len(n) < 2 || len(n) > requests || len(w.model.Threads()) > threads {
		w.t.Errorf("%d requests in %v, want 2 to %d", len(n), w.model.Threads(), requests)
	}
	w.must([]int{0}, "cleanup", "--all", "--discard-changes")
	w.nothingIsLeftOnTheEngine()
}
