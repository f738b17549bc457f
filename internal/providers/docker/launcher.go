package docker

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/laufwerk/laufwerk/internal/inside"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/providers/sessiondir"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/system/crash"
)

// launcher reaches the supervisors of a container. Their records lie in a directory that both sides see.
type launcher struct{ s *sandbox }

// Launch starts a supervisor inside. What it is to run goes through its stdin: the arguments of an exec show in the engine's
// events.
func (l launcher) Launch(ctx context.Context, dir string, spec supervise.Spec) error {
	at, err := l.s.seen(dir)
	if err != nil {
		return err
	}
	if err := l.s.start(ctx); err != nil {
		return supervise.Refused(err)
	}
	if err := sessiondir.MakeOperation(l.s.spec.Dir, filepath.Base(dir), l.s.spec.Gives); err != nil {
		return supervise.Refused(err)
	}
	within, cancel := context.WithTimeout(ctx, l.s.p.patience)
	defer cancel()
	err = supervise.Handshake(within, dir, spec, func(ctx context.Context) (supervise.Pipe, error) {
		for again := true; ; again = false {
			crash.Point("docker/before-exec")
			st, done, err := l.s.e.Open(ctx, l.s.in.Resource, l.s.command(inside.Supervise(at)))
			crash.Point("docker/after-exec")
			switch {
			case done == providers.No && again && l.s.stopped(ctx):
				if err := l.s.start(ctx); err != nil {
					return supervise.Pipe{}, supervise.Refused(err)
				}
				continue
			case done == providers.No:
				return supervise.Pipe{}, supervise.Refused(l.s.whether(ctx, err))
			case err != nil:
				return supervise.Pipe{}, err
			}
			exited := make(chan struct{})
			go func() {
				_, _ = io.Copy(io.Discard, st.Err) // the supervisor has a log of its own
				if _, done, _ := st.Exit(); done == providers.Yes {
					close(exited)
				}
			}()
			return supervise.Pipe{In: st.In, Out: st.Out, Exited: exited, Close: st.Close}, nil
		}
	})
	if err == nil {
		l.s.refused.Store(0)
		return nil
	}
	// Something inside may keep supervisors from coming up: it stops them, or leaves no room for a process more.
	again := l.s.refused.Add(1) > 1
	if ctx.Err() == nil && (again || within.Err() != nil) {
		l.s.end(ctx)
	}
	return err
}

// Interrupt asks the command to stop in its own way.
func (l launcher) Interrupt(ctx context.Context, dir string) error {
	at, err := l.s.seen(dir)
	if err != nil {
		return err
	}
	out, _, err := l.s.own(ctx, inside.Interrupt(at), nil)
	if err != nil {
		return err
	}
	return inside.Interrupted(out)
}

// Fence ends everything of an operation: by its supervisor, and where that cannot be sure, by ending the container.
func (l launcher) Fence(ctx context.Context, dir string) supervise.Fenced {
	at, err := l.s.seen(dir)
	if err != nil {
		return supervise.Fenced{Why: err.Error()}
	}
	if _, err := supervise.Look(dir); errors.Is(err, fs.ErrNotExist) {
		return l.s.end(ctx) // never made, or taken away from inside
	}
	if f, ok := supervise.Settled(dir); ok {
		return f
	}
	if l.s.stopped(ctx) {
		return l.s.end(ctx)
	}
	out, _, err := l.s.own(ctx, inside.Fence(at), nil)
	if err == nil {
		if f, ferr := inside.Fenced(out); ferr == nil && f.Sure {
			return f
		}
	}
	return l.s.end(ctx)
}
