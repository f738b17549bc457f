package entered

import (
	"context"
	"path/filepath"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/guest"
	"github.com/laufwerk/laufwerk/internal/providers/sessiondir"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/supervise"
)

// launcher reaches the supervisors of a sandbox. Their records lie in a directory that both sides see.
type launcher struct{ s *Sandbox }

// Launch starts a supervisor inside. What it is to run goes through its stdin: arguments show in many places.
func (l launcher) Launch(ctx context.Context, dir string, spec supervise.Spec) error {
	at, err := l.s.insidePath(dir)
	if err != nil {
		return err
	}
	if err := l.s.Box.Start(ctx); err != nil {
		return supervise.MarkRefused(err)
	}
	if err := sessiondir.MakeOperation(l.s.Dir, filepath.Base(dir), l.s.Gives); err != nil {
		return supervise.MarkRefused(err)
	}
	if err := sessiondir.NoteLaunch(l.s.Dir); err != nil {
		return supervise.MarkRefused(err)
	}
	within, cancel := context.WithTimeout(ctx, l.s.Patience)
	defer cancel()
	unreached, taken := false, false
	err = supervise.Handshake(within, dir, spec, func(ctx context.Context, spec []byte) (p supervise.Pipe, err error) {
		if p, taken = l.s.Standby.connect(ctx, at, l.s.Env); taken {
			return p, nil
		}
		for again := true; ; again = false {
			p, done, err := l.s.Box.Open(ctx, guest.Supervise(at), spec)
			switch {
			case done == resource.NotDone && again && l.s.Box.Stopped(ctx):
				if err := l.s.Box.Start(ctx); err != nil {
					return supervise.Pipe{}, supervise.MarkRefused(err)
				}
				continue
			case done == resource.NotDone:
				unreached = failure.Is(err, failure.NotReady)
				return supervise.Pipe{}, supervise.MarkRefused(l.s.Box.Explain(ctx, err))
			}
			return p, err
		}
	})
	if taken && l.s.Standby.Next != nil {
		l.s.Standby.Next(ctx)
	}
	if err == nil {
		l.s.refused.Store(0)
		_ = sessiondir.NoteLaunched(l.s.Dir, filepath.Base(dir)) // without it the records inside are believed
		return nil
	}
	if l.s.Lasting != nil && unreached {
		return err
	}
	// Something inside may keep supervisors from coming up: it stops them, or leaves no room for a process more.
	again := l.s.refused.Add(1) > 1
	if ctx.Err() == nil && (again || within.Err() != nil) {
		l.s.Box.End(ctx)
	}
	return err
}

// Interrupt asks the command to stop in its own way.
func (l launcher) Interrupt(ctx context.Context, dir string) error {
	at, err := l.s.insidePath(dir)
	if err != nil {
		return err
	}
	out, _, err := l.s.RunOwn(ctx, guest.Interrupt(at), nil)
	if err != nil {
		return err
	}
	return guest.ReadInterrupt(out)
}

// Fence ends everything of an operation: by its supervisor, and where that cannot be sure, by the end of all of the sandbox.
func (l launcher) Fence(ctx context.Context, dir string) supervise.FenceResult {
	at, err := l.s.insidePath(dir)
	if err != nil {
		return supervise.FenceResult{Why: err.Error()}
	}
	launched, noted := sessiondir.LaunchTime(l.s.Dir, filepath.Base(dir))
	// That nothing was started is no longer so once it was: then something inside has taken the records away.
	believed := func(f supervise.FenceResult) bool { return f.Sure && (f.How != supervise.HowNothing || noted != nil) }
	if f, ok := supervise.NeedsNoFence(dir); ok {
		if believed(f) {
			return f
		}
		return l.s.Box.End(ctx)
	}
	if l.s.Lasting == nil && l.s.Box.Stopped(ctx) {
		return l.s.Box.End(ctx)
	}
	if out, _, err := l.s.RunOwn(ctx, guest.Fence(at), nil); err == nil {
		if f, err := guest.ReadFence(out); err == nil && believed(f) {
			return f
		}
	}
	if noted == nil && l.s.startedSince(ctx, launched) {
		return supervise.FenceResult{Sure: true, How: supervise.HowContainer}
	}
	return l.s.Box.End(ctx)
}

// startedSince says whether the sandbox was started again since something was launched: nothing of that can run.
func (s *Sandbox) startedSince(ctx context.Context, launched time.Time) bool {
	if s.Lasting == nil {
		return false
	}
	began, err := s.Lasting.Began(ctx)
	return err == nil && began.After(launched)
}

// Cancel ends a Lasting sandbox, whatever else runs in it.
func (l launcher) Cancel(ctx context.Context, dir string) supervise.FenceResult {
	if l.s.Lasting != nil {
		return l.s.Box.End(ctx)
	}
	return l.Fence(ctx, dir)
}
