package entered

import (
	"context"
	"sync"
	"time"

	"github.com/laufwerk/laufwerk/internal/guest"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/system/crash"
)

// Standby is where a supervisor stands by in a sandbox, so that a command need not wait for one to start. The zero value is
// nowhere.
type Standby struct {
	Socket string // as this host knows it
	Taken  *TakenSockets
	// Next starts the next one after one was taken, and does not wait for it; nil where the sandbox sees to that itself.
	Next func(ctx context.Context)
}

// TakenSockets are the sockets at which this process took a supervisor last, so that the next should soon stand by.
type TakenSockets struct{ sockets sync.Map }

// nextStandbyTime is how long it is tried again while the next one comes, with pauses of soon. To start one in the other way takes
// about as long. Whoever sits there instead and is slow to answer is not asked again: time counts, not tries.
const (
	nextStandbyTime = 50 * time.Millisecond
	retryPause      = 2 * time.Millisecond
)

// connect makes the supervisor that stands by, if one does, the one of the operation whose directory the sandbox knows as dir.
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
