package dockerengine

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/providers"
)

// limits bound every call, whatever its context says.
type limits struct {
	ping   time.Duration
	info   time.Duration
	query  time.Duration // a look
	effect time.Duration // a change to one container or image
	bulk   time.Duration // builds, pulls, copies
	settle time.Duration // from the end of a command's output to its exit code
}

// Engines on slow disks under load take many seconds for a create or a remove; one that hangs takes for ever.
func standardLimits() limits {
	return limits{ping: 5 * time.Second, info: 10 * time.Second, query: 30 * time.Second, effect: 2 * time.Minute, bulk: time.Hour, settle: 15 * time.Second}
}

// call is what is known of one request: the outcome of an effect follows from it, not from the client's errors, which drop
// status and cause.
type call struct {
	parent  context.Context // the caller's
	ctx     context.Context // with the limit
	limit   time.Duration
	reached atomic.Bool  // a connection was there: bytes may have been sent
	status  atomic.Int32 // of the engine's answer, 0 where none came
	failed  atomic.Pointer[error]
}

type callKey struct{}

// begin bounds a call and watches it. The cancel function ends it; it has to be called.
func begin(parent context.Context, limit time.Duration) (*call, context.CancelFunc) {
	c := &call{parent: parent, limit: limit}
	ctx, cancel := context.WithTimeout(context.WithValue(parent, callKey{}, c), limit)
	c.ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { c.reached.Store(true) }})
	return c, cancel
}

// watch is a transport that notes what came of a request in its call.
type watch struct{ http.RoundTripper }

func (w watch) RoundTrip(r *http.Request) (*http.Response, error) {
	c, _ := r.Context().Value(callKey{}).(*call)
	if c != nil {
		c.status.Store(0)
	}
	resp, err := w.RoundTripper.RoundTrip(r)
	if c != nil && err != nil {
		c.failed.Store(&err)
	}
	if c != nil && resp != nil {
		c.status.Store(int32(resp.StatusCode)) //nolint:gosec // three digits
	}
	return resp, err
}

// refused says whether the engine answered that it did nothing.
func (c *call) refused() bool { s := c.status.Load(); return s >= 400 && s < 500 }

// outcome is what a call did: nil is Yes; a refusal or a request that was never sent is No; all else may have arrived.
func (c *call) outcome(err error) providers.Done {
	switch {
	case err == nil:
		return providers.Yes
	case c.refused() || c.status.Load() == 0 && !c.reached.Load():
		return providers.No
	default:
		return providers.Unknown
	}
}

// says whether the engine itself answered with a status and a text that contains words, in any case.
func (c *call) says(err error, status int, words string) bool {
	return err != nil && int(c.status.Load()) == status && strings.Contains(strings.ToLower(err.Error()), words)
}

// effect ends a call that changes something: its outcome, and the failure with what was tried.
func (e *Engine) effect(c *call, err error, format string, args ...any) (providers.Done, error) {
	done := c.outcome(err)
	kind := failure.Failed
	if done == providers.Unknown {
		kind = failure.OutcomeUnknown
	}
	return done, e.explain(c, err, kind, format, args...)
}

// look ends a call that changes nothing.
func (e *Engine) look(c *call, err error, format string, args ...any) error {
	return e.explain(c, err, failure.Failed, format, args...)
}

// explain says what was tried, what the engine answered, or why nothing came of it.
func (e *Engine) explain(c *call, err error, kind failure.Kind, format string, args ...any) error {
	if err == nil {
		return nil
	}
	var cause error
	switch {
	case c.parent.Err() != nil:
		cause = context.Cause(c.parent)
	case c.ctx.Err() != nil:
		cause = failure.New(failure.NotReady, "the engine at %s did not answer within %s", e.endpoint, c.limit).WithHint("%s", hungHint)
	case c.status.Load() == 0 && !c.reached.Load():
		cause = unreachable(e.endpoint, c.cause(err))
	case c.status.Load() == 0:
		cause = failure.New(failure.NotReady, "the connection to the engine at %s broke off: %v", e.endpoint, c.cause(err))
	default:
		cause = errors.New(said(err))
	}
	out := failure.New(kind, format, args...)
	out.Err = cause
	if inner := failure.As(cause); inner != nil {
		out.Hint = inner.Hint
		if kind == failure.Failed {
			out.Kind = inner.Kind
		}
	}
	return out
}

// cause is the error of the transport below the client's, which often drops it.
func (c *call) cause(err error) error {
	if p := c.failed.Load(); p != nil {
		return *p
	}
	return err
}

// said is an error without the client's own preface.
func said(err error) string {
	return strings.ReplaceAll(err.Error(), "Error response from daemon: ", "")
}

const hungHint = "docker info   # if that hangs too, restart the engine: sudo systemctl restart docker"

// unreachable says why nothing could be connected to.
func unreachable(e Endpoint, err error) *failure.Error {
	if why := usable(e); why != nil {
		return failure.As(why)
	}
	out := failure.New(failure.NotReady, "nothing listens at %s", e).WithHint("%s", startHint).WithPaths(e.Socket())
	if errors.Is(err, fs.ErrPermission) {
		out = failure.New(failure.NotReady, "this user may not speak to the engine at %s", e).WithHint("%s", permissionHint).WithPaths(e.Socket())
	}
	out.Err = err
	return out
}
