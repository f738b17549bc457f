package local_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/e2e"
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
	random := testkit.NewRandom(t)
	signals := [][]syscall.Signal{
		{syscall.SIGINT}, {syscall.SIGINT, syscall.SIGINT}, {syscall.SIGTERM}, {syscall.SIGHUP}, {syscall.SIGKILL}, {syscall.SIGTERM, syscall.SIGINT},
	}
	for i := range testkit.SampleSize(24, 50) {
		sigs := signals[i%len(signals)]
		at, between := time.Duration(random.IntN(700))*time.Millisecond, time.Duration(random.IntN(40))*time.Millisecond
		t.Run(fmt.Sprintf("%d %v at %v and %v", i, sigs, at, between), func(t *testing.T) {
			t.Parallel()
			w := e2e.NewMachine(t)
			w.WriteWorkflowBody("slow", slow)
			r := w.Start(nil, "run", "slow", "--no-input")
			time.Sleep(at)
			for n, sig := range sigs {
				if n > 0 {
					time.Sleep(between)
				}
				_ = syscall.Kill(-r.PID(), sig) // the whole job, as a terminal does; it may have ended
			}
			code, out, errs := r.Wait()
			w.CheckSignalled(sigs, code, out, errs)
			finishAfterSignals(w)
		})
	}
}

// finishAfterSignals brings a run of slow to its end, and counts.
func finishAfterSignals(w *e2e.Machine) {
	w.T.Helper()
	if list := w.ListRuns(); len(list) == 0 {
		w.MustRun([]int{0}, "run", "slow", "--no-input")
	} else if list[0].State == "interrupted" {
		w.MustRun([]int{0}, "resume", list[0].ID, "--no-input")
	}
	if r := w.OnlyRun(); r.State != "succeeded" {
		w.T.Fatalf("the run is %s", r.State)
	}
	ran, j := w.CountRan(), w.CountRecords()
	for word, id := range map[string]string{"begin": "session.ask[s]:turn", "one": "session.exec[s]:one", "two": "session.exec[s]:two"} {
		if n := ran[word]; n < 1 || n > 1+j["cut "+id] || j["completed "+id] != 1 {
			w.T.Errorf("%s ran %d times, was cut %d times and completed %d times", id, n, j["cut "+id], j["completed "+id])
		}
	}
	w.CheckSource(e2e.SourceAfter())
	w.MustRun([]int{0}, "cleanup", "--all", "--discard-changes")
	w.CheckNothingLeft()
}

// The first SIGINT lets the agent stop in its own way; the second one ends the worker at once, while the agent takes its
// time. Its supervisor keeps to the first request, so nothing is left either.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	w := e2e.NewMachine(t)
	w.WriteWorkflowBody("slow", slow)
	w.WriteFile(filepath.Join(w.Dir, "agent.sh"), "trap 'echo asked >> $1/ran' INT\n"+e2e.JobAgent)
	w.Mark(e2e.HoldFile)
	r := w.Start(nil, "run", "slow", "--no-input")
	w.AwaitRan("begin", 1)
	_ = syscall.Kill(-r.PID(), syscall.SIGINT)
	w.AwaitRan("asked", 1) // the agent was asked, and does not stop
	_ = syscall.Kill(-r.PID(), syscall.SIGINT)
	code, out, errs := r.Wait()
	if code != 130 || !strings.Contains(errs, "at once") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	if len(w.LiveSupervisors()) != 1 {
		t.Error("the worker waited for the agent")
	}
	w.CheckSignalled([]syscall.Signal{syscall.SIGINT}, code, out, errs)
	w.Unmark(e2e.HoldFile)
	finishAfterSignals(w)
}

// An agent that stops on SIGINT keeps what it has done; the next attempt is told.
func TestInterruptedTurnIsContinued(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			w := e2e.NewMachine(t)
			w.WriteWorkflowBody("slow", slow)
			w.WriteFile(filepath.Join(w.Dir, "agent.sh"), "trap 'echo stopped >> $1/ran; exit 0' INT\n"+e2e.JobAgent)
			w.Mark(e2e.HoldFile)
			r := w.Start(nil, "run", "slow", "--no-input")
			w.AwaitRan("begin", 1)
			r.Signal(sig)
			code, out, errs := r.Wait()
			w.CheckSignalled([]syscall.Signal{sig}, code, out, errs)
			if w.CountRan()["stopped"] != 1 || len(w.LiveSupervisors()) > 0 {
				t.Errorf("the agent did not stop in its own way: %v", w.CountRan())
			}
			w.Unmark(e2e.HoldFile)
			finishAfterSignals(w)
			b, _ := os.ReadFile(filepath.Join(w.Counts, "ran"))
			if w.CountRecords()["cut session.ask[s]:turn"] != 1 || !strings.Contains(string(b), "cut off") {
				t.Errorf("%v: %q", w.CountRecords(), b)
			}
		})
	}
}

// After SIGHUP the turn goes on under its supervisor, also to its end, and is joined.
func TestHungUpWorkerLeavesTheTurn(t *testing.T) {
	for _, ends := range []bool{false, true} {
		t.Run(fmt.Sprintf("ends=%t", ends), func(t *testing.T) {
			t.Parallel()
			w := e2e.NewMachine(t)
			w.WriteWorkflowBody("slow", slow)
			w.Mark(e2e.HoldFile)
			r := w.Start(nil, "run", "slow", "--no-input")
			w.AwaitRan("begin", 1)
			r.Signal(syscall.SIGHUP)
			code, out, errs := r.Wait()
			w.CheckSignalled([]syscall.Signal{syscall.SIGHUP}, code, out, errs)
			if code != 129 || len(w.LiveSupervisors()) != 1 {
				t.Fatalf("exit %d, %d supervisors\n%s", code, len(w.LiveSupervisors()), errs)
			}
			if ends {
				w.Unmark(e2e.HoldFile)
				e2e.Eventually(t, "the turn ends without a worker", func() bool { return len(w.LiveSupervisors()) == 0 })
			} else {
				second := w.Start(nil, "resume", w.OnlyRun().ID, "--no-input")
				e2e.Eventually(t, "it is joined", func() bool { return w.HasAttached(w.OnlyRun().ID) })
				w.Unmark(e2e.HoldFile)
				if code, out, errs := second.Wait(); code != 0 {
					t.Fatalf("exit %d\n%s%s", code, out, errs)
				}
			}
			finishAfterSignals(w)
			if n := w.CountRan()["begin"]; n != 1 {
				t.Errorf("the turn ran %d times", n)
			}
		})
	}
}

// A run that waits for a person at a terminal is interrupted like any other, and asks again.
func TestInterruptedWhileItAsks(t *testing.T) {
	t.Parallel()
	w := e2e.NewMachine(t)
	r := startQuestionInTurn(w)
	r.Signal(syscall.SIGINT)
	code, out, errs := r.Wait()
	w.CheckSignalled([]syscall.Signal{syscall.SIGINT}, code, out, errs)
	w.Unmark(e2e.HoldFile)
	id := w.OnlyRun().ID
	w.MustRun([]int{8}, "resume", id, "--no-input")
	if out := w.MustRun([]int{0}, "answer", id, "name", "Ada"); !strings.Contains(out, "Ada") {
		t.Errorf("%s", out)
	}
	if j := w.CountRecords(); j["started human:name"] != 1 || j["completed human:name"] != 1 {
		t.Errorf("%v", j)
	}
	w.MustRun([]int{0}, "cleanup", id, "--discard-changes")
	w.CheckNothingLeft()
}

// A signal to a command that is still taking a run up, here because the config computes for ever, ends that with what is kept and
// how to go on.
func TestInterruptedWhileARunIsTakenUp(t *testing.T) {
	t.Parallel()
	w := e2e.NewMachine(t)
	w.WriteWorkflowBody("named", `return yield* Human.text({ key: "name", title: "Your name?" });`)
	w.MustRun([]int{8}, "run", "named", "--no-input")
	id := w.OnlyRun().ID
	config := filepath.Join(w.Project, "laufwerk/laufwerk.config.ts")
	good, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"resume", id}, {"answer", id, "name", "Ada"}} {
		w.WriteFile(config, "for (;;) {}\n"+string(good))
		r := w.Start(nil, append(args, "--set", "script.configTime=10m", "--json")...)
		e2e.Eventually(t, "it evaluates the config", func() bool {
			lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", r.PID()))
			return slices.ContainsFunc(lists, func(list string) bool { b, err := os.ReadFile(list); return err == nil && len(b) > 0 })
		})
		r.Signal(syscall.SIGINT)
		code, out, errs := r.Wait()
		var doc struct {
			Run   string
			Error struct{ Code, Message, Hint string }
		}
		if err := json.Unmarshal([]byte(out), &doc); err != nil || code != 130 || doc.Run != id || doc.Error.Code != "interrupted" ||
			!strings.Contains(doc.Error.Message, "are kept") || doc.Error.Hint != "laufwerk resume "+id {
			t.Errorf("%v: exit %d, %v: %s%s", args, code, err, out, errs)
		}
		w.WriteFile(config, string(good))
	}
	if out := w.MustRun([]int{0}, "resume", id); !strings.Contains(out, "Ada") {
		t.Errorf("%s", out)
	}
	w.MustRun([]int{0}, "cleanup", "--all")
	w.CheckNothingLeft()
}

// An interruption in the middle of copying the source leaves nothing that the resumed run could not make anew. Where the copy was
// quicker than the signal, a larger source is tried.
func TestInterruptedWhileItCopies(t *testing.T) {
	t.Parallel()
	for files := 2000; files <= 32000; files *= 4 {
		w := e2e.NewMachine(t)
		w.WriteWorkflowBody("slow", slow)
		for i := range files {
			w.WriteFile(filepath.Join(w.Project, "many", fmt.Sprintf("%d/%d", i%50, i)), strings.Repeat("x", i%2000))
		}
		r := w.Start(nil, "run", "slow", "--no-input")
		e2e.Eventually(t, "it copies", func() bool {
			made, _ := filepath.Glob(filepath.Join(w.Home, "workspaces/*/*/many"))
			return len(made) > 0
		})
		r.Signal(syscall.SIGINT)
		code, out, errs := r.Wait()
		w.CheckSignalled([]syscall.Signal{syscall.SIGINT}, code, out, errs)
		copied := w.CountRecords()["completed workspace.open"]
		if err := os.RemoveAll(filepath.Join(w.Project, "many")); err != nil { // sourceIs knows nothing of it
			t.Fatal(err)
		}
		finishAfterSignals(w)
		if n := w.CountRecords()["completed workspace.open"]; n != 1 {
			t.Errorf("the workspace was opened %d times", n)
		}
		if copied == 0 {
			return
		}
		t.Logf("%d files were copied before the signal came", files)
	}
	testkit.Need(t, "a machine that takes longer to copy than to signal", false, "no copy was interrupted")
}
