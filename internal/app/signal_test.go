package app_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/testkit"
)

// slow has every kind of operation, and takes its time for some of them.
const slow = `
    const workspace = yield* Workspace.open({ source: ".", execution });
    const s = yield* Session.open({ key: "s", agent, workspace });
    yield* s.ask({ key: "turn", prompt: "edit" });
    yield* all([
      s.exec({ key: "one", command: "echo one >> COUNTS/ran; sleep 0.05" }),
      Clock.sleep({ key: "pause", duration: 60 }),
    ]);
    yield* s.exec({ key: "two", command: "echo two >> COUNTS/ran; sleep 0.03" });
    yield* s.close();
    const written = yield* Workspace.writeBack({ workspace });
    return written.changes.length;
`

// Signals at random times, once or twice: the run is interrupted and can go on, or has come to its own end; nothing that
// completed runs twice, and what was cut is journaled.
func TestSignalsAtRandomTimes(t *testing.T) {
	const times = 50
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	signals := [][]syscall.Signal{
		{syscall.SIGINT}, {syscall.SIGINT, syscall.SIGINT}, {syscall.SIGTERM}, {syscall.SIGHUP}, {syscall.SIGKILL}, {syscall.SIGTERM, syscall.SIGINT},
	}
	for i := range times {
		sigs := signals[i%len(signals)]
		at, between := time.Duration(random.IntN(700))*time.Millisecond, time.Duration(random.IntN(40))*time.Millisecond
		t.Run(fmt.Sprintf("%d %v at %v and %v", i, sigs, at, between), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.flow("slow", slow)
			r := w.start(nil, "run", "slow", "--no-input")
			time.Sleep(at)
			for n, sig := range sigs {
				if n > 0 {
					time.Sleep(between)
				}
				_ = syscall.Kill(-r.pid(), sig) // the whole job, as a terminal does; it may have ended
			}
			code, out, errs := r.wait()
			w.signalled(sigs, code, out, errs)
			w.endsAfterSignals()
		})
	}
}

// signalled checks how a worker left that got signals.
func (w *world) signalled(sigs []syscall.Signal, code int, out, errs string) {
	w.t.Helper()
	fits := code == 0
	for _, sig := range sigs {
		fits = fits || code == 128+int(sig)
	}
	list := w.runs()
	if !fits || len(list) > 1 || code == 0 && len(list) == 0 {
		w.t.Fatalf("exit %d, %d runs\n%s%s", code, len(list), out, errs)
	}
	if len(list) == 0 {
		return // it had not begun
	}
	killed := code == 128+int(syscall.SIGKILL)
	switch r := list[0]; {
	case code == 0 && r.State != "succeeded", r.State != "succeeded" && r.State != "interrupted":
		w.t.Fatalf("exit %d, and the run is %s\n%s%s", code, r.State, out, errs)
	case killed: // nobody can say anything
	case r.State == "interrupted" && !strings.Contains(errs, "laufwerk resume "+r.ID):
		w.t.Errorf("exit %d, and nobody says how to go on\n%s%s", code, out, errs)
	case r.State == "interrupted" && !strings.Contains(errs, "kept") && !strings.Contains(errs, "under its supervisor"):
		w.t.Errorf("exit %d, and nobody says what is kept\n%s%s", code, out, errs)
	}
}

// endsAfterSignals brings a run of slow to its end, and counts.
func (w *world) endsAfterSignals() {
	w.t.Helper()
	if list := w.runs(); len(list) == 0 {
		w.must([]int{0}, "run", "slow", "--no-input")
	} else if list[0].State == "interrupted" {
		w.must([]int{0}, "resume", list[0].ID, "--no-input")
	}
	if r := w.onlyRun(); r.State != "succeeded" {
		w.t.Fatalf("the run is %s", r.State)
	}
	ran, j := w.ran(), w.journaled()
	for word, id := range map[string]string{"begin": "session.ask[s]:turn", "one": "session.exec[s]:one", "two": "session.exec[s]:two"} {
		if n := ran[word]; n < 1 || n > 1+j["cut "+id] || j["completed "+id] != 1 {
			w.t.Errorf("%s ran %d times, was cut %d times and completed %d times", id, n, j["cut "+id], j["completed "+id])
		}
	}
	w.sourceIs(after())
	w.must([]int{0}, "cleanup", "--all", "--discard-changes")
	w.nothingIsLeft()
}

// The first SIGINT lets the agent stop in its own way; the second one ends the worker at once, while the agent takes its
// time. Its supervisor keeps to the first request, so nothing is left either.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.flow("slow", slow)
	w.write(filepath.Join(w.dir, "agent.sh"), "trap 'echo asked >> $1/ran' INT\n"+jobAgent)
	w.mark(hold)
	r := w.start(nil, "run", "slow", "--no-input")
	w.begun("begin", 1)
	_ = syscall.Kill(-r.pid(), syscall.SIGINT)
	w.begun("asked", 1) // the agent was asked, and does not stop
	_ = syscall.Kill(-r.pid(), syscall.SIGINT)
	code, out, errs := r.wait()
	if code != 130 || !strings.Contains(errs, "at once") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	if len(w.supervisors()) != 1 {
		t.Error("the worker waited for the agent")
	}
	w.signalled([]syscall.Signal{syscall.SIGINT}, code, out, errs)
	w.unmark(hold)
	w.endsAfterSignals()
}

// An agent that stops on SIGINT keeps what it has done; the next attempt is told.
func TestInterruptedTurnIsContinued(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.flow("slow", slow)
			w.write(filepath.Join(w.dir, "agent.sh"), "trap 'echo stopped >> $1/ran; exit 0' INT\n"+jobAgent)
			w.mark(hold)
			r := w.start(nil, "run", "slow", "--no-input")
			w.begun("begin", 1)
			r.signal(sig)
			code, out, errs := r.wait()
			w.signalled([]syscall.Signal{sig}, code, out, errs)
			if w.ran()["stopped"] != 1 || len(w.supervisors()) > 0 {
				t.Errorf("the agent did not stop in its own way: %v", w.ran())
			}
			w.unmark(hold)
			w.endsAfterSignals()
			b, _ := os.ReadFile(filepath.Join(w.counts, "ran"))
			if w.journaled()["cut session.ask[s]:turn"] != 1 || !strings.Contains(string(b), "cut off") {
				t.Errorf("%v: %q", w.journaled(), b)
			}
		})
	}
}

// After SIGHUP the turn goes on under its supervisor, also to its end, and is joined.
func TestHungUpWorkerLeavesTheTurn(t *testing.T) {
	for _, ends := range []bool{false, true} {
		t.Run(fmt.Sprintf("ends=%t", ends), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.flow("slow", slow)
			w.mark(hold)
			r := w.start(nil, "run", "slow", "--no-input")
			w.begun("begin", 1)
			r.signal(syscall.SIGHUP)
			code, out, errs := r.wait()
			w.signalled([]syscall.Signal{syscall.SIGHUP}, code, out, errs)
			if code != 129 || len(w.supervisors()) != 1 {
				t.Fatalf("exit %d, %d supervisors\n%s", code, len(w.supervisors()), errs)
			}
			if ends {
				w.unmark(hold)
				eventually(t, "the turn ends without a worker", func() bool { return len(w.supervisors()) == 0 })
			} else {
				second := w.start(nil, "resume", w.onlyRun().ID, "--no-input")
				eventually(t, "it is joined", func() bool { return w.attached(w.onlyRun().ID) })
				w.unmark(hold)
				if code, out, errs := second.wait(); code != 0 {
					t.Fatalf("exit %d\n%s%s", code, out, errs)
				}
			}
			w.endsAfterSignals()
			if n := w.ran()["begin"]; n != 1 {
				t.Errorf("the turn ran %d times", n)
			}
		})
	}
}

// A run that waits for a person at a terminal is interrupted like any other, and asks again.
func TestInterruptedWhileItAsks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.asksInATurn()
	r.signal(syscall.SIGINT)
	code, out, errs := r.wait()
	w.signalled([]syscall.Signal{syscall.SIGINT}, code, out, errs)
	w.unmark(hold)
	id := w.onlyRun().ID
	w.must([]int{8}, "resume", id, "--no-input")
	if out := w.must([]int{0}, "answer", id, "name", "Ada"); !strings.Contains(out, "Ada") {
		t.Errorf("%s", out)
	}
	if j := w.journaled(); j["started human:name"] != 1 || j["completed human:name"] != 1 {
		t.Errorf("%v", j)
	}
	w.must([]int{0}, "cleanup", id, "--discard-changes")
	w.nothingIsLeft()
}

// A signal to a command that is still taking a run up, here because the config computes for ever, ends that with what is kept and
// how to go on.
func TestInterruptedWhileARunIsTakenUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.flow("named", `return yield* Human.text({ key: "name", title: "Your name?" });`)
	w.must([]int{8}, "run", "named", "--no-input")
	id := w.onlyRun().ID
	config := filepath.Join(w.project, "laufwerk/laufwerk.config.ts")
	good, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"resume", id}, {"answer", id, "name", "Ada"}} {
		w.write(config, "for (;;) {}\n"+string(good))
		r := w.start(nil, append(args, "--set", "script.configTime=10m", "--json")...)
		eventually(t, "it evaluates the config", func() bool {
			lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", r.pid()))
			return slices.ContainsFunc(lists, func(list string) bool { b, err := os.ReadFile(list); return err == nil && len(b) > 0 })
		})
		r.signal(syscall.SIGINT)
		code, out, errs := r.wait()
		var doc struct {
			Run   string
			Error struct{ Code, Message, Hint string }
		}
		if err := json.Unmarshal([]byte(out), &doc); err != nil || code != 130 || doc.Run != id || doc.Error.Code != "interrupted" ||
			!strings.Contains(doc.Error.Message, "are kept") || doc.Error.Hint != "laufwerk resume "+id {
			t.Errorf("%v: exit %d, %v: %s%s", args, code, err, out, errs)
		}
		w.write(config, string(good))
	}
	if out := w.must([]int{0}, "resume", id); !strings.Contains(out, "Ada") {
		t.Errorf("%s", out)
	}
	w.must([]int{0}, "cleanup", "--all")
	w.nothingIsLeft()
}

// An interruption in the middle of copying the source leaves nothing that the resumed run could not make anew. Where the copy was
// quicker than the signal, a larger source is tried.
func TestInterruptedWhileItCopies(t *testing.T) {
	t.Parallel()
	for files := 2000; files <= 32000; files *= 4 {
		w := newWorld(t)
		w.flow("slow", slow)
		for i := range files {
			w.write(filepath.Join(w.project, "many", fmt.Sprintf("%d/%d", i%50, i)), strings.Repeat("x", i%2000))
		}
		r := w.start(nil, "run", "slow", "--no-input")
		eventually(t, "it copies", func() bool {
			made, _ := filepath.Glob(filepath.Join(w.home, "workspaces/*/*/many"))
			return len(made) > 0
		})
		r.signal(syscall.SIGINT)
		code, out, errs := r.wait()
		w.signalled([]syscall.Signal{syscall.SIGINT}, code, out, errs)
		copied := w.journaled()["completed workspace.open"]
		if err := os.RemoveAll(filepath.Join(w.project, "many")); err != nil { // sourceIs knows nothing of it
			t.Fatal(err)
		}
		w.endsAfterSignals()
		if n := w.journaled()["completed workspace.open"]; n != 1 {
			t.Errorf("the workspace was opened %d times", n)
		}
		if copied == 0 {
			return
		}
		t.Logf("%d files were copied before the signal came", files)
	}
	testkit.Need(t, "a machine that takes longer to copy than to signal", false, "no copy was interrupted")
}
