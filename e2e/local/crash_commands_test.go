//go:build crashpoints

package local_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/testkit"
)

// A command that an operator types is killed at each of its points; typed again, it does what it was for.
func TestKilledCommand(t *testing.T) {
	random := testkit.NewRandom(t)
	half := func(w *e2e.Machine) string {
		w.MustRun([]int{8}, "run", "job", "--no-input")
		id := w.OnlyRun().ID
		w.Run(w.CrashAt("writeback/after-exchange#1"), "answer", id, "approve", "yes")
		if !w.OnlyRun().HalfApplied {
			w.T.Fatal("the write-back is not half applied")
		}
		return id
	}
	for _, c := range []struct {
		name    string
		prepare func(w *e2e.Machine) (args []string)
		then    func(w *e2e.Machine, id string)
	}{
		{"cancel", func(w *e2e.Machine) []string {
			w.Mark(e2e.HoldFile)
			worker := w.Start(nil, "run", "job", "--no-input")
			w.AwaitRan("begin", 1)
			worker.Kill()
			return []string{"runs", "cancel", w.OnlyRun().ID}
		}, func(w *e2e.Machine, id string) {
			w.MustRun([]int{0}, "runs", "cancel", id)
			if r := w.OnlyRun(); r.State != "cancelled" {
				w.T.Errorf("the run is %s", r.State)
			}
			w.MustRun([]int{0}, "cleanup", id, "--discard-changes")
			w.CheckNothingLeft()
			w.CheckSource(e2e.SourceBefore())
		}},
		{"cleanup", func(w *e2e.Machine) []string {
			w.Mark(e2e.HoldFile)
			worker := w.Start(nil, "run", "job", "--no-input")
			w.AwaitRan("begin", 1)
			worker.Kill()
			return []string{"cleanup", "--all", "--cancel", "--discard-changes"}
		}, func(w *e2e.Machine, _ string) {
			w.MustRun([]int{0}, "cleanup", "--all", "--cancel", "--discard-changes")
			w.CheckNothingLeft()
			w.CheckSource(e2e.SourceBefore())
		}},
		{"writeback continue", func(w *e2e.Machine) []string {
			return []string{"writeback", "continue", half(w)}
		}, func(w *e2e.Machine, id string) {
			if w.OnlyRun().HalfApplied {
				w.MustRun([]int{0}, "writeback", "continue", id)
			}
			w.CheckSource(e2e.SourceAfter())
			w.FinishAndCheck(1)
		}},
		{"writeback abort", func(w *e2e.Machine) []string {
			return []string{"writeback", "abort", half(w)}
		}, func(w *e2e.Machine, id string) {
			if w.OnlyRun().HalfApplied {
				w.MustRun([]int{0}, "writeback", "abort", id)
			}
			w.CheckSource(e2e.SourceBefore())
			w.MustRun([]int{0}, "runs", "cancel", id)
			w.MustRun([]int{0}, "cleanup", id, "--discard-changes")
			w.CheckNothingLeft()
		}},
		{"prune", func(w *e2e.Machine) []string {
			w.FinishAndCheck(1)
			return []string{"runs", "prune", w.OnlyRun().ID}
		}, func(w *e2e.Machine, id string) {
			if len(w.ListRuns()) > 0 {
				w.MustRun([]int{0}, "runs", "prune", id)
			}
			w.MustRun([]int{0}, "cleanup", "--all")
			if left, _ := filepath.Glob(filepath.Join(w.Home, "runs/*")); len(left) > 0 || len(w.ListRuns()) > 0 {
				w.T.Errorf("left: %v %v", left, w.ListRuns())
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			probe := e2e.NewMachine(t)
			args := c.prepare(probe)
			n := probe.CountCrashPoints(args...)
			t.Logf("%d points", n)
			step := testkit.SampleSize(3, 1)
			for i := 1 + random.IntN(step); i <= n; i += step {
				t.Run(fmt.Sprint(i), func(t *testing.T) {
					t.Parallel()
					w := e2e.NewMachine(t)
					args := c.prepare(w)
					id := w.OnlyRun().ID
					if code, out, errs := w.Run(w.CrashAtNth(i, "command"), args...); code != 137 {
						t.Fatalf("it was not killed: exit %d\n%s%s", code, out, errs)
					}
					c.then(w, id)
				})
			}
		})
	}
}

// A probe of doctor is killed at each of its points, in itself or in the supervisor of its command: what it leaves is a claim,
// which doctor names and clean-up releases.
func TestKilledProbe(t *testing.T) {
	probe := e2e.NewMachine(t)
	n := probe.CountCrashPoints("doctor", "--probe")
	var named atomic.Int32
	t.Run("at", func(t *testing.T) {
		for i := 1; i <= n; i++ {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				w := e2e.NewMachine(t)
				code, out, errs := w.Run(w.CrashAtNth(i, "probe"), "doctor", "--probe")
				_, crashed := os.Lstat(filepath.Join(w.Dir, "crashed-probe"))
				if died := crashed == nil; died != (code != 0) || died && code != 137 && code != 4 {
					t.Fatalf("exit %d, and a process was killed: %t\n%s%s", code, died, out, errs)
				}
				if left := w.ListClaims(); len(left) > 0 {
					if code, out, _ := w.Run(nil, "doctor"); !strings.Contains(out, left[0].ID) || !strings.Contains(out, "next: laufwerk cleanup") {
						t.Errorf("doctor, exit %d, does not say what to do about %v:\n%s", code, left, out)
					}
					named.Add(1)
				}
				w.MustRun([]int{0}, "cleanup", "--all")
				w.CheckNothingLeft()
				if left, _ := filepath.Glob(filepath.Join(w.Home, "probes/*")); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
				w.MustRun([]int{0}, "doctor", "--probe")
				w.CheckNothingLeft()
			})
		}
	})
	t.Logf("killed at %d points, %d of which left a claim", n, named.Load())
	if named.Load() < 10 {
		t.Errorf("only %d kills of %d left something", named.Load(), n)
	}
}

// A run is killed somewhere, and its resume is killed somewhere too.
func TestKilledTwice(t *testing.T) {
	random := testkit.NewRandom(t)
	first, second := points(t)
	for i := range testkit.SampleSize(15, 40) {
		answered, n := random.IntN(3) == 0, 1+random.IntN(45)
		point := first[random.IntN(len(first))]
		if answered {
			point = second[random.IntN(len(second))]
		}
		t.Run(fmt.Sprintf("%d answered=%t %s then %d", i, answered, strings.ReplaceAll(point, "/", "."), n), func(t *testing.T) {
			t.Parallel()
			w := e2e.NewMachine(t)
			if answered {
				w.MustRun([]int{8}, "run", "job", "--no-input")
				w.Run(w.CrashAt(point), "answer", w.OnlyRun().ID, "approve", "yes")
			} else {
				w.Run(w.CrashAt(point), "run", "job", "--no-input")
			}
			for _, r := range w.ListRuns() {
				w.Run(w.CrashAtNth(n, "resume"), "resume", r.ID, "--no-input")
			}
			w.FinishAndCheck(3)
		})
	}
}

// The worker is killed at one of its points, and then the supervisors that it has left.
func TestKilledWithItsSupervisors(t *testing.T) {
	first, _ := points(t)
	began := false
	for _, point := range first {
		began = began || strings.HasPrefix(point, "supervise/before-launch")
		if !began || inSupervisor(point) {
			continue
		}
		if strings.HasPrefix(point, "claims/before-ask") {
			break // the session is being closed
		}
		t.Run(strings.ReplaceAll(point, "/", "."), func(t *testing.T) {
			t.Parallel()
			w := e2e.NewMachine(t)
			w.WriteFile(filepath.Join(w.Dir, "agent.sh"), "sleep 0.05\n"+e2e.JobAgent)
			w.Run(w.CrashAt(point), "run", "job", "--no-input")
			for _, s := range w.LiveSupervisors() {
				_ = e2e.KillSupervisor(s) // it may end just now
			}
			w.FinishAndCheck(2)
		})
	}
}

// pair has two sessions on two workspaces at once, of which one fails, so that the other one is cancelled in its flight;
// a session of a single turn; a sleep of an hour; and an output that is too large for a record.
const pair = `
    const one = yield* Workspace.open({ source: ".", execution, key: "one" });
    const two = yield* Workspace.open({ source: ".", execution, key: "two" });
    const said = yield* Session.run({ key: "alone", agent, workspace: one, prompt: "edit" });
    const quick = yield* Session.open({ key: "quick", agent, workspace: one });
    const slow = yield* Session.open({ key: "slow", agent, workspace: two });
    let caught = "";
    try {
      yield* all([
        slow.exec({ key: "wait", command: "echo slow >> COUNTS/ran; sleep 1000" }),
        (function* () {
          const r = yield* quick.exec({ key: "fail", command: "until grep -q slow COUNTS/ran; do sleep 0.01; done; echo quick >> COUNTS/ran; head -c 30000 /dev/zero | tr '\\0' z" });
          throw new Error("after " + r.stdout.length);
        })(),
        Clock.sleep({ key: "hour", duration: 3600000 }),
      ]);
    } catch (e) {
      caught = String(e);
    }
    yield* quick.close();
    yield* Workspace.writeBack({ workspace: one });
    return said + " " + caught;
`

func checkPairDone(w *e2e.Machine) {
	w.T.Helper()
	if r := w.FinishWorkflow("pair"); r.State != "succeeded" {
		w.T.Fatalf("the run is %s", r.State)
	}
	w.CheckRanAtMost(2, map[string]string{"begin": "session.run:alone", "quick": "session.exec[quick]:fail", "slow": "session.exec[slow]:wait"})
	cancelled := 0
	for _, r := range w.JournalRecords() {
		switch {
		case r.Type == "completed" && r.Error != nil && r.Error.Class == "Cancelled":
			cancelled++
		case r.Type == "end" && !strings.Contains(string(r.Value.JSON), "edited Error: after 30000"):
			w.T.Errorf("the run ended with %s", r.Value.JSON)
		}
	}
	if cancelled != 2 {
		w.T.Errorf("%d siblings were cancelled, want the command and the sleep", cancelled)
	}
	w.CheckSource(e2e.SourceAfter())
	w.MustRun([]int{0}, "cleanup", "--all", "--discard-changes")
	w.CheckNothingLeft()
}

func TestKilledWithBranches(t *testing.T) {
	random := testkit.NewRandom(t)
	probe := e2e.NewMachine(t)
	probe.WriteWorkflowBody("pair", pair)
	all := probe.CountCrashPoints("run", "pair", "--no-input")
	checkPairDone(probe)
	t.Logf("%d points", all)
	for i := range testkit.SampleSize(20, 60) {
		n, cancel := 1+random.IntN(all), i%4 == 0
		t.Run(fmt.Sprintf("%d at %d cancel=%t", i, n, cancel), func(t *testing.T) {
			t.Parallel()
			w := e2e.NewMachine(t)
			w.WriteWorkflowBody("pair", pair)
			w.Run(w.CrashAtNth(n, "run"), "run", "pair", "--no-input")
			if !cancel {
				checkPairDone(w)
				return
			}
			for _, r := range w.ListRuns() {
				if r.HalfApplied {
					abortWriteBack(w, r.ID)
				}
				w.MustRun([]int{0}, "runs", "cancel", r.ID)
			}
			w.MustRun([]int{0}, "cleanup", "--all", "--discard-changes")
			w.CheckNothingLeft()
		})
	}
}
