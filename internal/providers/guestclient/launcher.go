package guestclient

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/guest"
	"github.com/laufwerk/laufwerk/internal/providers/sessiondir"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/system/crash"
)

// launcher reaches the supervisors of a sandbox. Both sides see the directory of their records.
type launcher struct{ s *Sandbox }

// Launch starts a supervisor inside. Its spec goes through stdin, since arguments are visible to others.
func (l launcher) Launch(ctx context.Context, dir string, spec supervise.Spec) error {
	at, err := l.s.insidePath(dir)
	if err != nil {
		return err
	}
	if err := l.s.Backend.Start(ctx); err != nil {
		return supervise.MarkRefused(err)
	}
	if err := sessiondir.MakeOperation(l.s.Dir, filepath.Base(dir), l.s.FileOwner); err != nil {
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
			p, done, err := l.s.Backend.Open(ctx, guest.Supervise(at), spec)
			switch {
			case done == resource.NotDone && again && l.s.Backend.Stopped(ctx):
				if err := l.s.Backend.Start(ctx); err != nil {
					return supervise.Pipe{}, supervise.MarkRefused(err)
				}
				continue
			case done == resource.NotDone:
				unreached = failure.Is(err, failure.NotReady)
				return supervise.Pipe{}, supervise.MarkRefused(l.s.Backend.Explain(ctx, err))
			}
			return p, err
		}
	})
	if taken && l.s.Standby.Next != nil {
		l.s.Standby.Next(ctx)
	}
	if err == nil {
		l.s.refusedLaunches.Store(0)
		_ = sessiondir.NoteLaunched(l.s.Dir, filepath.Base(dir)) // if this fails, a fence trusts the records inside
		return nil
	}
	if l.s.Disposable != nil && unreached {
		return err
	}
	// A process inside may keep supervisors from starting: by stopping them, or by using up all processes.
	again := l.s.refusedLaunches.Add(1) > 1
	if ctx.Err() == nil && (again || within.Err() != nil) {
		l.s.Backend.End(ctx)
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

// Fence ends everything of an operation through its supervisor or, where that leaves doubt, by ending the whole sandbox.
func (l launcher) Fence(ctx context.Context, dir string) supervise.FenceResult {
	at, err := l.s.insidePath(dir)
	if err != nil {
		return supervise.FenceResult{Why: err.Error()}
	}
	launched, noted := sessiondir.LaunchTime(l.s.Dir, filepath.Base(dir))
	// "Nothing was started" is false where a launch was noted: something inside has removed the records.
	believed := func(f supervise.FenceResult) bool { return f.Sure && (f.How != supervise.HowNothing || noted != nil) }
	if f, ok := supervise.NeedsNoFence(dir); ok {
		if believed(f) {
			return f
		}
		return l.s.Backend.End(ctx)
	}
	if l.s.Disposable == nil && l.s.Backend.Stopped(ctx) {
		return l.s.Backend.End(ctx)
	}
	if out, _, err := l.s.RunOwn(ctx, guest.Fence(at), nil); err == nil {
		if f, err := guest.ReadFence(out); err == nil && believed(f) {
			return f
		}
	}
	if noted == nil && l.s.startedSince(ctx, launched) {
		return supervise.FenceResult{Sure: true, How: supervise.HowContainer}
	}
	return l.s.Backend.End(ctx)
}

// startedSince says whether the sandbox was started after a launch, so that nothing of the launch can still run.
func (s *Sandbox) startedSince(ctx context.Context, launched time.Time) bool {
	if s.Disposable == nil {
		return false
	}
	began, err := s.Disposable.StartedAt(ctx)
	return err == nil && began.After(launched)
}

// Cancel ends a disposable sandbox, whatever else runs in it.
func (l launcher) Cancel(ctx context.Context, dir string) supervise.FenceResult {
	if l.s.Disposable != nil {
		return l.s.Backend.End(ctx)
	}
	return l.Fence(ctx, dir)
}

// Standby is a socket at which a started supervisor waits for an operation. The zero value has none.
type Standby struct {
	Socket string // this host's path
	Taken  *TakenSockets
	// Next starts another supervisor after one was taken, without waiting for it; nil where the sandbox does that itself.
	Next func(ctx context.Context)
}

// TakenSockets are the sockets whose last connection by this process got a supervisor, so that another should soon follow.
type TakenSockets struct{ sockets sync.Map }

// nextStandbyTime is how long connect retries while the next supervisor starts; starting one with Open takes about as long. It
// includes the time of an answer, so that a hostile listener that never answers is asked once.
const (
	nextStandbyTime = 50 * time.Millisecond
	retryPause      = 2 * time.Millisecond
)

// connect takes a waiting supervisor, if there is one, for the operation in dir, a path of the sandbox.
func (s Standby) connect(ctx context.Context, dir string, env []string) (supervise.Pipe, bool) {
	if s.Socket == "" {
		return supervise.Pipe{}, false
	}
	crash.Point("entered/before-take")
	again, cancel := context.WithTimeout(ctx, nextStandbyTime)
	defer cancel()
	p, err := guest.TakeStandby(ctx, s.Socket, dir, env)
	_, awaited := s.Taken.sockets.Load(s.Socket)
	for err != nil && awaited && again.Err() == nil {
		time.Sleep(retryPause)
		p, err = guest.TakeStandby(ctx, s.Socket, dir, env)
	}
	crash.Point("entered/after-take")
	if err != nil {
		s.Taken.sockets.Delete(s.Socket)
		return p, false
	}
	s.Taken.sockets.Store(s.Socket, true)
	return p, true
}
