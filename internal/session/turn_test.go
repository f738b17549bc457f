package session_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/session"
	"github.com/laufwerk/laufwerk/internal/supervise"
)

const conversation = "0190b5a0-9c5a-7cc2-8f5c-0a1b2c3d4e5f"

// talker keeps what it is asked, names its conversation, is held while a file is there, and answers.
const talker = `
echo "$REQUEST" >> requests
echo '{"type":"conversation","id":"` + conversation + `"}'
while [ -e hold ]; do sleep 0.005; done
echo '{"type":"message","text":"well"}'
echo '{"type":"usage","inputTokens":3,"outputTokens":2}'
echo '{"type":"done"}'`

func (w *runFixture) ask(m *session.Manager, ctx context.Context, op *operation, prompt string) (any, session.TurnRecord, error) { //nolint:revive // the runFixture comes first
	return m.Ask(ctx, "s", session.AskArgs{Prompt: prompt}, op)
}

func TestConversationGoesOnOverTurnsAndWorkers(t *testing.T) {
	t.Parallel()
	w := newRunFixture(t)
	a := w.agent(talker)
	m := w.worker()
	o := w.opened(m, "s", a)
	var turns []session.TurnRecord
	for i := range 3 {
		if i == 2 {
			m = w.resumed(o, a, turns...)
		}
		value, turned, err := w.ask(m, t.Context(), &operation{name: fmt.Sprint("ask", i)}, fmt.Sprint("prompt", i))
		if err != nil || value != "well" || turned.Conversation != conversation || turned.Usage == nil || turned.Usage.Input != 3 || turned.Attempts != 1 {
			t.Fatalf("turn %d: %v, %+v, %v", i, value, turned, err)
		}
		turns = append(turns, turned)
	}
	requests := lines(w.read("requests"))
	if len(requests) != 3 || strings.Contains(requests[0], conversation) || !strings.Contains(requests[1], conversation) || !strings.Contains(requests[2], conversation) {
		t.Errorf("%q", requests)
	}
}

// Of a command that fails the last lines of stderr are told, and none of one that does well.
func TestWhyACommandFailsIsReported(t *testing.T) {
	t.Parallel()
	w := newRunFixture(t)
	m := w.worker()
	w.opened(m, "s", w.agent(talker))
	for code, want := range map[int]string{0: "[]", 3: "[line 21\nline 22\nline 23\nline 24\nline 25\nline 26\nline 27\nline 28\nline 29\nline 30]"} {
		op := &operation{name: fmt.Sprint("exec", code)}
		r, _, err := m.Exec(t.Context(), "s", session.ExecArgs{Command: fmt.Sprintf("for i in $(seq 30); do echo line $i >&2; done; exit %d", code)}, op)
		if err != nil || r.ExitCode != code || fmt.Sprint(op.eventTexts("stderr")) != want {
			t.Errorf("exit %d, %v, told %q", r.ExitCode, err, op.eventTexts("stderr"))
		}
	}
	op := &operation{name: "long"}
	if _, _, err := m.Exec(t.Context(), "s", session.ExecArgs{Command: "head -c 100000 /dev/zero | tr '\\0' x >&2; exit 1"}, op); err != nil {
		t.Fatal(err)
	}
	if told := op.eventTexts("stderr"); len(told) != 1 || len(told[0]) > 2100 {
		t.Errorf("told %d texts: %.100q", len(told), told)
	}
}

// The conversation that a cut turn had named, and that it was cut, reach the next attempt: of the same worker, of another
// one, and of one that finds the next attempt journaled but never launched.
func TestCutTurnIsContinued(t *testing.T) {
	for _, how := range []string{"same worker", "another worker", "killed before the next launch"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w := newRunFixture(t)
			a := w.agent(talker)
			m := w.worker()
			o := w.opened(m, "s", a)
			w.write("hold")
			op := &operation{name: "ask"}
			ctx, leave := context.WithCancelCause(t.Context())
			defer leave(nil)
			done := make(chan error, 1)
			var turned session.TurnRecord
			go func() {
				_, got, err := w.ask(m, ctx, op, "do it")
				turned = got
				done <- err
			}()
			w.eventually("the agent names its conversation", func() bool { return len(op.eventTexts("agent")) > 0 })
			switch how {
			case "another worker":
				leave(session.ErrDetached)
				wantCause(t, <-done, session.ErrDetached)
			case "killed before the next launch":
				op.started = func() { leave(session.ErrDetached); panicUnless(op.attempts == 2) }
			}
			w.killSupervisor()
			if how == "killed before the next launch" {
				wantCause(t, <-done, session.ErrDetached)
				// This worker got as far as the journal. What it launched is as if it had not been: another attempt's folder.
				w.forget(op)
				op.started = nil
			}
			if how != "same worker" {
				m = w.resumed(o, a)
				go func() {
					_, got, err := w.ask(m, t.Context(), op, "do it")
					turned = got
					done <- err
				}()
			}
			w.eventually("the agent is asked again", func() bool { return strings.Count(w.read("requests"), "\n") >= 2 })
			if err := os.Remove(filepath.Join(w.ws, "hold")); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			requests := lines(w.read("requests"))
			last := requests[len(requests)-1]
			if !strings.Contains(last, conversation) || !strings.Contains(last, "cut off") || !strings.Contains(last, "do it") {
				t.Errorf("the second request is %s", last)
			}
			if len(requests) != 2 || len(op.cuts) < 1 || turned.Conversation != conversation {
				t.Errorf("%d requests, cut: %q, %+v", len(requests), op.cuts, turned)
			}
		})
	}
}

func panicUnless(ok bool) {
	if !ok {
		panic("the operation was started at another time")
	}
}

// forget makes the last attempt one that was never launched.
func (w *runFixture) forget(op *operation) {
	w.t.Helper()
	for _, dir := range w.attempts() {
		if strings.HasSuffix(dir, fmt.Sprintf("-%d", op.attempts)) {
			supervise.LocalLauncher{}.Fence(w.t.Context(), dir)
			if err := os.RemoveAll(dir); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

// Much output is drained and counted; what is told is the exit code.
func TestOutputPastTheCap(t *testing.T) {
	t.Parallel()
	w := newRunFixture(t)
	m := w.worker()
	w.opened(m, "s", w.agent("true"))
	r, err := w.exec(m, "s", fmt.Sprintf("head -c %d /dev/zero; echo done > done", session.MaxOutput))
	if err != nil || len(r.Stdout) != session.MaxOutput {
		t.Fatalf("%d bytes, %v", len(r.Stdout), err)
	}
	for _, stream := range []string{"", " >&2"} {
		_, err = w.exec(m, "s", fmt.Sprintf("head -c %d /dev/zero%s; echo done >> done; exit 3", session.MaxOutput+1, stream))
		f := wantFailure(t, err, failure.OutputTooLarge, fmt.Sprint(session.MaxOutput+1))
		if f.Fields["exitCode"] != 3 {
			t.Errorf("%v", f.Fields)
		}
	}
	if w.read("done") != "done\ndone\ndone\n" {
		t.Error("a command did not come to its end")
	}
	if r, err := w.exec(m, "s", "echo 'a\xffb'; echo e >&2; exit 4"); err != nil || r.ExitCode != 4 || r.Stdout != "a\uFFFDb\n" || r.Stderr != "e\n" {
		t.Errorf("%+v, %v", r, err)
	}
}

// A timeout ends the command with all that it started, and neither the session nor its conversation.
func TestTimeoutKeepsTheSession(t *testing.T) {
	t.Parallel()
	w := newRunFixture(t)
	m := w.worker()
	o := w.opened(m, "s", w.agent(talker))
	if _, _, err := w.ask(m, t.Context(), &operation{name: "first"}, "first"); err != nil {
		t.Fatal(err)
	}
	op := &operation{name: "long"}
	_, _, err := m.Exec(t.Context(), "s", session.ExecArgs{Command: "setsid sleep 1000 & trap '' INT; sleep 1000", Timeout: 50}, op)
	wantFailure(t, err, failure.CommandTimeout)
	if left := marked(t, o.Claim+"/"); left > 0 {
		t.Errorf("%d processes are left", left)
	}
	w.write("hold")
	_, turned, err := m.Ask(t.Context(), "s", session.AskArgs{Prompt: "second", Timeout: 50}, &operation{name: "second"})
	wantFailure(t, err, failure.CommandTimeout)
	if turned.Conversation != conversation || len(op.cuts) > 0 {
		t.Errorf("%+v, cut: %q", turned, op.cuts)
	}
	if err := os.Remove(filepath.Join(w.ws, "hold")); err != nil {
		t.Fatal(err)
	}
	if value, _, err := w.ask(m, t.Context(), &operation{name: "third"}, "third"); err != nil || value != "well" {
		t.Errorf("%v, %v", value, err)
	}
	if last := lines(w.read("requests")); !strings.Contains(last[len(last)-1], conversation) {
		t.Errorf("%q", last)
	}
}

func TestAgentThatFails(t *testing.T) {
	t.Parallel()
	for script, words := range map[string][]string{
		"echo oops >&2; exit 7":                     {"status 7", "oops"},
		`echo '{"type":"failed","message":"no"}'`:   {"failed: no"},
		"echo nonsense":                             {"protocol"},
		"true":                                      {"done"},
		`echo '{"type":"done"}'; kill -9 $$`:        {"137"},
		`exec -a gone /nowhere/at/all; echo unseen`: {"126", "127"},
	} {
		w := newRunFixture(t)
		m := w.worker()
		w.opened(m, "s", w.agent(script))
		_, turned, err := w.ask(m, t.Context(), &operation{name: "ask"}, "x")
		f := failure.As(err)
		if f == nil || f.Kind != failure.AgentFailed || turned.ExitCode == nil || turned.Lost {
			t.Errorf("%s: %v, %+v", script, err, turned)
			continue
		}
		found := false
		for _, word := range words {
			found = found || strings.Contains(f.Error(), word)
		}
		if !found {
			t.Errorf("%s: %q says none of %q", script, f.Error(), words)
		}
	}
}

// Variables: an allow-list of the worker's, what the operation names, and what it takes from the worker.
func TestEnvironmentOfCommands(t *testing.T) {
	t.Parallel()
	w := newRunFixture(t)
	w.host["GITHUB_TOKEN"], w.host["WANTED"] = "secret", "taken"
	m := w.worker()
	w.opened(m, "s", w.agent("true"))
	literal := "here"
	args := session.ExecArgs{Command: `echo "$A $B $GITHUB_TOKEN."; pwd; cat`, Env: map[string]session.Var{"A": {Value: &literal}, "B": {FromHost: "WANTED"}}, Stdin: &session.Bytes{Text: "input"}}
	r, _, err := m.Exec(t.Context(), "s", args, &operation{name: "env"})
	if real, _ := filepath.EvalSymlinks(w.ws); err != nil || r.Stdout != "here taken .\n"+real+"\ninput" {
		t.Errorf("%q, %v", r.Stdout, err)
	}
	args.Env["C"] = session.Var{FromHost: "MISSING"}
	op := &operation{name: "missing"}
	_, _, err = m.Exec(t.Context(), "s", args, op)
	wantFailure(t, err, failure.NotReady, "MISSING", "laufwerk resume "+w.run)
	if op.attempts > 0 {
		t.Error("it was started")
	}
}

// stops are the ways in which a worker comes away from a command that runs.
func TestWorkerLeavesACommand(t *testing.T) {
	const script = "trap 'echo stopped >> log; exit 0' INT; echo begin >> log; echo out; while [ ! -e go ]; do sleep 0.005; done; echo end >> log"
	for name, c := range map[string]struct {
		cause error
		log   string // in the end, after another worker has made or joined it
		cuts  int
	}{
		"detached":    {session.ErrDetached, "begin end", 0},
		"interrupted": {session.ErrInterrupted, "begin stopped begin end", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newRunFixture(t)
			a := w.agent("true")
			m := w.worker()
			o := w.opened(m, "s", a)
			ctx, leave := context.WithCancelCause(t.Context())
			op := &operation{name: "command"}
			done := make(chan error, 1)
			go func() {
				_, _, err := m.Exec(ctx, "s", session.ExecArgs{Command: script}, op)
				done <- err
			}()
			w.eventually("it runs", func() bool { return w.read("log") != "" })
			leave(c.cause)
			wantCause(t, <-done, c.cause)
			if running := marked(t, o.Claim+"/") > 0; running != errors.Is(c.cause, session.ErrDetached) {
				t.Errorf("it runs: %t", running)
			}
			go func() {
				r, turned, err := w.resumed(o, a).Exec(t.Context(), "s", session.ExecArgs{Command: script}, op)
				if err == nil && (r.Stdout != "out\n" || turned.Attempts != 1+c.cuts) {
					err = fmt.Errorf("%+v %+v", r, turned)
				}
				done <- err
			}()
			w.eventually("it is joined, or made again", func() bool {
				return len(op.eventTexts("attached")) > 0 || strings.Count(w.read("log"), "begin") == 2
			})
			w.write("go")
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(lines(w.read("log")), " "); got != c.log || len(op.cuts) != c.cuts {
				t.Errorf("%s; cut: %q", got, op.cuts)
			}
		})
	}
}

// A cancelled command is ended with all that it started, whether this worker started it or one before; only then it counts
// as cancelled. One that was not started is not.
func TestCancelledCommand(t *testing.T) {
	for _, resumed := range []bool{false, true} {
		t.Run(fmt.Sprintf("resumed=%t", resumed), func(t *testing.T) {
			t.Parallel()
			w := newRunFixture(t)
			a := w.agent("true")
			m := w.worker()
			o := w.opened(m, "s", a)
			ctx, cancel := context.WithCancelCause(t.Context())
			op := &operation{name: "command"}
			args := session.ExecArgs{Command: "setsid sleep 1000 & echo begin >> log; trap '' INT TERM; sleep 1000"}
			done := make(chan error, 1)
			go func() {
				_, _, err := m.Exec(ctx, "s", args, op)
				done <- err
			}()
			w.eventually("it runs", func() bool { return w.read("log") != "" })
			if resumed {
				cancel(session.ErrDetached)
				wantCause(t, <-done, session.ErrDetached)
				again, cancelled := context.WithCancelCause(t.Context())
				cancelled(session.ErrCancelled)
				_, _, err := w.resumed(o, a).Exec(again, "s", args, op)
				done <- err
			} else {
				cancel(session.ErrCancelled)
			}
			wantFailure(t, <-done, failure.Cancelled)
			if left := marked(t, o.Claim+"/"); left > 0 || len(op.cuts) != 1 || op.attempts != 1 {
				t.Errorf("%d processes are left, cut: %q, %d attempts", left, op.cuts, op.attempts)
			}
			never := &operation{name: "never"}
			dead, cancelled := context.WithCancelCause(t.Context())
			cancelled(session.ErrCancelled)
			_, _, err := m.Exec(dead, "s", session.ExecArgs{Command: "echo never >> log"}, never)
			wantFailure(t, err, failure.Cancelled)
			if never.attempts > 0 || w.read("log") != "begin\n" {
				t.Errorf("%d attempts, %q", never.attempts, w.read("log"))
			}
		})
	}
}

// An attempt that was journaled and never launched is not made any more once it is cancelled.
func TestCancelledBeforeItsLaunch(t *testing.T) {
	t.Parallel()
	w := newRunFixture(t)
	a := w.agent("true")
	m := w.worker()
	o := w.opened(m, "s", a)
	ctx, leave := context.WithCancelCause(t.Context())
	op := &operation{name: "command"}
	op.started = func() { leave(session.ErrDetached) }
	args := session.ExecArgs{Command: "echo ran >> log; sleep 1000"}
	_, _, err := m.Exec(ctx, "s", args, op)
	wantCause(t, err, session.ErrDetached)
	w.forget(op)
	log := w.read("log")
	op.started = nil
	dead, cancel := context.WithCancelCause(t.Context())
	cancel(session.ErrCancelled)
	_, _, err = w.resumed(o, a).Exec(dead, "s", args, op)
	wantFailure(t, err, failure.Cancelled)
	if op.attempts != 1 || w.read("log") != log {
		t.Errorf("%d attempts, %q and then %q", op.attempts, log, w.read("log"))
	}
}

// What a completed command left in the background lives on while workers change, and ends with the session.
func TestBackgroundProcessEndsWithItsSession(t *testing.T) {
	t.Parallel()
	w := newRunFixture(t)
	a := w.agent("true")
	m := w.worker()
	o := w.opened(m, "s", a)
	if r, err := w.exec(m, "s", "setsid sleep 1000 > /dev/null 2>&1 & sleep 1000 & disown; echo there"); err != nil || r.Stdout != "there\n" {
		t.Fatalf("%+v, %v", r, err)
	}
	w.eventually("both run", func() bool { return marked(t, o.Claim+"/") == 2 })
	m = w.resumed(o, a)
	if _, err := w.exec(m, "s", "true"); err != nil || marked(t, o.Claim+"/") != 2 {
		t.Fatalf("%d live, %v", marked(t, o.Claim+"/"), err)
	}
	if err := m.Close(t.Context(), "s"); err != nil || marked(t, o.Claim) > 0 {
		t.Errorf("%d live, %v", marked(t, o.Claim), err)
	}
}

// Somebody kills every supervisor (a machine without memory): that is no reason to try for ever, nor a failure of the run.
func TestSupervisorsThatAreKilledInARow(t *testing.T) {
	t.Parallel()
	w := newRunFixture(t)
	m := w.worker()
	w.opened(m, "s", w.agent("true"))
	op := &operation{name: "command"}
	done := make(chan error, 1)
	go func() {
		_, _, err := m.Exec(t.Context(), "s", session.ExecArgs{Command: "echo begin >> log; sleep 1000"}, op)
		done <- err
	}()
	for i := range 3 {
		w.eventually("it runs", func() bool { return strings.Count(w.read("log"), "begin") == i+1 })
		w.killSupervisor()
	}
	wantFailure(t, <-done, failure.NotReady, "3 times in a row", "laufwerk resume "+w.run)
	if len(op.cuts) != 3 {
		t.Errorf("cut: %q", op.cuts)
	}
}
