package gateway

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/laufwerk/laufwerk/internal/openshell/wire"
)

// Moments of the gateway at which a Fault can happen as in a call: those of its work that goes on when a call is over. A call
// has the name of the wire ("CreateSandbox").
const (
	Stored    = "stored"    // a sandbox has its row, and nothing else
	Landing   = "landing"   // the engine was asked for its container, which is there when the moment is over
	Removing  = "removing"  // a row says DELETING, and the container is there still
	Vanishing = "vanishing" // the container is gone, and the row is there still
)

// Fault is what happens to a call or in a moment.
type Fault struct {
	times  int
	before func(ctx context.Context) error
	after  func(ctx context.Context) error
	stream func(s *cutStream)
	forget bool
}

// Times has a fault happen to the next n calls, instead of to the next one. Fewer than 1 is to all of them.
func (f Fault) Times(n int) Fault {
	if n < 1 {
		n = -1
	}
	f.times = n
	return f
}

// broken is what a client sees of a connection that ends.
func broken() error { return status.Error(codes.Unavailable, "error reading from server: EOF") }

// LoseRequest breaks the call off; the gateway never hears of it.
func LoseRequest() Fault {
	return Fault{before: func(context.Context) error { return broken() }}
}

// LoseReply breaks the call off when the gateway has done what was asked, an exec to its end.
func LoseReply() Fault {
	return Fault{after: func(context.Context) error { return broken() }, stream: func(s *cutStream) { s.silent = true }}
}

// Fail answers with a status; the gateway does nothing.
func Fail(code codes.Code, message string) Fault {
	return Fault{before: func(context.Context) error { return status.Error(code, message) }}
}

// FailAfter is Fail when the gateway has done what was asked.
func FailAfter(code codes.Code, message string) Fault {
	return Fault{after: func(context.Context) error { return status.Error(code, message) }}
}

// Hang answers nothing until the client gives up; the gateway never hears of the call.
func Hang() Fault {
	return Fault{before: func(ctx context.Context) error { <-ctx.Done(); return status.FromContextError(ctx.Err()).Err() }}
}

// HangAfter is Hang when the gateway has done what was asked.
func HangAfter() Fault {
	return Fault{after: func(ctx context.Context) error { <-ctx.Done(); return status.FromContextError(ctx.Err()).Err() }}
}

// Delay holds a call, or a moment, for d first. A call goes through even when its client gives up meanwhile.
func Delay(d time.Duration) Fault {
	return Fault{before: func(context.Context) error { time.Sleep(d); return nil }}
}

// Before does something first; the call then goes through as it is, unless do has killed the gateway.
func Before(do func()) Fault {
	return Fault{before: func(context.Context) error { do(); return nil }}
}

// After does something when the gateway has done what was asked, before the client has the reply.
func After(do func()) Fault {
	return Fault{after: func(context.Context) error { do(); return nil }}
}

// CutExec ends the stream of an exec with an error instead of its exit event, when the command has ended.
func CutExec() Fault {
	return Fault{stream: func(s *cutStream) { s.noExit = true }, after: func(context.Context) error {
		return status.Error(codes.Unavailable, "exec relay closed before the command reported an exit status")
	}}
}

// EndExec ends the stream of an exec as if all were well, but without its exit event, when the command has ended.
func EndExec() Fault { return Fault{stream: func(s *cutStream) { s.noExit = true }} }

// ForgetDelete acknowledges a delete, and nothing is deleted.
func ForgetDelete() Fault { return Fault{forget: true} }

// Fault has f happen to the next call of that name, or in the next moment; further faults of one name happen one after another.
func (g *Gateway) Fault(call string, f Fault) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f.times == 0 {
		f.times = 1
	}
	g.faults[call] = append(g.faults[call], &f)
}

// Faultless drops all faults that have not happened.
func (g *Gateway) Faultless() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.faults)
}

// fault is the one that happens now.
func (g *Gateway) fault(call string) Fault {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := g.faults[call]
	if len(all) == 0 {
		return Fault{}
	}
	if all[0].times > 0 {
		if all[0].times--; all[0].times == 0 {
			g.faults[call] = all[1:]
		}
	}
	return *all[0]
}

func (f Fault) first(ctx context.Context) error {
	if f.before == nil {
		return nil
	}
	return f.before(ctx)
}

func (f Fault) last(ctx context.Context) error {
	if f.after == nil {
		return nil
	}
	return f.after(ctx)
}

// moment lets a fault of a moment happen. It is over, with all that follows, when its context ends.
func (l *life) moment(what string) {
	f := l.g.fault(what)
	_ = f.first(l.ctx)
	_ = f.last(l.ctx)
}

type forgets struct{} // the key of a context in which a delete is forgotten

func (l *life) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := decoded(req); err != nil {
		return nil, err
	}
	f, err := l.begin(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	if f.forget {
		ctx = context.WithValue(ctx, forgets{}, true)
	}
	reply, err := handler(ctx, req)
	if gone := f.last(ctx); gone != nil {
		return nil, gone
	}
	if !l.alive() {
		return nil, broken()
	}
	return reply, err
}

func (l *life) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	f, err := l.begin(s.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	cut := &cutStream{ServerStream: s}
	if f.stream != nil {
		f.stream(cut)
	}
	err = handler(srv, cut)
	if gone := f.last(s.Context()); gone != nil {
		return gone
	}
	if !l.alive() {
		return broken()
	}
	return err
}

// begin counts a call and lets the first half of its fault happen.
func (l *life) begin(ctx context.Context, method string) (Fault, error) {
	call := method[len("/openshell.v1.OpenShell/"):]
	if !l.alive() {
		return Fault{}, broken()
	}
	l.g.mu.Lock()
	l.g.calls = append(l.g.calls, call)
	l.g.mu.Unlock()
	f := l.g.fault(call)
	if err := f.first(ctx); err != nil {
		return f, err
	}
	if !l.alive() {
		return f, broken()
	}
	return f, nil
}

// cutStream is the stream of an exec that loses something.
type cutStream struct {
	grpc.ServerStream
	silent, noExit bool
}

func (s *cutStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return decoded(m)
}

func (s *cutStream) SendMsg(m any) error {
	if s.silent {
		return nil
	}
	if event, ok := m.(*wire.ExecSandboxEvent); ok && s.noExit && event.GetExit() != nil {
		return nil
	}
	return s.ServerStream.SendMsg(m)
}
