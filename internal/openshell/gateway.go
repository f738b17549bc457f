// Package openshell finds the OpenShell gateways that the user has registered and speaks to them. Every change has one of three
// outcomes, and every call but Exec an end: nothing here waits for a gateway that hangs.
package openshell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/system/fault"
)

// Gateway is a gateway that answered. It is safe for concurrent use. A gateway that was restarted is spoken to again.
type Gateway struct {
	registration Registration
	limits       callLimits
	facts        Facts

	mu     sync.Mutex
	conn   *grpc.ClientConn
	failed bool // to connect, the last time
	closed bool
}

// Facts are what a gateway says of itself.
type Facts struct {
	Version       string // "0.0.116"
	Driver        string // "docker"
	DriverVersion string // the engine's: "20.10.24"
	Warning       string // what is not qualified about it, "" where nothing is
}

// Qualified is the version whose protocol this is. Gateways of other 0.0 versions have the same as far as it is known.
const Qualified = "0.0.116"

// Connect asks a gateway who it is, in two calls. A failure is of kind NotReady, also where the gateway is there and cannot be
// used.
func Connect(ctx context.Context, r Registration) (*Gateway, error) {
	return connect(ctx, r, standardLimits())
}

func connect(ctx context.Context, r Registration, l callLimits) (*Gateway, error) {
	g := &Gateway{registration: r, limits: l}
	if err := g.readFacts(ctx); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

func (g *Gateway) readFacts(ctx context.Context) error {
	if err := g.readVersion(ctx); err != nil {
		return err
	}
	c, cancel := beginCall(ctx, g.limits.info)
	defer cancel()
	info, err := g.client().GetGatewayInfo(c.ctx, &wire.GetGatewayInfoRequest{})
	if err != nil {
		return g.endRead(c, err, "ask %s for its drivers", g)
	}
	var names []string
	for _, d := range info.GetComputeDrivers() {
		names = append(names, d.GetName())
	}
	if len(names) != 1 || names[0] != "docker" {
		return failure.New(failure.NotReady, "%s has to have one driver, docker, and has: %s", g, cmp.Or(strings.Join(names, ", "), "none")).
			WithHint("start the gateway with --drivers docker")
	}
	g.facts.Driver, g.facts.DriverVersion = names[0], info.GetComputeDrivers()[0].GetCapabilities().GetDriverVersion()
	return nil
}

// readVersion asks for the version, which every gateway says to everybody.
func (g *Gateway) readVersion(ctx context.Context) error {
	c, cancel := beginCall(ctx, g.limits.ping)
	defer cancel()
	health, err := g.client().Health(c.ctx, &wire.HealthRequest{})
	if err != nil {
		return g.noGateway(c, err)
	}
	g.facts.Version = health.GetVersion()
	g.facts.Warning, err = checkQualified(health.GetVersion(), g.registration)
	return err
}

// checkQualified says what is not qualified about a version, or why it cannot be spoken to. An archive's build says 0.0.0.
func checkQualified(version string, r Registration) (warning string, err error) {
	core, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), "+")
	core, _, _ = strings.Cut(core, "-")
	parts := strings.Split(core, ".")
	for _, p := range parts {
		if _, err := strconv.ParseUint(p, 10, 32); err != nil || len(parts) != 3 {
			return "", failure.New(failure.NotReady, "the OpenShell gateway %q does not say which version it is (%q): laufwerk supports %s", r.Alias, version, Qualified).
				WithHint("openshell status --gateway %s", failure.Quote(r.Alias))
		}
	}
	switch {
	case parts[0] != "0" || parts[1] != "0":
		return "", failure.New(failure.NotReady, "the OpenShell gateway %q is version %s: its calls have the same names as in 0.0, but other contents; laufwerk supports %s", r.Alias, version, Qualified).
			WithHint("install OpenShell %s beside it, and register that gateway under another alias", Qualified)
	case version == Qualified:
		return "", nil
	case core == "0.0.0":
		return fmt.Sprintf("the OpenShell gateway %q was built without a version (%s); laufwerk is qualified with %s", r.Alias, version, Qualified), nil
	}
	return fmt.Sprintf("the OpenShell gateway %q is version %s; laufwerk is qualified with %s", r.Alias, version, Qualified), nil
}

// Facts are what it said when it was connected to.
func (g *Gateway) Facts() Facts { return g.facts }

// Registration is how it was found.
func (g *Gateway) Registration() Registration { return g.registration }

func (g *Gateway) String() string {
	return fmt.Sprintf("the OpenShell gateway %q at %s", g.registration.Alias, g.registration.Endpoint)
}

// Close ends the connection, and the calls on it.
func (g *Gateway) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	if g.conn != nil {
		_ = g.conn.Close()
	}
}

// client is the calls, on a connection that is tried anew where the last try failed: the library would wait before the next,
// and fail calls meanwhile, although the gateway may be back.
func (g *Gateway) client() wire.OpenShellClient {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.conn != nil && !g.closed {
		// A call whose connection broke off may be the one that tried in vain, and not know it.
		if state := g.conn.GetState(); state == connectivity.TransientFailure || g.failed && state != connectivity.Ready {
			_ = g.conn.Close()
			g.conn = nil
		}
	}
	g.failed = false
	if g.conn == nil && !g.closed {
		g.conn = g.dial()
	}
	return wire.NewOpenShellClient(g.conn)
}

func (g *Gateway) markUnreachable() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failed = true
}

const (
	maxSent     = 1<<20 - 1 // a gateway decodes no more, of one message
	maxReceived = 256 << 20 // a page of a thousand sandboxes has policies of up to 256 KiB in it
)

// dial makes a connection that is not there before its first call. No environment variable changes what it does.
func (g *Gateway) dial() *grpc.ClientConn {
	conn, err := grpc.NewClient("passthrough:///"+strings.TrimPrefix(g.registration.Endpoint, "https://"),
		grpc.WithTransportCredentials(credentials.NewTLS(g.registration.tls())),
		grpc.WithContextDialer(dialHere),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(), // a request is sent again only where the gateway says that it has not looked at it
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, MaxDelay: time.Second}, MinConnectTimeout: g.limits.ping}),
		// A gateway that vanished is noticed within 50 s, while a call waits for it.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 20 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReceived), grpc.MaxCallSendMsgSize(maxSent)),
		grpc.WithStatsHandler(watch{}))
	if err != nil {
		panic(err) // of a target or of options that no registration can bring about
	}
	return conn
}

// dialHere refuses to connect to another machine, whatever a name resolves to.
func dialHere(ctx context.Context, address string) (net.Conn, error) {
	if err := fault.Point("connect", address); err != nil {
		return nil, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if to, ok := conn.RemoteAddr().(*net.TCPAddr); !ok || !to.IP.IsLoopback() {
		_ = conn.Close()
		return nil, fmt.Errorf("%s is not this machine", conn.RemoteAddr())
	}
	return conn, nil
}

// noGateway explains a first call that brought no gateway's answer.
func (g *Gateway) noGateway(c *call, err error) error {
	if c.answered.Load() || status.Code(err) == codes.Unimplemented || strings.Contains(err.Error(), "unexpected HTTP status code") {
		return failure.New(failure.NotReady, "what listens at %s is not an OpenShell gateway: it does not know the first call", g.registration.Endpoint).
			WithHint("%s   # with the port of the gateway", registerCommand(g.registration.Alias)).WithCause(errors.New(statusText(err)))
	}
	return g.endRead(c, err, "cannot reach %s", g)
}
