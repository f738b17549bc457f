package openshell

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
)

func TestConnect(t *testing.T) {
	s := serve(t, &fake{})
	g := s.connect(t)
	if want := (Facts{Version: "0.0.116", Driver: "docker", DriverVersion: "20.10.24"}); g.Facts() != want {
		t.Errorf("it says %+v", g.Facts())
	}
	if s.called("Health") != 1 || s.called("GetGatewayInfo") != 1 {
		t.Errorf("calls: %v", s.calls)
	}
	if _, err := Connect(t.Context(), find(t, registered(t, s.authority, "lab", strings.Replace("https://"+s.address, "127.0.0.1", "localhost", 1)), "lab")); err != nil {
		t.Errorf("by name: %v", err)
	}
}

func TestVersionGate(t *testing.T) {
	for version, want := range map[string]string{
		"0.0.116": "", "v0.0.116": "warns", "0.0.116-dev.1+g1234567": "warns", "0.0.112-dev.3+g1234567": "warns", "0.0.0": "warns", "0.0.0-dev": "warns", "0.0.117": "warns", "0.0.1": "warns",
		"0.1.0": "refused", "0.1.0-rc.1": "refused", "0.2.3": "refused", "1.0.0": "refused", "": "refused", "next": "refused", "0.0": "refused", "0.0.116.1": "refused", "0.0.x": "refused",
	} {
		t.Run(version, func(t *testing.T) {
			warning, err := checkQualified(version, Registration{Alias: "lab"})
			got := ""
			switch f := failure.As(err); {
			case f != nil && f.Kind == failure.NotReady && strings.Contains(f.Message, version) && f.Hint != "":
				got = "refused"
			case err == nil && warning != "":
				got = "warns"
			}
			if got != want {
				t.Errorf("%q, %v", warning, err)
			}
		})
	}
	s := serve(t, &fake{version: "0.1.2"})
	if _, err := Connect(t.Context(), find(t, registered(t, s.authority, "lab", "https://"+s.address), "lab")); !failure.Is(err, failure.NotReady) || s.called("GetGatewayInfo") != 0 {
		t.Errorf("a gateway of 0.1: %v, calls %v", err, s.calls)
	}
}

func TestOneDriver(t *testing.T) {
	for _, drivers := range [][]string{{}, {"podman"}, {"docker", "kubernetes"}, {"Docker"}} {
		s := serve(t, &fake{drivers: drivers})
		_, err := Connect(t.Context(), find(t, registered(t, s.authority, "lab", "https://"+s.address), "lab"))
		if f := failure.As(err); f == nil || f.Kind != failure.NotReady || !strings.Contains(f.Message, "one driver, docker") {
			t.Errorf("%v: %v", drivers, err)
		}
	}
}

// A gateway that greets and does not say its drivers, whyever, is not spoken to: which engine it works with is not known.
func TestDriversThatAreNotSaid(t *testing.T) {
	var s *served
	for name, c := range map[string]struct {
		info func(ctx context.Context) error
		kind failure.Kind
		says string
	}{
		"denied":      {func(context.Context) error { return status.Error(codes.PermissionDenied, "platform_admin is required") }, failure.NotReady, "platform_admin is required"},
		"unknown":     {func(context.Context) error { return status.Error(codes.Unimplemented, "unknown method") }, failure.Unsupported, "unknown method"},
		"an error":    {func(context.Context) error { return status.Error(codes.Internal, "database is away") }, failure.NotReady, "database is away"},
		"unavailable": {func(context.Context) error { return status.Error(codes.Unavailable, "not now") }, failure.NotReady, "not now"},
		"cut":         {func(context.Context) error { s.cut(); return nil }, failure.NotReady, "was interrupted"},
		"hanging":     {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, failure.NotReady, "did not answer within 300ms"},
	} {
		t.Run(name, func(t *testing.T) {
			s = serve(t, &fake{info: c.info})
			l := standardLimits()
			l.info = 300 * time.Millisecond
			g, err := connect(t.Context(), find(t, registered(t, s.authority, "lab", "https://"+s.address), "lab"), l)
			if g != nil || !failure.Is(err, c.kind) || !strings.Contains(err.Error(), "for its drivers") || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v", err)
			}
		})
	}
}

// What listens is something else, or speaks to others: a sentence says what, and soon. Case C33, of plain text against TLS: the
// other way round, a registration in plain text, is refused before anything is dialled (TestRefusedRegistrations).
func TestNoGateway(t *testing.T) {
	a := newAuthority(t)
	web := httptest.NewUnstartedServer(http.NotFoundHandler())
	web.TLS, web.Config.ErrorLog = a.server(t, a), log.New(io.Discard, "", 0)
	web.StartTLS()
	t.Cleanup(web.Close)
	h2 := httptest.NewUnstartedServer(http.NotFoundHandler())
	h2.EnableHTTP2, h2.TLS = true, a.server(t, a)
	h2.StartTLS()
	t.Cleanup(h2.Close)

	grpcServer := func(config *tls.Config, register func(*grpc.Server)) string {
		l := listen(t, "127.0.0.1:0")
		var options []grpc.ServerOption
		if config != nil {
			options = append(options, grpc.Creds(credentials.NewTLS(config)))
		}
		s := grpc.NewServer(options...)
		register(s)
		go func() { _ = s.Serve(l) }()
		t.Cleanup(s.Stop)
		return l.Addr().String()
	}
	ours := func(s *grpc.Server) {
		wire.RegisterOpenShellServer(s, &fake{version: Qualified, drivers: []string{"docker"}})
	}
	nobody := unheard(t)

	for name, c := range map[string]struct {
		address string
		says    string
	}{
		"nothing": {nobody, "nothing listens at"},
		"plain text HTTP": {answering(t, func(c net.Conn) {
			_, _ = c.Read(make([]byte, 1000))
			_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
		}), "speaks plain text, and the registration says https"},
		"plain text gRPC":      {grpcServer(nil, ours), "speaks plain text, and the registration says https"},
		"another authority":    {grpcServer(newAuthority(t).server(t, a), ours), "is not from the authority"},
		"other clients":        {grpcServer(a.server(t, newAuthority(t)), ours), "does not accept the client certificate in"},
		"another name":         {grpcServer(a.server(t, a, func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, []string{"gateway"} }), ours), "is not valid for 127.0.0.1"},
		"an expired one":       {grpcServer(a.server(t, a, expired), ours), "is out of date"},
		"HTTP/1":               {web.Listener.Addr().String(), "does not speak HTTP/2"},
		"HTTP/2 without gRPC":  {h2.Listener.Addr().String(), "is not an OpenShell gateway"},
		"another gRPC service": {grpcServer(a.server(t, a), func(*grpc.Server) {}), "is not an OpenShell gateway"},
		"silence":              {answering(t, silent), "hangs: it did not answer within 1s"},
		"closing at once":      {answering(t, func(net.Conn) {}), "ends connections at once"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := standardLimits()
			l.ping = time.Second
			_, err := connect(t.Context(), find(t, registered(t, a, "lab", "https://"+c.address), "lab"), l)
			f := failure.As(err)
			if f == nil || f.Kind != failure.NotReady || f.Hint == "" {
				t.Fatalf("it says %#v", f)
			}
			if !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "rpc error") || strings.Contains(err.Error(), "desc =") {
				t.Errorf("it says: %v", err)
			}
		})
	}
}

// unheard is an address of this machine that nobody listens at, and that nobody else gets while the test runs.
func unheard(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", at.(*unix.SockaddrInet4).Port)
}

// The library gives a connection up before a call that waits for it is at its limit: that is the same silence.
func TestAConnectionThatIsGivenUpBeforeTheCall(t *testing.T) {
	s := serve(t, &fake{})
	l := standardLimits()
	l.ping = time.Second
	g, err := connect(t.Context(), find(t, registered(t, s.authority, "lab", "https://"+s.address), "lab"), l)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	s.stop()
	if _, _, err := g.Get(t.Context(), "a"); !failure.Is(err, failure.NotReady) {
		t.Fatalf("while it is away: %v", err)
	}
	answer(listen(t, s.address), silent)
	if _, _, err := g.Get(t.Context(), "a"); !failure.Is(err, failure.NotReady) || !strings.Contains(err.Error(), "hangs: it did not answer within 1s") {
		t.Errorf("it says: %v", err)
	}
}

func TestConnectIsGivenUp(t *testing.T) {
	r := find(t, registered(t, newAuthority(t), "lab", "https://"+answering(t, silent)), "lab")
	why := errors.New("asked to stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(why) })
	if _, err := Connect(ctx, r); !errors.Is(err, why) {
		t.Errorf("it says %v", err)
	}
}

// A name that means another machine, by whatever trick, is not connected to.
func TestOnlyThisMachineIsDialled(t *testing.T) {
	if _, err := dialHere(t.Context(), "127.0.0.1:1"); err == nil || strings.Contains(err.Error(), "not this machine") {
		t.Errorf("loopback: %v", err)
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		ip, ok := a.(*net.IPNet)
		if !ok || ip.IP.IsLoopback() || ip.IP.To4() == nil {
			continue
		}
		l := listen(t, net.JoinHostPort(ip.IP.String(), "0"))
		if c, err := dialHere(t.Context(), l.Addr().String()); err == nil || !strings.Contains(err.Error(), "not this machine") {
			t.Errorf("%s: %v, %v", l.Addr(), c, err)
		}
	}
}

// A gateway that was restarted is spoken to by the next call: none fails because an earlier one did.
func TestRestart(t *testing.T) {
	s := serve(t, &fake{do: func(_ context.Context, r any) (any, error) {
		return &wire.SandboxResponse{Sandbox: sandbox(r.(*wire.GetSandboxRequest).GetName(), "id", nil)}, nil
	}})
	g := s.connect(t)
	for round := range 3 {
		s.stop()
		for range 3 { // it is away, and every call says so
			if _, _, err := g.Get(t.Context(), "a"); !failure.Is(err, failure.NotReady) {
				t.Fatalf("while it is away: %v", err)
			}
		}
		s.start(t)
		if _, _, err := g.Get(t.Context(), "a"); err != nil {
			t.Fatalf("after restart %d: %v", round, err)
		}
	}
	g.Close()
	if _, _, err := g.Get(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "was closed") {
		t.Errorf("after Close: %v", err)
	}
}

func sandbox(name, id string, labels map[string]string) *wire.Sandbox {
	return &wire.Sandbox{Metadata: &wire.ObjectMeta{Name: name, Id: id, Labels: labels}}
}

func ExampleGateway_String() {
	fmt.Println(&Gateway{registration: Registration{Alias: "lab", Endpoint: "https://127.0.0.1:17670"}})
	// Output: the OpenShell gateway "lab" at https://127.0.0.1:17670
}
