package guestclient

import (
	"context"
	"sync"
	"time"

	"github.com/laufwerk/laufwerk/internal/guest"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/system/crash"
)

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
