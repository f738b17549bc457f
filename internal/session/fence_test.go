package session_test

import (
	"context"
	"testing"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/session"
	"github.com/laufwerk/laufwerk/internal/supervise"
)

// unreachable is a sandbox of which nothing can be learned when something is to be ended.
type unreachable struct{ providers.Sandbox }

func (s unreachable) Launcher() supervise.Launcher { return deaf{s.Sandbox.Launcher()} }

type deaf struct{ supervise.Launcher }

func (deaf) Fence(context.Context, string) supervise.FenceResult {
	return supervise.FenceResult{How: supervise.HowContainer, Why: "the engine does not answer", Later: true}
}

func (d deaf) Cancel(ctx context.Context, dir string) supervise.FenceResult { return d.Fence(ctx, dir) }

// Where it cannot be learned now what still runs, the operation stays open, and the session is as good as it was once that is
// over: for whoever cancels, and where a supervisor was killed.
func TestAFenceThatCannotBeHadNow(t *testing.T) {
	for _, how := range []string{"cancelled", "lost"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w := newRunFixture(t)
			a := w.agent("true")
			w.deaf.Store(true)
			m := w.worker()
			o := w.opened(m, "s", a)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			op := &operation{name: "command"}
			args := session.ExecArgs{Command: "echo begin >> log; [ -e again ] || sleep 1000"}
			type ended struct {
				turned session.TurnRecord
				err    error
			}
			done := make(chan ended, 1)
			go func() {
				_, turned, err := m.Exec(ctx, "s", args, op)
				done <- ended{turned, err}
			}()
			w.eventually("it runs", func() bool { return w.read("log") == "begin\n" })
			if how == "cancelled" {
				cancel(session.ErrCancelled)
			} else {
				w.killSupervisor()
			}
			end := <-done
			wantFailure(t, end.err, failure.NotReady, "does not answer", "laufwerk resume "+w.run)
			if end.turned.Lost || len(op.cuts) > 0 || op.attempts != 1 {
				t.Errorf("%+v, cut: %q, %d attempts", end.turned, op.cuts, op.attempts)
			}
			if r, err := w.exec(m, "s", "echo still"); err != nil || r.Stdout != "still\n" {
				t.Errorf("the session is lost: %+v, %v", r, err)
			}
			w.deaf.Store(false)
			w.write("again")
			m = w.resumed(o, a)
			if how == "cancelled" {
				_, _, err := m.Exec(ctx, "s", args, op)
				wantFailure(t, err, failure.Cancelled)
				if left := marked(t, o.Claim+"/"); left > 0 || len(op.cuts) != 1 {
					t.Errorf("%d processes are left, cut: %q", left, op.cuts)
				}
				return
			}
			if _, _, err := m.Exec(t.Context(), "s", args, op); err != nil || w.read("log") != "begin\nbegin\n" || len(op.cuts) != 1 {
				t.Errorf("%v, %q, cut: %q", err, w.read("log"), op.cuts)
			}
		})
	}
}

// startless is a sandbox in which nothing can be started.
type startless struct{ providers.Sandbox }

func (s startless) Launcher() supervise.Launcher { return without{s.Sandbox.Launcher()} }

type without struct{ supervise.Launcher }

func (without) Launch(context.Context, string, supervise.Spec) error {
	return supervise.MarkRefused(failure.New(failure.NotReady, "the engine has other files").WithHint("laufwerk doctor --probe"))
}

// Where nothing can be started, the run waits; why is said, and what to type first.
func TestASandboxInWhichNothingStarts(t *testing.T) {
	t.Parallel()
	w := newRunFixture(t)
	w.empty.Store(true)
	m := w.worker()
	w.opened(m, "s", w.agent("true"))
	_, err := w.exec(m, "s", "echo made > made")
	wantFailure(t, err, failure.NotReady, "the engine has other files", "laufwerk doctor --probe\nlaufwerk resume "+w.run)
	if exists(w, "made") {
		t.Error("it ran")
	}
}
