package local_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/system/process"
)

// threeOps does one operation that is over in a moment, one turn and one command that are held while a file is there.
const threeOps = `
    const workspace = yield* Workspace.open({ source: ".", execution });
    const s = yield* Session.open({ key: "s", agent, workspace });
    yield* s.exec({ key: "first", command: "echo first >> COUNTS/ran" });
    yield* s.ask({ key: "turn", prompt: "edit" });
    yield* s.exec({ key: "second", command: "echo second >> COUNTS/ran; while [ -e COUNTS/hold2 ]; do sleep 0.02; done" });
    yield* s.close();
    return "done";
`

// cuts are the two operations of threeOps that can be met in their middle.
var cuts = []struct{ name, hold, begins, op string }{ //nolint:gochecknoglobals // a table of two tests
	{"turn", e2e.HoldFile, "begin", "session.ask[s]:turn"},
	{"command", "hold2", "second", "session.exec[s]:second"},
}

// startBlocked starts threeOps and returns with it in the middle of the operation.
func startBlocked(w *e2e.Machine, name, file, begins string) *e2e.Process {
	w.T.Helper()
	w.WriteWorkflowBody("three", threeOps)
	w.Mark(file)
	r := w.Start(nil, "run", "three", "--no-input")
	w.AwaitRan(begins, 1)
	e2e.Eventually(w.T, "the supervisor of the "+name+" alone lives", func() bool { return len(w.LiveSupervisors()) == 1 })
	return r
}

// checkRanTwice checks threeOps, of which one operation was cut once: it alone ran twice, which is journaled.
func checkRanTwice(w *e2e.Machine, cut, op string) {
	w.T.Helper()
	for word, id := range map[string]string{"first": "session.exec[s]:first", "begin": "session.ask[s]:turn", "second": "session.exec[s]:second"} {
		want := 1
		if word == cut {
			want = 2
		}
		if n := w.CountRan()[word]; n != want {
			w.T.Errorf("%q ran %d times, want %d", word, n, want)
		}
		j := w.CountRecords()
		if j["started "+id] != want || j["cut "+id] != want-1 || j["completed "+id] != 1 {
			w.T.Errorf("the journal says of %s: started %d times, cut %d, completed %d", id, j["started "+id], j["cut "+id], j["completed "+id])
		}
	}
	for _, r := range w.JournalRecords() {
		if r.Type == journal.Cut && (r.Op != op || r.Attempt != 1 || !strings.Contains(r.Reason, "killed")) {
			w.T.Errorf("cut: %+v", r)
		}
	}
}

// SIGKILL of the supervisor, and of both: completed operations never run twice, the cut one once more, journaled as cut.
func TestSupervisorIsKilled(t *testing.T) {
	for _, c := range cuts {
		for _, both := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/both=%t", c.name, both), func(t *testing.T) {
				t.Parallel()
				w := e2e.NewMachine(t)
				if !w.HasControlGroups() {
					t.Skip("no control groups (cgroup v2) can be made here: TestSupervisorIsKilledWithoutControlGroup holds what then happens")
				}
				worker := startBlocked(w, c.name, c.hold, c.begins)
				if both {
					worker.Kill()
				}
				w.KillSupervisor()
				awaitRepeated(w, worker, both, c.begins)
				w.Unmark(c.hold)
				if !both {
					if code, out, errs := worker.Wait(); code != 0 {
						t.Fatalf("exit %d\n%s%s", code, out, errs)
					}
				}
				if r := w.Finish(); r.State != "succeeded" {
					t.Fatalf("the run is %s", r.State)
				}
				checkRanTwice(w, c.begins, c.op)
				if b, _ := os.ReadFile(filepath.Join(w.Counts, "ran")); c.name == "turn" && !strings.Contains(string(b), "cut off") {
					t.Errorf("the agent was not told that its turn was cut: %q", b)
				}
				w.MustRun([]int{0}, "cleanup", "--all", "--discard-changes")
				w.CheckNothingLeft()
			})
		}
	}
}

// awaitRepeated waits until the cut operation was made again: by the worker that lives, or by the one that resumes.
func awaitRepeated(w *e2e.Machine, worker *e2e.Process, resume bool, word string) {
	w.T.Helper()
	if resume {
		r := w.Start(nil, "resume", w.OnlyRun().ID, "--no-input")
		w.AwaitRan(word, 2)
		r.Kill() // the third worker joins what the second one started
		return
	}
	_ = worker
	w.AwaitRan(word, 2)
}

// Without a control group nobody can be sure that nothing of a killed supervisor's is left: the outcome is unknown, the
// session can only be closed, closing cannot be proved, and abandoning the claim is the way out. Nothing hangs.
func TestSupervisorIsKilledWithoutControlGroup(t *testing.T) {
	for _, c := range cuts {
		for _, both := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/both=%t", c.name, both), func(t *testing.T) {
				t.Parallel()
				w := e2e.NewMachine(t)
				w.BecomeNobody()
				worker := startBlocked(w, c.name, c.hold, c.begins)
				if both {
					worker.Kill()
				}
				s := w.KillSupervisor()
				if s.Started.Cgroup != "" {
					t.Fatalf("it has the control group %s", s.Started.Cgroup)
				}
				var code int
				var out, errs string
				if both {
					code, out, errs = w.Run(nil, "resume", w.OnlyRun().ID, "--no-input")
				} else {
					code, out, errs = worker.Wait()
				}
				if code != 9 || !strings.Contains(errs, "claims abandon") {
					t.Fatalf("exit %d\n%s%s", code, out, errs)
				}
				r := w.OnlyRun()
				j := w.CountRecords()
				if r.State != "failed" || j["started "+c.op] != 1 || j["completed "+c.op] != 1 || w.CountRan()[c.begins] != 1 || w.CountRan()["first"] != 1 {
					t.Errorf("%s; %v; %v", r.State, w.CountRan(), j)
				}
				abandon(w, r.ID)
			})
		}
	}
}

// abandon goes the way out of a session that can never be proved to have ended.
func abandon(w *e2e.Machine, run string) {
	w.T.Helper()
	w.MustRun([]int{6}, "cleanup", run, "--discard-changes")
	w.MustRun([]int{6}, "runs", "prune", run)
	n := 0
	for _, c := range w.ListClaims() {
		if c.Kind == "session" {
			n++
			w.MustRun([]int{0}, "claims", "abandon", c.ID, "--reason", "looked at it")
		}
	}
	if n != 1 {
		w.T.Errorf("%d sessions were abandoned", n)
	}
	w.MustRun([]int{0}, "cleanup", run, "--discard-changes")
	w.MustRun([]int{0}, "runs", "prune", run)
	if left := w.ListClaims(); len(left) > 0 {
		w.T.Errorf("claims left: %v", left)
	}
}

// A run that is in such doubt can be cancelled, also where it could never be resumed.
func TestCancelInDoubt(t *testing.T) {
	for name, cancel := range map[string]func(w *e2e.Machine, id string){
		"cancel": func(w *e2e.Machine, id string) {
			if code, _, errs := w.Run(nil, "runs", "cancel", id); code != 9 || !strings.Contains(errs, "is cancelled") || !strings.Contains(errs, "laufwerk cleanup "+id) {
				w.T.Errorf("exit %d: %s", code, errs)
			}
		},
		"cleanup": func(w *e2e.Machine, _ string) {
			w.MustRun([]int{6}, "cleanup", "--all", "--cancel", "--discard-changes")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := e2e.NewMachine(t)
			w.BecomeNobody()
			startBlocked(w, "turn", e2e.HoldFile, "begin").Kill()
			w.KillSupervisor()
			w.WriteFile(filepath.Join(w.Project, "laufwerk/laufwerk.config.ts"), "throw new Error('broken');\n")
			id := w.OnlyRun().ID
			w.MustRun([]int{3}, "resume", id)
			cancel(w, id)
			if r := w.OnlyRun(); r.State != "cancelled" {
				t.Errorf("the run is %s", r.State)
			}
			abandon(w, id)
		})
	}
}

// sleeper is a process of somebody else's.
func sleeper(t *testing.T) process.Identity {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	id, err := process.IdentityOf(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// A stranger has the process id that a dead supervisor recorded, also with its very start time: it is never touched.
func TestStrangerWithARecordedProcessID(t *testing.T) {
	for _, sameStart := range []bool{false, true} {
		for _, cancel := range []bool{false, true} {
			t.Run(fmt.Sprintf("start=%t/cancel=%t", sameStart, cancel), func(t *testing.T) {
				t.Parallel()
				w := e2e.NewMachine(t)
				if !w.HasControlGroups() {
					t.Skip("no control groups (cgroup v2) can be made here, so a killed supervisor leaves the run in doubt")
				}
				startBlocked(w, "turn", e2e.HoldFile, "begin").Kill()
				s := w.KillSupervisor()
				stranger := sleeper(t)
				if !sameStart {
					stranger.StartTime++
				}
				s.Started.Supervisor = stranger
				rewriteJSON(w, filepath.Join(s.Dir, "started"), s.Started)
				w.Unmark(e2e.HoldFile)
				if cancel {
					w.MustRun([]int{0}, "runs", "cancel", w.OnlyRun().ID)
				} else if r := w.Finish(); r.State != "succeeded" {
					t.Fatalf("the run is %s", r.State)
				}
				w.MustRun([]int{0}, "cleanup", "--all", "--discard-changes")
				w.CheckNothingLeft()
				if !sameStart {
					stranger.StartTime--
				}
				if process.Probe(stranger) != process.Alive {
					t.Error("the stranger was ended")
				}
			})
		}
	}
}

func rewriteJSON(w *e2e.Machine, path string, v any) {
	w.T.Helper()
	b, err := json.Marshal(v)
	if err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		w.T.Fatal(err)
	}
}

// A directory has the name of a session or a workspace of ours, and not its identity: it is never touched, before ours is
// made and in place of ours.
func TestStrangersDirectory(t *testing.T) {
	plant := func(t *testing.T, dir string) (unharmed func()) {
		file := filepath.Join(dir, "precious")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("not ours"), 0o644); err != nil {
			t.Fatal(err)
		}
		return func() {
			t.Helper()
			if b, err := os.ReadFile(file); err != nil || string(b) != "not ours" {
				t.Errorf("the stranger's file: %q, %v", b, err)
			}
		}
	}
	t.Run("before ours", func(t *testing.T) {
		t.Parallel()
		w := e2e.NewMachine(t)
		w.WriteWorkflowBody("late", `
    if (!(yield* Human.confirm({ key: "go", title: "Go?" }))) return "no";
    const workspace = yield* Workspace.open({ source: ".", execution });
    const s = yield* Session.open({ key: "s", agent, workspace });
    yield* s.ask({ key: "turn", prompt: "edit" });
`)
		w.MustRun([]int{8}, "run", "late", "--no-input")
		id := w.OnlyRun().ID
		unharmed := plant(t, filepath.Join(w.Home, "runs", id, "sessions", claims.ID(id, "session:s")))
		code, _, errs := w.Run(nil, "answer", id, "go", "yes")
		if code == 0 || !strings.Contains(errs, "was not changed") {
			t.Errorf("exit %d: %s", code, errs)
		}
		if n := w.CountRan()["begin"]; n != 0 {
			t.Errorf("the agent ran %d times", n)
		}
		unharmed()
		w.MustRun([]int{0}, "cleanup", id, "--discard-changes")
		unharmed()
	})
	t.Run("in place of ours", func(t *testing.T) {
		t.Parallel()
		w := e2e.NewMachine(t)
		worker := startBlocked(w, "turn", e2e.HoldFile, "begin")
		worker.Kill()
		w.Unmark(e2e.HoldFile)
		e2e.Eventually(t, "the turn is over", func() bool { return len(w.LiveSupervisors()) == 0 })
		id := w.OnlyRun().ID
		var unharmed []func()
		for _, c := range w.ListClaims() {
			dir := filepath.Join(w.Home, "workspaces", c.ID)
			if c.Kind == "session" {
				dir = filepath.Join(w.Home, "runs", id, "sessions", c.ID)
			}
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			unharmed = append(unharmed, plant(t, dir))
		}
		if len(unharmed) != 2 {
			t.Fatalf("%d claims", len(unharmed))
		}
		w.MustRun([]int{0}, "runs", "cancel", id)
		w.MustRun([]int{6}, "cleanup", id, "--discard-changes")
		for _, kind := range []string{"session", "workspace"} { // in the order of clean-up
			w.MustRun([]int{6}, "cleanup", id, "--discard-changes")
			for _, c := range w.ListClaims() {
				if c.Kind == kind {
					w.MustRun([]int{0}, "claims", "abandon", c.ID, "--reason", "it is a stranger's")
				}
			}
		}
		w.MustRun([]int{0}, "cleanup", id, "--discard-changes")
		for _, ok := range unharmed {
			ok()
		}
	})
}

// Two workers on one run: one works, the other names it. While one works, nobody else takes anything from it.
func TestSecondWorkerNamesTheFirst(t *testing.T) {
	t.Parallel()
	w := e2e.NewMachine(t)
	worker := startBlocked(w, "turn", e2e.HoldFile, "begin")
	id := w.OnlyRun().ID
	for _, args := range [][]string{{"resume", id}, {"cleanup", id}, {"runs", "prune", id}} {
		code, out, errs := w.Run(nil, args...)
		if code != 5 || args[0] == "resume" && !strings.Contains(errs, "process "+strconv.Itoa(worker.PID())+" ") {
			t.Errorf("%v: exit %d\n%s%s", args, code, out, errs)
		}
	}
	w.Unmark(e2e.HoldFile)
	if code, out, errs := worker.Wait(); code != 0 {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	checkRanTwice(w, "", "")
}

// A live worker cancels its run itself: what runs is ended, and journaled as cancelled. One that does not answer is killed.
func TestCancelOfALiveWorker(t *testing.T) {
	for _, hung := range []bool{false, true} {
		t.Run(fmt.Sprintf("hung=%t", hung), func(t *testing.T) {
			t.Parallel()
			w := e2e.NewMachine(t)
			worker := startBlocked(w, "turn", e2e.HoldFile, "begin")
			id := w.OnlyRun().ID
			args := []string{"runs", "cancel", id}
			if hung {
				worker.Signal(syscall.SIGSTOP)
				args = append(args, "--force")
			}
			w.MustRun([]int{0}, args...)
			if len(w.LiveSupervisors()) > 0 {
				t.Error("the turn goes on")
			}
			want := 7
			if hung {
				want = 128 + int(syscall.SIGKILL)
			}
			if code, out, errs := worker.Wait(); code != want {
				t.Errorf("the worker: exit %d\n%s%s", code, out, errs)
			}
			if r := w.OnlyRun(); r.State != "cancelled" {
				t.Errorf("the run is %s", r.State)
			}
			w.MustRun([]int{5}, "resume", id)
			w.MustRun([]int{0}, "cleanup", id, "--discard-changes")
			w.CheckNothingLeft()
		})
	}
}

func TestAnswerTwiceAndWhatIsNotAsked(t *testing.T) {
	t.Parallel()
	w := e2e.NewMachine(t)
	w.MustRun([]int{8}, "run", "job", "--no-input")
	id := w.OnlyRun().ID
	if code, _, errs := w.Run(nil, "answer", id, "aprove", "yes"); code != 2 || !strings.Contains(errs, "approve") {
		t.Errorf("a question that is not asked: exit %d, %s", code, errs)
	}
	if code, _, errs := w.Run(nil, "answer", id, "approve", "perhaps"); code != 2 || !strings.Contains(errs, "yes or no") {
		t.Errorf("an answer that is none: exit %d, %s", code, errs)
	}
	w.MustRun([]int{0}, "answer", id, "approve", "yes", "--no-resume")
	if code, _, errs := w.Run(nil, "answer", id, "approve", "no"); code != 5 || !strings.Contains(errs, "answered already") {
		t.Errorf("a second answer: exit %d, %s", code, errs)
	}
	w.MustRun([]int{0}, "resume", id)
	w.MustRun([]int{5}, "answer", id, "approve", "no")
	w.FinishAndCheck(1)
}

// startQuestionInTurn starts a run whose worker has asked for a name, and holds a turn beside it until hold is no more.
func startQuestionInTurn(w *e2e.Machine) *e2e.Process {
	w.T.Helper()
	w.WriteWorkflowBody("both", `
    const workspace = yield* Workspace.open({ source: ".", execution });
    const s = yield* Session.open({ key: "s", agent, workspace });
    const [, name] = yield* all([s.ask({ key: "turn", prompt: "edit" }), Human.text({ key: "name", title: "Your name?" })]);
    return name;
`)
	w.Mark(e2e.HoldFile)
	r := w.Start(nil, "run", "both", "--no-input")
	w.AwaitRan("begin", 1)
	e2e.Eventually(w.T, "it asks", func() bool { return w.CountRecords()["started human:name"] == 1 })
	return r
}

// A worker that has more to do than to wait takes an answer that comes from elsewhere.
func TestAnswerWhileAWorkerLives(t *testing.T) {
	t.Parallel()
	w := e2e.NewMachine(t)
	worker := startQuestionInTurn(w)
	id := w.OnlyRun().ID
	w.MustRun([]int{0}, "answer", id, "name", "Ada")
	e2e.Eventually(t, "the answer is journaled", func() bool { return w.CountRecords()["completed human:name"] == 1 })
	w.Unmark(e2e.HoldFile)
	if code, out, errs := worker.Wait(); code != 0 || !strings.Contains(out, "Ada") {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	w.MustRun([]int{0}, "cleanup", id, "--discard-changes")
	w.CheckNothingLeft()
}

// Answers that come at once with each other and with resumes: one counts, everything runs once, and nobody has to come back.
func TestAnswersRaceWithResumes(t *testing.T) {
	t.Parallel()
	w := e2e.NewMachine(t)
	w.MustRun([]int{8}, "run", "job", "--no-input")
	id := w.OnlyRun().ID
	var all []*e2e.Process
	for i := range 6 {
		args := []string{"answer", id, "approve", "yes"}
		if i%2 == 1 {
			args = []string{"resume", id, "--no-input"}
		}
		all = append(all, w.Start(nil, args...))
	}
	for i, r := range all {
		code, out, errs := r.Wait()
		if code != 0 && code != 5 && (i%2 == 0 || code != 8) {
			t.Errorf("process %d: exit %d\n%s%s", i, code, out, errs)
		}
	}
	if r := w.OnlyRun(); r.State != "succeeded" {
		t.Errorf("all have ended, and the run is %s", r.State)
	}
	w.FinishAndCheck(1)
	if n := w.CountRecords()["completed human:approve"]; n != 1 {
		t.Errorf("the answer was journaled %d times", n)
	}
}

// An answer that comes while the worker is about to leave is not left lying: somebody takes it.
func TestAnswerMeetsTheWorkerThatLeaves(t *testing.T) {
	t.Parallel()
	w := e2e.NewMachine(t)
	w.WriteWorkflowBody("ask", `return yield* Human.text({ key: "name", title: "Your name?" });`)
	for i := range 10 {
		worker := w.Start(nil, "run", "ask", "--no-input")
		var id string
		e2e.Eventually(t, "it asks", func() bool {
			for _, r := range w.ListRuns() {
				b, _ := os.ReadFile(filepath.Join(w.Home, "runs", r.ID, "journal"))
				if r.State != "succeeded" && strings.Contains(string(b), `"started"`) {
					id = r.ID
					return true
				}
			}
			return false
		})
		w.MustRun([]int{0}, "answer", id, "name", "Ada")
		if code, out, errs := worker.Wait(); code != 8 && code != 0 {
			t.Fatalf("exit %d\n%s%s", code, out, errs)
		}
		e2e.Eventually(t, fmt.Sprintf("run %d has its answer and ends", i), func() bool { return w.ListRuns()[0].State == "succeeded" })
	}
}

// What a completed turn left running in the background survives a handover between workers, and ends with its session.
func TestBackgroundProcessOfACompletedTurn(t *testing.T) {
	ends := map[string]func(w *e2e.Machine, id string){
		"close":  func(w *e2e.Machine, id string) { w.Unmark("hold2"); w.MustRun([]int{0}, "resume", id, "--no-input") },
		"cancel": func(w *e2e.Machine, id string) { w.MustRun([]int{0}, "runs", "cancel", id) },
		"cleanup": func(w *e2e.Machine, _ string) {
			w.MustRun([]int{0}, "cleanup", "--all", "--cancel", "--discard-changes")
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := e2e.NewMachine(t)
			daemons := []string{filepath.Join(w.Dir, "disowned"), filepath.Join(w.Dir, "setsid")}
			w.WriteWorkflowBody("three", strings.Replace(threeOps, `echo first >> COUNTS/ran`,
				`echo first >> COUNTS/ran; (exec -a `+daemons[0]+` sleep 1000) & disown; setsid bash -c 'exec -a `+daemons[1]+` sleep 1000' &`, 1))
			w.Mark("hold2")
			worker := w.Start(nil, "run", "three", "--no-input")
			w.AwaitRan("second", 1)
			alive := func() (n int) {
				for _, d := range daemons {
					n += len(commandLines(d))
				}
				return n
			}
			e2e.Eventually(t, "both run", func() bool { return alive() == 2 })
			worker.Kill()
			id := w.OnlyRun().ID
			second := w.Start(nil, "resume", id, "--no-input")
			e2e.Eventually(t, "another worker joined", func() bool { return w.CountRecords()["resumed"] == 1 && w.HasAttached(id) })
			if alive() != 2 {
				t.Errorf("%d of 2 survived the handover", alive())
			}
			second.Kill()
			if alive() != 2 {
				t.Errorf("%d of 2 survived the second kill", alive())
			}
			end(w, id)
			if n := alive(); n > 0 {
				t.Errorf("%d of 2 survived the %s", n, name)
			}
			if n := w.CountRan(); n["first"] != 1 || n["begin"] != 1 || n["second"] != 1 {
				t.Errorf("something ran twice: %v", n)
			}
			w.MustRun([]int{0}, "cleanup", "--all", "--discard-changes")
			w.CheckNothingLeft()
		})
	}
}

// commandLines are the processes whose name, as their command line has it, is exactly this.
func commandLines(name string) (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		b, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if first, _, _ := strings.Cut(string(b), "\x00"); err == nil && first == name {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			pids = append(pids, pid)
		}
	}
	return pids
}

// What is journaled of a sleep is when to wake up: it goes on while nobody works on the run.
func TestSleepGoesOnWithoutAWorker(t *testing.T) {
	t.Parallel()
	w := e2e.NewMachine(t)
	w.WriteWorkflowBody("nap", `
    const before = yield* Clock.now();
    yield* Clock.sleep({ key: "nap", duration: 700 });
    const after = yield* Clock.now();
    return after.getTime() - before.getTime();
`)
	worker := w.Start(nil, "run", "nap", "--no-input")
	e2e.Eventually(t, "it sleeps", func() bool {
		list := w.ListRuns()
		return len(list) == 1 && w.CountRecords()["started clock.sleep:nap"] == 1
	})
	worker.Kill()
	second := w.Start(nil, "resume", w.OnlyRun().ID)
	e2e.Eventually(t, "it goes on sleeping", func() bool { return w.CountRecords()["resumed"] == 1 })
	second.Kill()
	w.MustRun([]int{0}, "resume", w.OnlyRun().ID)
	wake := 0
	for _, r := range w.JournalRecords() {
		if r.Op == "clock.sleep:nap" {
			wake++
		}
	}
	if wake != 2 {
		t.Errorf("%d records of the sleep, want its beginning and its end", wake)
	}
	w.MustRun([]int{0}, "cleanup", w.OnlyRun().ID)
	w.CheckNothingLeft()
}
