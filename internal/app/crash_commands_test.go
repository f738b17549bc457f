//go:build crashpoints

package app_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// diesAt is the environment in which the first process that reaches its n-th point is killed there. kill tells the kills of
// one world apart.
func (w *world) diesAt(n int, kill string) []string {
	return []string{fmt.Sprintf("LAUFWERK_CRASH=#%d", n), "LAUFWERK_CRASH_ONCE=" + filepath.Join(w.dir, "crashed-"+kill)}
}

// reached is how many points a command reaches.
func (w *world) reached(args ...string) int {
	w.t.Helper()
	log := filepath.Join(w.dir, "reached.log")
	if code, out, errs := w.laufwerk([]string{"LAUFWERK_CRASH_LOG=" + log}, args...); code != 0 {
		w.t.Fatalf("%v: exit %d\n%s%s", args, code, out, errs)
	}
	b, err := os.ReadFile(log)
	if err != nil {
		w.t.Fatal(err)
	}
	return bytes.Count(b, []byte("\n"))
}

// A command that an operator types is killed at each of its points; typed again, it does what it was for.
func TestKilledCommand(t *testing.T) {
	half := func(w *world) string {
		w.must([]int{8}, "run", "job", "--no-input")
		id := w.onlyRun().ID
		w.laufwerk(w.dies("writeback/after-exchange#1"), "answer", id, "approve", "yes")
		if !w.onlyRun().HalfApplied {
			w.t.Fatal("the write-back is not half applied")
		}
		return id
	}
	for _, c := range []struct {
		name    string
		prepare func(w *world) (args []string)
		then    func(w *world, id string)
	}{
		{"cancel", func(w *world) []string {
			w.mark(hold)
			worker := w.start(nil, "run", "job", "--no-input")
			w.begun("begin", 1)
			worker.kill()
			return []string{"runs", "cancel", w.onlyRun().ID}
		}, func(w *world, id string) {
			w.must([]int{0}, "runs", "cancel", id)
			if r := w.onlyRun(); r.State != "cancelled" {
				w.t.Errorf("the run is %s", r.State)
			}
			w.must([]int{0}, "cleanup", id, "--discard-changes")
			w.nothingIsLeft()
			w.sourceIs(before())
		}},
		{"cleanup", func(w *world) []string {
			w.mark(hold)
			worker := w.start(nil, "run", "job", "--no-input")
			w.begun("begin", 1)
			worker.kill()
			return []string{"cleanup", "--all", "--cancel", "--discard-changes"}
		}, func(w *world, _ string) {
			w.must([]int{0}, "cleanup", "--all", "--cancel", "--discard-changes")
			w.nothingIsLeft()
			w.sourceIs(before())
		}},
		{"writeback continue", func(w *world) []string {
			return []string{"writeback", "continue", half(w)}
		}, func(w *world, id string) {
			if w.onlyRun().HalfApplied {
				w.must([]int{0}, "writeback", "continue", id)
			}
			w.sourceIs(after())
			w.done(1)
		}},
		{"writeback abort", func(w *world) []string {
			return []string{"writeback", "abort", half(w)}
		}, func(w *world, id string) {
			if w.onlyRun().HalfApplied {
				w.must([]int{0}, "writeback", "abort", id)
			}
			w.sourceIs(before())
			w.must([]int{0}, "runs", "cancel", id)
			w.must([]int{0}, "cleanup", id, "--discard-changes")
			w.nothingIsLeft()
		}},
		{"prune", func(w *world) []string {
			w.done(1)
			return []string{"runs", "prune", w.onlyRun().ID}
		}, func(w *world, id string) {
			if len(w.runs()) > 0 {
				w.must([]int{0}, "runs", "prune", id)
			}
			w.must([]int{0}, "cleanup", "--all")
			if left, _ := filepath.Glob(filepath.Join(w.home, "runs/*")); len(left) > 0 || len(w.runs()) > 0 {
				w.t.Errorf("left: %v %v", left, w.runs())
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			probe := newWorld(t)
			args := c.prepare(probe)
			n := probe.reached(args...)
			t.Logf("%d points", n)
			for i := 1; i <= n; i++ {
				t.Run(fmt.Sprint(i), func(t *testing.T) {
					t.Parallel()
					w := newWorld(t)
					args := c.prepare(w)
					id := w.onlyRun().ID
					if code, out, errs := w.laufwerk(w.diesAt(i, "command"), args...); code != 137 {
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
	probe := newWorld(t)
	n := probe.reached("doctor", "--probe")
	var named atomic.Int32
	t.Run("at", func(t *testing.T) {
		for i := 1; i <= n; i++ {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				code, out, errs := w.laufwerk(w.diesAt(i, "probe"), "doctor", "--probe")
				_, crashed := os.Lstat(filepath.Join(w.dir, "crashed-probe"))
				if died := crashed == nil; died != (code != 0) || died && code != 137 && code != 4 {
					t.Fatalf("exit %d, and a process was killed: %t\n%s%s", code, died, out, errs)
				}
				if left := w.claims(); len(left) > 0 {
					if code, out, _ := w.laufwerk(nil, "doctor"); !strings.Contains(out, left[0].ID) || !strings.Contains(out, "next: laufwerk cleanup") {
						t.Errorf("doctor, exit %d, does not say what to do about %v:\n%s", code, left, out)
					}
					named.Add(1)
				}
				w.must([]int{0}, "cleanup", "--all")
				w.nothingIsLeft()
				if left, _ := filepath.Glob(filepath.Join(w.home, "probes/*")); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
				w.must([]int{0}, "doctor", "--probe")
				w.nothingIsLeft()
			})
		}
	})
	t.Logf("killed at %d points, %d of which left a claim", n, named.Load())
	if named.Load() < 10 {
		t.Errorf("only %d kills of %d left something", named.Load(), n)
	}
}

// seeded is a source of samples that can be had again.
func seeded(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// A run is killed somewhere, and its resume is killed somewhere too.
func TestKilledTwice(t *testing.T) {
	const samples = 40
	random := seeded(t)
	first, second := points(t)
	for i := range samples {
		answered, n := random.IntN(3) == 0, 1+random.IntN(45)
		point := first[random.IntN(len(first))]
		if answered {
			point = second[random.IntN(len(second))]
		}
		t.Run(fmt.Sprintf("%d answered=%t %s then %d", i, answered, strings.ReplaceAll(point, "/", "."), n), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if answered {
				w.must([]int{8}, "run", "job", "--no-input")
				w.laufwerk(w.dies(point), "answer", w.onlyRun().ID, "approve", "yes")
			} else {
				w.laufwerk(w.dies(point), "run", "job", "--no-input")
			}
			for _, r := range w.runs() {
				w.laufwerk(w.diesAt(n, "resume"), "resume", r.ID, "--no-input")
			}
			w.done(3)
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
			w := newWorld(t)
			w.write(filepath.Join(w.dir, "agent.sh"), "sleep 0.05\n"+jobAgent)
			w.laufwerk(w.dies(point), "run", "job", "--no-input")
			for _, s := range w.supervisors() {
				_ = kill(s) // it may end just now
			}
			w.done(2)
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

func (w *world) pairIsDone() {
	w.t.Helper()
	if r := w.finishOf("pair"); r.State != "succeeded" {
		w.t.Fatalf("the run is %s", r.State)
	}
	w.ranAtMost(2, map[string]string{"begin": "session.run:alone", "quick": "session.exec[quick]:fail", "slow": "session.exec[slow]:wait"})
	cancelled := 0
	for _, r := range w.records() {
		switch {
		case r.Type == "completed" && r.Error != nil && r.Error.Class == "Cancelled":
			cancelled++
		case r.Type == "end" && !strings.Contains(string(r.Value.JSON), "edited Error: after 30000"):
			w.t.Errorf("the run ended with %s", r.Value.JSON)
		}
	}
	if cancelled != 2 {
		w.t.Errorf("%d siblings were cancelled, want the command and the sleep", cancelled)
	}
	w.sourceIs(after())
	w.must([]int{0}, "cleanup", "--all", "--discard-changes")
	w.nothingIsLeft()
}

func TestKilledWithBranches(t *testing.T) {
	const samples = 60
	random := seeded(t)
	probe := newWorld(t)
	probe.flow("pair", pair)
	all := probe.reached("run", "pair", "--no-input")
	probe.pairIsDone()
	t.Logf("%d points", all)
	for i := range samples {
		n, cancel := 1+random.IntN(all), i%4 == 0
		t.Run(fmt.Sprintf("%d at %d cancel=%t", i, n, cancel), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.flow("pair", pair)
			w.laufwerk(w.diesAt(n, "run"), "run", "pair", "--no-input")
			if !cancel {
				w.pairIsDone()
				return
			}
			for _, r := range w.runs() {
				if r.HalfApplied {
					w.aborted(r.ID)
				}
				w.must([]int{0}, "runs", "cancel", r.ID)
			}
			w.must([]int{0}, "cleanup", "--all", "--discard-changes")
			w.nothingIsLeft()
		})
	}
}
