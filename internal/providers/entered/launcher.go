package entered

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/inside"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/providers/sessiondir"
	"github.com/laufwerk/laufwerk/internal/supervise"
)

// launcher reaches the supervisors of a sandbox. Their records lie in a directory that both sides see.
type launcher struct{ s *Sandbox }

// Launch starts a supervisor inside. What it is to run goes through its stdin: arguments show in many places.
func (l launcher) Launch(ctx context.Context, dir string, spec supervise.Spec) error {
	at, err := l.s.seen(dir)
	if err != nil {
		return err
	}
	if err := l.s.Box.Start(ctx); err != nil {
		return supervise.Refused(err)
	}
	if err := sessiondir.MakeOperation(l.s.Dir, filepath.Base(dir), l.s.Gives); err != nil {
		return supervise.Refused(err)
	}
	if l.s.Lasting != nil {
		if err := sessiondir.NoteLaunch(l.s.Dir, filepath.Base(dir)); err != nil {
			return supervise.Refused(err)
		}
	}
	within, cancel := context.WithTimeout(ctx, l.s.Patience)
	defer cancel()
	unreached := false
	err = supervise.Handshake(within, dir, spec, func(ctx context.Context, spec []byte) (supervise.Pipe, error) {
		for again := true; ; again = false {
			p, done, err := l.s.Box.Open(ctx, inside.Supervise(at), spec)
			switch {
			case done == providers.No && again && l.s.Box.Stopped(ctx):
				if err := l.s.Box.Start(ctx); err != nil {
					return supervise.Pipe{}, supervise.Refused(err)
				}
				continue
			case done == providers.No:
				unreached = failure.Is(err, failure.NotReady)
				return supervise.Pipe{}, supervise.Refused(l.s.Box.Explain(ctx, err))
			}
			return p, err
		}
	})
	if err == nil {
		l.s.refused.Store(0)
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
	at, err := l.s.seen(dir)
	if err != nil {
		return err
	}
	out, _, err := l.s.Own(ctx, inside.Interrupt(at), nil)
	if err != nil {
		return err
	}
	return inside.Interrupted(out)
}

// Fence ends everything of an operation: by its supervisor, and where that cannot be sure, by the end of all of the sandbox.
func (l launcher) Fence(ctx context.Context, dir string) supervise.Fenced {
	at, err := l.s.seen(dir)
	if err != nil {
		return supervise.Fenced{Why: err.Error()}
	}
	if _, err := supervise.Look(dir); errors.Is(err, fs.ErrNotExist) {
		return l.s.Box.End(ctx) // never made, or taken away from inside
	}
	if f, ok := supervise.Settled(dir); ok {
		return f
	}
	if l.s.Lasting == nil && l.s.Box.Stopped(ctx) {
		return l.s.Box.End(ctx)
	}
	out, _, err := l.s.Own(ctx, inside.Fence(at), nil)
	if err == nil {
		if f, ferr := inside.Fenced(out); ferr == nil && f.Sure {
			return f
		}
	}
	if l.s.startedAgain(ctx, dir) {
		return supervise.Fenced{Sure: true, How: supervise.HowContainer}
	}
	return l.s.Box.End(ctx)
}

// startedAgain says whether the sandbox was started again since the operation of dir was launched: nothing of that can run.
func (s *Sandbox) startedAgain(ctx context.Context, dir string) bool {
	if s.Lasting == nil {
		return false
	}
	launched, err := sessiondir.Launched(s.Dir, filepath.Base(dir))
	if err != nil {
		return false
	}
	began, err := s.Lasting.Began(ctx)
	return err == nil && began.After(launched)
}

// ending is the launcher of a Lasting sandbox.
type ending struct{ launcher }

// Cancel ends the sandbox, whatever else runs in it.
func (e ending) Cancel(ctx context.Context, _ string) supervise.Fenced { return e.s.Box.End(ctx) }
