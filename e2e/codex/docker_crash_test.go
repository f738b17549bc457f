//go:build crashpoints

package codex_test

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
	w := newContainerMachine(t, "crashpoints")
	w.writeWorkflow(nil)
	w.prepare()
	w.Model.Play(testkit.Shell("echo hi >> hi.txt"), testkit.Say("done"))
	turn := "laufwerk/workflows/turn/workflow.ts" // that waits with its session open, whose files are looked at
	w.ReplaceInFile(turn, "{ defineWorkflow,", "{ defineWorkflow, Human,")
	w.ReplaceInFile(turn, "return yield* s.ask({ key: \"ask\", prompt: \"do it\" });", "yield* s.ask({ key: \"ask\", prompt: \"do it\" });\n    return yield* Human.confirm({ key: \"go\", title: \"Go on?\" });")
	log := filepath.Join("/tmp", filepath.Base(w.Dir)+filepath.Base(filepath.Dir(w.Dir))) // the container has a /tmp of its own, which is the session's
	t.Cleanup(func() { _ = os.Remove(log) })
	if code, out, errs := w.Run([]string{"LAUFWERK_CRASH_LOG=" + log}, "run", "turn", "--no-input"); code != 8 {
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
	inside, _ := filepath.Glob(filepath.Join(w.Home, "runs/*/sessions/*/tmp", filepath.Base(log)))
	if len(inside) != 1 {
		t.Fatalf("the supervisor's points are in %v", inside)
	}
	supervisor = read(inside[0])
	w.MustRun([]int{0}, "cleanup", "--all", "--cancel", "--discard-changes")
	w.checkNothingLeftOnEngine()
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
	for _, point := range testkit.EveryNth(testkit.NewRandom(t), 3, slices.Concat(worker, supervisor)) {
		t.Run(strings.ReplaceAll(point, "/", "."), func(t *testing.T) {
			t.Parallel()
			w := newContainerMachine(t, "crashpoints")
			w.writeWorkflow(nil)
			w.Model.Play(testkit.Shell("echo hi >> hi.txt"), testkit.Say("done"))
			inside := slices.Contains(supervisor, point)
			env := w.CrashAt(point) // the container does not see the file: no supervisor in it dies
			if inside {
				env[1] = "LAUFWERK_CRASH_ONCE=/tmp/crashed" // the first one dies, by a file of its own
			}
			code, out, errs := w.Run(env, "run", "turn", "--no-input")
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
func (w *containerMachine) settles(code, requests, threads int) {
	w.T.Helper()
	if code != 0 {
		code, out, errs := w.Run(nil, "resume", w.OnlyRun().ID, "--no-input", "--json")
		if code != 0 || !strings.Contains(out, "done") {
			w.T.Fatalf("resume: exit %d\n%s%s", code, out, errs)
		}
		w.CheckNoSecret(out, errs)
	}
	if r := w.OnlyRun(); r.State != "succeeded" {
		w.T.Errorf("the run is %s", r.State)
	}
	if n := w.Model.Requests(""); len(n) < 2 || len(n) > requests || len(w.Model.Threads()) > threads {
		w.T.Errorf("%d requests in %v, want 2 to %d", len(n), w.Model.Threads(), requests)
	}
	w.MustRun([]int{0}, "cleanup", "--all", "--discard-changes")
	w.checkNothingLeftOnEngine()
}
