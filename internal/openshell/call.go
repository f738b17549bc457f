package openshell

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/redact"
	"github.com/laufwerk/laufwerk/internal/resource"
)

// callLimits bound every call but Exec, whatever its context says.
type callLimits struct {
	ping   time.Duration // also to connect
	info   time.Duration
	query  time.Duration
	effect time.Duration
}

// A gateway answers all of these at once; one on a busy machine takes seconds, one that hangs for ever.
func standardLimits() callLimits {
	return callLimits{ping: 5 * time.Second, info: 10 * time.Second, query: 30 * time.Second, effect: 2 * time.Minute}
}

// call is what is known of one request: the outcome of an effect follows from it, not from the status alone, which the library
// makes up where no answer came.
type call struct {
	parent   context.Context // the caller's
	ctx      context.Context // with the limit
	limit    time.Duration   // 0 for none
	sent     atomic.Bool     // a part of the request may have reached the gateway
	answered atomic.Bool     // the status is the gateway's
	secrets  []string        // values that the request has, and no error may have
}

type callKey struct{}

var errLimit = errors.New("the call timed out")

// beginCall bounds a call and watches it. The cancel function ends it; it has to be called. The gateway is not told of the limit, nor
// of the caller's deadline: it would end the call at the same moment, in words of its own.
func beginCall(parent context.Context, limit time.Duration) (*call, context.CancelFunc) {
	c := &call{parent: parent, limit: limit}
	ctx, cancel := context.WithCancelCause(context.WithValue(context.WithoutCancel(parent), callKey{}, c))
	c.ctx = ctx
	if parent.Err() != nil {
		cancel(context.Cause(parent)) // before anything is sent
	}
	stop := context.AfterFunc(parent, func() { cancel(context.Cause(parent)) })
	if limit == 0 {
		return c, func() { stop(); cancel(nil) }
	}
	timer := time.AfterFunc(limit, func() { cancel(errLimit) })
	return c, func() { stop(); timer.Stop(); cancel(nil) }
}

type watch struct{}

func (watch) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (watch) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (watch) HandleConn(context.Context, stats.ConnStats)                       {}

func (watch) HandleRPC(ctx context.Context, s stats.RPCStats) {
	c, _ := ctx.Value(callKey{}).(*call)
	if c == nil {
		return
	}
	switch s.(type) {
	case *stats.OutHeader:
		c.sent.Store(true)
	case *stats.InTrailer:
		c.answered.Store(true)
	}
}

// RequestTooLarge is a request that no gateway would take: it was not sent. Sizes are in bytes.
type RequestTooLarge struct{ Size, Limit int }

func (t *RequestTooLarge) Error() string {
	return fmt.Sprintf("the request has %d bytes, and a gateway accepts at most %d", t.Size, t.Limit)
}

func checkSize(m proto.Message) error {
	if n := proto.Size(m); n > maxSent {
		return &RequestTooLarge{Size: n, Limit: maxSent}
	}
	return nil
}

func (c *call) wasRefused(err error) bool {
	return c.answered.Load() && slices.Contains([]codes.Code{codes.InvalidArgument, codes.FailedPrecondition, codes.PermissionDenied, codes.Unauthenticated, codes.NotFound}, status.Code(err))
}

// outcome is what a call did: nil is Done; a refusal or a request that was never sent is NotDone; all else may
// have arrived.
func (c *call) outcome(err error) resource.Outcome {
	switch {
	case err == nil:
		return resource.Done
	case c.wasRefused(err) || !c.sent.Load():
		return resource.NotDone
	default:
		return resource.Unknown
	}
}

// hasAnswer says whether the gateway itself answered with a code and with words, in any case.
func (c *call) hasAnswer(err error, code codes.Code, words string) bool {
	return err != nil && c.answered.Load() && status.Code(err) == code && strings.Contains(strings.ToLower(statusText(err)), words)
}

// endEffect ends a call that changes something: its outcome, and the failure with what was tried.
func (g *Gateway) endEffect(c *call, err error, format string, args ...any) (resource.Outcome, error) {
	done := c.outcome(err)
	kind := failure.Failed
	switch {
	case c.hasAnswer(err, codes.AlreadyExists, ""):
		kind = failure.AlreadyExists
	case done == resource.Unknown:
		kind = failure.OutcomeUnknown
	}
	return done, g.explain(c, err, kind, format, args...)
}

func (g *Gateway) endRead(c *call, err error, format string, args ...any) error {
	return g.explain(c, err, failure.Failed, format, args...)
}

// explain says what was tried, what the gateway answered, or why nothing came of it.
func (g *Gateway) explain(c *call, err error, kind failure.Kind, format string, args ...any) error {
	if err == nil {
		return nil
	}
	cause := g.cause(c, err)
	out := failure.New(kind, format, args...).WithCause(cause)
	if inner := failure.As(cause); inner != nil {
		out.Hint, out.Paths = inner.Hint, inner.Paths
		if kind == failure.Failed {
			out.Kind = inner.Kind
		}
	}
	return out
}

func (g *Gateway) cause(c *call, err error) error {
	if !c.sent.Load() && status.Code(err) == codes.Unavailable {
		g.markUnreachable()
	}
	switch code := status.Code(err); {
	case c.answered.Load():
		switch code {
		case codes.InvalidArgument, codes.FailedPrecondition, codes.AlreadyExists, codes.OutOfRange:
			return errors.New(c.redactedText(err))
		case codes.Unimplemented:
			return failure.New(failure.Unsupported, "%s", c.redactedText(err))
		case codes.PermissionDenied, codes.Unauthenticated:
			return failure.New(failure.NotReady, "this user is not permitted to do that: %s", c.redactedText(err)).WithHint("%s", registerCommand(g.registration.Alias))
		default: // it may do better the next time
			return failure.New(failure.NotReady, "%s", c.redactedText(err))
		}
	case c.parent.Err() != nil:
		return context.Cause(c.parent)
	case errors.Is(context.Cause(c.ctx), errLimit):
		return g.hangError(c.limit)
	case g.isClosed():
		return errors.New("the connection to the gateway was closed")
	default:
		return g.connectionError(c, err)
	}
}

func (g *Gateway) hangError(limit time.Duration) error {
	return failure.New(failure.NotReady, "the gateway at %s hangs: it did not answer within %s", g.registration.Endpoint, limit).WithHint("%s", g.restartHint())
}

func (g *Gateway) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

const startHint = "openshell-gateway --drivers docker   # or start its service"

func (g *Gateway) restartHint() string {
	return "openshell status --gateway " + failure.Quote(g.registration.Alias) + "   # if that hangs too, restart the gateway"
}

// connectionError says why there is no connection, in words that do not need the library's.
func (g *Gateway) connectionError(c *call, err error) error {
	text, r := c.redactedText(err), g.registration
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
	fail := func(hint, format string, args ...any) error {
		return failure.New(failure.NotReady, format, args...).WithHint("%s", hint).WithCause(errors.New(bareMessage(text)))
	}
	again := registerCommand(r.Alias) + "   # with the port and the certificates of the gateway"
	switch {
	case has("connection refused"):
		return fail(startHint, "nothing listens at %s", r.Endpoint)
	case has("no such host", "server misbehaving"):
		return fail(again, "the name %s cannot be resolved on this machine", r.host)
	case has("first record does not look like a TLS handshake"):
		return fail(again, "what listens at %s speaks plain text, and the registration says https: it is another program, or a gateway that was started with --disable-tls", r.Endpoint)
	case has("certificate signed by unknown authority", "certificate is not trusted"):
		return fail(again, "the certificate of what listens at %s is not from the authority in %s: the gateway was set up again, or it is another program", r.Endpoint, r.Dir)
	case has("certificate is valid for", "doesn't contain any IP SANs", "not valid for any names"):
		return fail(again, "the certificate of what listens at %s is not valid for %s", r.Endpoint, r.host)
	case has("certificate has expired or is not yet valid"):
		return fail(again, "the certificate of the gateway at %s is out of date", r.Endpoint)
	case has("ALPN", "no application protocol"):
		return fail(again, "what listens at %s is not an OpenShell gateway: it does not speak HTTP/2", r.Endpoint)
	case has("remote error: tls:"):
		return fail(again, "the gateway at %s does not accept the client certificate in %s", r.Endpoint, r.Dir)
	case has("is not this machine"):
		return fail(again, "%s is not on this machine", r.Endpoint)
	case !c.sent.Load() && has(context.DeadlineExceeded.Error()): // the library's own limit of a connection, which the call outlasts
		return g.hangError(g.limits.ping)
	case !c.sent.Load():
		return fail(again, "what listens at %s ends connections at once: it does not accept the client certificate in %s, or is no gateway", r.Endpoint, r.Dir)
	default:
		return fail(g.restartHint(), "the connection to the gateway at %s was interrupted", r.Endpoint)
	}
}

// bareMessage is the library's account of a connection without its own prefaces.
func bareMessage(text string) string {
	if quoted, ok := strings.CutPrefix(text, "connection error: desc = "); ok {
		if inner, err := strconv.Unquote(quoted); err == nil {
			text = inner
		}
	}
	for _, preface := range []string{"transport: ", "authentication handshake failed: ", "Error while dialing: "} {
		text = strings.TrimPrefix(text, preface)
	}
	return text
}

func statusText(err error) string {
	const longest = 2000
	text := status.Convert(err).Message()
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + " …"
	}
	return redact.Line(text)
}

// redactedText is said without secrets: an answer that has a part of one in it is not repeated at all.
func (c *call) redactedText(err error) string {
	text := statusText(err)
	for _, s := range c.secrets {
		if containsPart(status.Convert(err).Message(), s) {
			return fmt.Sprintf("the answer (%s) has a credential in it, and is not shown", status.Code(err))
		}
	}
	return text
}

// containsPart says whether a text has a part of a secret in it that is long enough to be no accident.
func containsPart(text, secret string) bool {
	const part = 8
	if len(secret) <= part {
		return secret != "" && strings.Contains(text, secret)
	}
	for i := range len(secret) - part + 1 {
		if strings.Contains(text, secret[i:i+part]) {
			return true
		}
	}
	return false
}
