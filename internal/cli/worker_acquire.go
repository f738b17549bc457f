package cli

import (
	"context"
	"errors"
	"syscall"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/runs"
	"github.com/laufwerk/laufwerk/internal/session"
	"github.com/laufwerk/laufwerk/internal/system"
)

// acquireRun calls acquire, which takes the lease of a run, and catches signals from its beginning: after a signal it fails with the
// state of the run, and later signals are left to runWorker. A second signal ends the process at once.
func acquireRun(ctx context.Context, s *runs.Service, run string, acquire func(context.Context) (runs.StartedRun, error)) (runs.StartedRun, *caughtSignals, error) {
	caught := catchSignals(ctx)
	acquiring, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var first syscall.Signal
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case first = <-caught.ch:
			cancel(session.ErrInterrupted)
		case <-acquiring.Done():
		}
	}()
	ended := make(chan struct{})
	go func() {
		if <-watched; first == 0 {
			return
		}
		select {
		case sig := <-caught.ch:
			system.Exit(128 + int(sig))
		case <-ended:
		}
	}()
	st, err := acquire(acquiring)
	cancel(nil)
	<-watched
	close(ended)
	if first != 0 && (err == nil || isCancellation(err)) {
		st.Lease.Release()
		err = readInterruption(context.WithoutCancel(ctx), s, run, first)
	}
	if err != nil {
		caught.Release()
		return runs.StartedRun{}, nil, err
	}
	return st, caught, nil
}

// isCancellation says whether an error only means that its context has ended.
func isCancellation(err error) bool {
	return errors.Is(err, session.ErrInterrupted) || errors.Is(err, context.Canceled) || failure.Is(err, failure.Cancelled)
}

// readInterruption is the error for a run that was not executed because of a signal, with the run's state.
func readInterruption(ctx context.Context, s *runs.Service, run string, sig syscall.Signal) error {
	r, err := s.Get(ctx, run)
	if err != nil {
		return err
	}
	return failWithDocument(interruptionError(r, sig), runDocument{Run: r.ID, Workflow: r.Workflow, State: r.State, Reason: r.Reason})
}
