package dockerengine

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/resource"
)

// callLimits bound every call, whatever its context says.
type callLimits struct {
	ping   time.Duration
	info   time.Duration
	query  time.Duration // a look
	effect time.Duration // a change to one container or image
	bulk   time.Duration // builds, pulls, copies
	settle time.Duration // from the end of a command's output to its exit code
}

// Engines on slow disks under load take many seconds for a create or a remove; one that hangs takes for ever.
func standardLimits() callLimits {
	return callLimits{ping: 5 * time.Second, info: 10 * time.Second, query: 30 * time.Second, effect: 2 * time.Minute, bulk: time.Hour, settle: 15 * time.Second}
}

// call is what is known of one request: the outcome of an effect follows from it, not from the client's errors, which drop
// status and cause.
type call struct {
	parent context.Context // the caller's
	ctx    context.Context // with the limit
	limit  time.Duration
	sent   atomic.Pointer[connectionUse]
	status atomic.Int32          // of the engine's answer, 0 where none came
	failed atomic.Pointer[error] // what the transport said: the client drops it
}

// connectionUse is the connection that a request was given, and what had been written to it before. A request that a stale
// connection did not take is sent again on a new one; what was written to the last one counts.
type connectionUse struct {
	conn   *connection
	before int64
}

func (c *call) useConnection(conn net.Conn) {
	if own, ok := conn.(*connection); ok {
		c.sent.Store(&connectionUse{own, own.written.Load()})
	}
}

func (c *call) mayHaveReached() bool {
	s := c.sent.Load()
	return s != nil && s.conn.written.Load() > s.before
}

// connection counts what is written to it.
type connection struct {
	*net.UnixConn
	written atomic.Int64
}

func (c *connection) Write(b []byte) (int, error) {
	n, err := c.UnixConn.Write(b)
	c.written.Add(int64(n))
	return n, err
}

type callKey struct{}

// beginCall bounds a call and watches it. The cancel function ends it; it has to be called.
func beginCall(parent context.Context, limit time.Duration) (*call, context.CancelFunc) {
	c := &call{parent: parent, limit: limit}
	ctx, cancel := context.WithTimeout(context.WithValue(parent, callKey{}, c), limit)
	c.ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { c.useConnection(i.Conn) }})
	return c, cancel
}

type watchedTransport struct{ http.RoundTripper }

func (w watchedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
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

func (c *call) wasRefused() bool { s := c.status.Load(); return s >= 400 && s < 500 }

// outcome is what a call did: nil is Done; a refusal or a request that was never sent is NotDone; all else may
// have arrived.
func (c *call) outcome(err error) resource.Outcome {
	switch {
	case err == nil:
		return resource.Done
	case c.wasRefused() || c.status.Load() == 0 && !c.mayHaveReached():
		return resource.NotDone
	default:
		return resource.Unknown
	}
}

// hasAnswer says whether the engine itself answered with a status and a text that contains words, in any case.
func (c *call) hasAnswer(err error, status int, words string) bool {
	return err != nil && int(c.status.Load()) == status && strings.Contains(strings.ToLower(err.Error()), words)
}

// endEffect ends a call that changes something: its outcome, and the failure with what was tried.
func (e *Engine) endEffect(c *call, err error, format string, args ...any) (resource.Outcome, error) {
	done := c.outcome(err)
	kind := failure.Failed
	if done == resource.Unknown {
		kind = failure.OutcomeUnknown
	}
	return done, e.explain(c, err, kind, format, args...)
}

// endRead ends a call that changes nothing. An answer that is none, as half of one, says as little as no answer; of a 404 the
// words that say what is not there were not found.
func (e *Engine) endRead(c *call, err error, format string, args ...any) error {
	kind := failure.Failed
	if s := c.status.Load(); s == http.StatusOK || s == http.StatusNotFound {
		kind = failure.NotReady
	}
	return e.explain(c, err, kind, format, args...)
}

// explain says what was tried, what the engine answered, or why nothing came of it.
func (e *Engine) explain(c *call, err error, kind failure.Kind, format string, args ...any) error {
	if err == nil {
		return nil
	}
	var cause error
	switch {
	case c.wasRefused():
		cause = refusalOf(err)
	case c.parent.Err() != nil:
		cause = context.Cause(c.parent)
	case c.ctx.Err() != nil:
		cause = failure.New(failure.NotReady, "the engine at %s did not answer within %s", e.endpoint, c.limit).WithHint("%s", hungHint)
	case c.status.Load() == 0 && isDialError(c.cause(err)):
		cause = unreachableError(e.endpoint, c.cause(err))
	case c.status.Load() == 0 && c.failed.Load() != nil:
		cause = failure.New(failure.NotReady, "the connection to the engine at %s was interrupted", e.endpoint).WithCause(c.cause(err))
	case c.status.Load() >= http.StatusInternalServerError: // it may do better the next time
		cause = failure.New(failure.NotReady, "%s", bareMessage(err))
	default: // the client's own refusal
		cause = errors.New(bareMessage(err))
	}
	out := failure.New(kind, format, args...).WithCause(cause)
	if inner := failure.As(cause); inner != nil {
		out.Hint = inner.Hint
		if kind == failure.Failed {
			out.Kind = inner.Kind
		}
	}
	return out
}

// What a refusal can be asked for with errors.Is.
var (
	ErrNoContainer = errors.New("no such container")
	ErrNotRunning  = errors.New("the container does not run")
)

// refusalError is the engine's own text, and what it means where that matters.
type refusalError struct {
	text string
	is   error
}

func (r *refusalError) Error() string { return r.text }
func (r *refusalError) Unwrap() error { return r.is }

func refusalOf(err error) error {
	r := &refusalError{text: bareMessage(err)}
	switch low := strings.ToLower(r.text); {
	case strings.Contains(low, "no such container"):
		r.is = ErrNoContainer
	case strings.Contains(low, "is not running"):
		r.is = ErrNotRunning
	}
	return r
}

func (c *call) cause(err error) error {
	if p := c.failed.Load(); p != nil {
		return *p
	}
	return err
}

func isDialError(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

func bareMessage(err error) string {
	return strings.ReplaceAll(err.Error(), "Error response from daemon: ", "")
}

const hungHint = "docker info   # if that hangs too, restart the engine: sudo systemctl restart docker"

func unreachableError(e Endpoint, err error) *failure.Error {
	if why := checkUsable(e); why != nil {
		return failure.As(why)
	}
	out := failure.New(failure.NotReady, "nothing listens at %s", e).WithHint("%s", startHint).WithPaths(e.Socket())
	if errors.Is(err, fs.ErrPermission) {
		out = failure.New(failure.NotReady, "this user has no permission to connect to the engine at %s", e).WithHint("%s", permissionHint).WithPaths(e.Socket())
	}
	return out.WithCause(err)
}
