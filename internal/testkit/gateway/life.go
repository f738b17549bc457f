package gateway

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/laufwerk/laufwerk/internal/openshell/wire"
)

// maxMessage is what the gateway decodes at most, in bytes.
const maxMessage = 1 << 20

func decoded(req any) error {
	if n := proto.Size(req.(proto.Message)); n > maxMessage { //nolint:errcheck // there are no others
		return status.Errorf(codes.OutOfRange, "Error, decoded message length too large: found %d bytes, the limit is: %d bytes", n, maxMessage)
	}
	return nil
}

// life is one run of the gateway, from a start to the next kill. What it has begun may go on when it has ended, but it changes
// no row any more.
type life struct {
	wire.UnimplementedOpenShellServer

	g      *Gateway
	server *grpc.Server
	since  time.Time
	ctx    context.Context
	cancel context.CancelFunc
}

// newLife serves on l. g.mu is held.
func newLife(g *Gateway, listener net.Listener) *life {
	l := &life{g: g, since: time.Now()}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.server = grpc.NewServer(
		grpc.Creds(credentials.NewTLS(g.identity.config())), grpc.MaxRecvMsgSize(16*maxMessage), // to answer as the real one
		grpc.UnaryInterceptor(l.unary), grpc.StreamInterceptor(l.stream))
	wire.RegisterOpenShellServer(l.server, l)
	for _, r := range g.rows {
		l.take(r)
	}
	g.work.Go(func() { _ = l.server.Serve(listener) })
	g.work.Go(l.watch)
	return l
}

func (l *life) end() {
	l.cancel()
	l.server.Stop()
}

func (l *life) alive() bool {
	l.g.mu.Lock()
	defer l.g.mu.Unlock()
	return l.g.life == l
}

// begins starts what goes on when a call is over, which the end of the test waits for. It says whether this run goes on.
func (l *life) begins(do func()) bool { return l.change(func() { l.g.work.Go(do) }) }

// change changes rows, and does nothing when this run has ended, which it says.
func (l *life) change(do func()) bool {
	l.g.mu.Lock()
	defer l.g.mu.Unlock()
	if l.g.life != l {
		return false
	}
	do()
	return true
}

// take has a row of an earlier run go on. g.mu is held.
func (l *life) take(r *row) {
	r.busy, r.connected, r.missing, r.abort = false, false, false, func() {}
	switch r.phase() {
	case wire.SandboxPhase_SANDBOX_PHASE_DELETING, wire.SandboxPhase_SANDBOX_PHASE_ERROR:
		return // nothing of theirs goes on
	default:
	}
	l.set(r, wire.SandboxPhase_SANDBOX_PHASE_PROVISIONING, "SupervisorNotConnected", "waiting for the supervisor of the sandbox")
	ctx, cancel := context.WithCancel(l.ctx)
	r.abort, r.busy = cancel, true
	halted := r.halted
	l.g.work.Go(func() {
		defer cancel()
		seen, err := l.g.back.inspectAll()
		at, there := seen[r.id()]
		switch {
		case err != nil:
			return
		case !there:
			l.fail(r, &unfit{"BackendResourceMissing", "the container of the sandbox does not exist"})
			return
		case at.state == created, at.state == exited && halted:
			if err := l.g.back.start(r.id()); err != nil {
				l.fail(r, err)
				return
			}
		case at.state == exited:
			l.ended(r, at.code)
			return
		case !sleep(ctx, l.g.options.Reconnect):
			return
		}
		l.connect(ctx, r)
	})
}

// watch looks after the containers.
func (l *life) watch() {
	for sleep(l.ctx, l.g.options.Poll) {
		// What comes to be during the look may not be in it: rows are those from before.
		var watched []*row
		l.change(func() {
			for _, r := range l.g.rows {
				if !r.busy || r.stuck() {
					watched = append(watched, r)
				}
			}
		})
		if len(watched) == 0 {
			continue
		}
		seen, err := l.g.back.inspectAll()
		if err != nil {
			continue
		}
		for _, r := range watched {
			l.observe(r, seen)
		}
	}
}

func (l *life) observe(r *row, seen map[string]observed) {
	at, there := seen[r.id()]
	if there && at.state == exited {
		l.ended(r, at.code)
		return
	}
	l.change(func() {
		switch {
		case there:
		case r.stuck():
			if time.Since(l.since) > l.g.options.Grace {
				l.drop(r)
			}
		case r.busy || r.phase() != wire.SandboxPhase_SANDBOX_PHASE_READY && !r.missing:
		case !r.missing:
			r.missing = true
			l.set(r, wire.SandboxPhase_SANDBOX_PHASE_PROVISIONING, "DependenciesNotReady", "the container of the sandbox is gone")
		default:
			l.drop(r)
		}
	})
}

// drop takes a row out, if it is the one that has the name still. g.mu is held.
func (l *life) drop(r *row) {
	if name := r.sandbox.GetMetadata().GetName(); l.g.rows[name] == r {
		delete(l.g.rows, name)
	}
}

// sleep says whether the time passed before the end of ctx.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
