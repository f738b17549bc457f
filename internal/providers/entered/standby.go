package entered

import (
	"context"
	"sync"
	"time"

	"github.com/laufwerk/laufwerk/internal/inside"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/system/crash"
)

// Standby is where a supervisor stands by in a sandbox, so that a command need not wait for one to start. The zero value is
// nowhere.
type Standby struct {
	Socket string // as this host knows it
	Taken  *Taken
	// Next starts the next one after one was taken, and does not wait for it; nil where the sandbox sees to that itself.
	Next func(ctx context.Context)
}

// Taken are the sockets at which this process took a supervisor last, so that the next should soon stand by.
type Taken struct{ sockets sync.Map }

// nextStands is how long it is tried again while the next one comes, with pauses of soon. To start one in the other way takes
// about as long. Whoever sits there instead and is slow to answer is not asked again: time counts, not tries.
const (
	nextStands = 50 * time.Millisecond
	soon       = 2 * time.Millisecond
)

// take makes the supervisor that stands by, if one does, the one of the operation whose directory the sandbox knows as dir.
func (s Standby) take(ctx context.Context, dir string, env []string) (supervise.Pipe, bool) {
	if s.Socket == "" {
		return supervise.Pipe{}, false
	}
	crash.Point("entered/before-take")
	again, cancel := context.WithTimeout(ctx, nextStands)
	defer cancel()
	p, err := inside.Take(ctx, s.Socket, dir, env)
	_, awaited := s.Taken.sockets.Load(s.Socket)
	for err != nil && awaited && again.Err() == nil {
		time.Sleep(soon)
		p, err = inside.Take(ctx, s.Socket, dir, env)
	}
	crash.Point("entered/after-take")
	if err != nil {
		s.Taken.sockets.Delete(s.Socket)
		return p, false
	}
	s.Taken.sockets.Store(s.Socket, true)
	return p, true
}
