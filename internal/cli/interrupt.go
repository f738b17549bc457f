package cli

import (
	"context"
	"syscall"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system"
)

// Interruptible is ctx that also ends with SIGINT, SIGTERM or SIGHUP; its cause is then a failure of the signal's kind. A
// second signal ends the process at once. stop must be called.
func (d *Deps) Interruptible(ctx context.Context) (interruptible context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		for sig := range system.Signals(ctx) {
			kind := failure.Interrupted
			switch sig {
			case syscall.SIGTERM:
				kind = failure.Terminated
			case syscall.SIGHUP:
				kind = failure.HungUp
			}
			cancel(failure.New(kind, "interrupted")) // and with it the watch over signals
		}
	}()
	return ctx, func() { cancel(nil) }
}
