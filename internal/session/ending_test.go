package session_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/session"
	"github.com/laufwerk/laufwerk/internal/supervise"
)

// taken says of sandboxes that a cancelled command takes them with it, and whether one has.
type taken struct{ along, gone atomic.Bool }

func (k *taken) enter(sb providers.Sandbox) (providers.Sandbox, error) {
	switch {
	case k.gone.Load():
		return nil, failure.New(failure.SessionLost, "the sandbox was deleted")
	case k.along.Load():
		return takenAlong{sb, k}, nil
	}
	return sb, nil
}

type takenAlong struct {
	providers.Sandbox
	k *taken
}

func (s takenAlong) Launcher() supervise.Launcher { return endingLauncher{s.Sandbox.Launcher(), s} }

type endingLauncher struct {
	supervise.Launcher
	s takenAlong
}

func (l endingLauncher) Cancel(ctx context.Context, _ string) supervise.FenceResult {
	l.s.k.gone.Store(true)
	f := l.s.Fence(ctx)
	f.How = supervise.HowSandbox
	return f
}

// Where a cancelled command takes its sandbox with it, nothing else is done in that session; what a timeout ends leaves it.
func TestACancelledCommandTakesItsSandboxWithIt(t *testing.T) {
	t.Parallel()
	w := newRunFixture(t)
	w.taken.along.Store(true)
	m := w.worker()
	w.opened(m, "s", w.agent("true"))
	if r, _, err := m.Exec(t.Context(), "s", session.ExecArgs{Command: "sleep 1000", Timeout: 50}, &operation{name: "late"}); !failure.Is(err, failure.CommandTimeout) {
		t.Fatalf("%+v %v", r, err)
	}
	if r, err := w.exec(m, "s", "echo still"); err != nil || r.Stdout != "still\n" {
		t.Fatalf("%+v %v", r, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	op := &operation{name: "command"}
	done := make(chan error, 1)
	go func() {
		_, _, err := m.Exec(ctx, "s", session.ExecArgs{Command: "echo begin >> log; sleep 1000"}, op)
		done <- err
	}()
	w.eventually("it runs", func() bool { return w.read("log") != "" })
	cancel(session.ErrCancelled)
	wantFailure(t, <-done, failure.Cancelled)
	if len(op.cuts) != 1 || op.cuts[0] != "cancelled; fenced by sandbox" {
		t.Errorf("%q", op.cuts)
	}
	if _, err := w.exec(m, "s", "echo more"); !failure.Is(err, failure.SessionLost) {
		t.Errorf("%v", err)
	}
	if err := m.Close(t.Context(), "s"); err != nil {
		t.Errorf("it cannot be closed: %v", err)
	}
}
