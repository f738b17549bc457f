package session_test

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/providers/local"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/session"
	"github.com/laufwerk/laufwerk/internal/system"
)

// silent does not answer so many calls.
type silent struct {
	resource.Manager
	calls atomic.Int32
}

func (s *silent) ask() error {
	if s.calls.Add(-1) < 0 {
		s.calls.Store(0)
		return nil
	}
	return failure.New(failure.NotReady, "nobody answers")
}

func (s *silent) Create(ctx context.Context, in resource.Intent) resource.Result {
	if err := s.ask(); err != nil {
		return resource.Result{Err: err}
	}
	return s.Manager.Create(ctx, in)
}

func (s *silent) Resolve(ctx context.Context, in resource.Intent) resource.Result {
	if err := s.ask(); err != nil {
		return resource.Result{Err: err}
	}
	return s.Manager.Resolve(ctx, in)
}

func (s *silent) Observe(ctx context.Context, in resource.Intent) resource.Observation {
	if err := s.ask(); err != nil {
		return resource.Observation{Err: err}
	}
	return s.Manager.Observe(ctx, in)
}

func (s *silent) Delete(ctx context.Context, in resource.Intent) resource.Result {
	if err := s.ask(); err != nil {
		return resource.Result{Err: err}
	}
	return s.Manager.Delete(ctx, in)
}

// A session is made and closed when the other side can be asked: until then the run waits, and its workflow sees no failure.
func TestWhereNobodyAnswers(t *testing.T) {
	t.Parallel()
	w := newRunFixture(t)
	there := &silent{Manager: local.New(system.Executable(), w.host, time.Now)}
	m, a := w.worker(), w.agent("true")
	m.Driver = claims.NewDriver(claims.Options{
		Store: w.store, Now: time.Now, Owner: w.store.ID, Resources: func(claims.Kind, string) (resource.Manager, bool) { return there, true },
	})
	w.opened(m, "s", a)
	there.calls.Store(math.MaxInt32)
	_, err := w.exec(m, "s", "touch made")
	wantFailure(t, err, failure.NotReady, "not known", "nobody answers", "laufwerk resume "+w.run)
	if exists(w, "made") {
		t.Error("it ran")
	}
	there.calls.Store(0)
	if _, err := w.exec(m, "s", "touch made"); err != nil || !exists(w, "made") {
		t.Fatal(err)
	}

	there.calls.Store(math.MaxInt32)
	wantFailure(t, m.Close(t.Context(), "s"), failure.NotReady, "nobody answers", "laufwerk resume "+w.run)
	if err := m.CloseAll(t.Context()); !failure.Is(err, failure.CloseFailed) { // the workflow has ended: nothing waits any more
		t.Errorf("%v", err)
	}
	_, err = m.Open(t.Context(), "next", session.OpenArgs{Agent: a, Workspace: workspace})
	wantFailure(t, err, failure.WorkspaceBusy)
	there.calls.Store(3)
	if err := m.Close(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	w.opened(m, "next", a)
}
