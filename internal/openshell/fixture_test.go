package openshell

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/laufwerk/laufwerk/internal/openshell/wire"
)

// authority signs certificates for a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func newAuthority(t *testing.T, changes ...func(*x509.Certificate)) *authority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tests"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	for _, change := range changes {
		change(template)
	}
	key := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// sign makes a certificate and its key, as PEM.
func (a *authority) sign(t *testing.T, changes ...func(*x509.Certificate)) (crt, key []byte) {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "somebody"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	for _, change := range changes {
		change(template)
	}
	own := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &own.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

func expired(c *x509.Certificate) {
	c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
}

// server is the gateway's side of TLS, with clients that it trusts.
func (a *authority) server(t *testing.T, clients *authority, changes ...func(*x509.Certificate)) *tls.Config {
	t.Helper()
	crt, key := a.sign(t, changes...)
	pair, err := tls.X509KeyPair(crt, key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(clients.cert)
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}
}

// registered writes a registration as the openshell CLI does, and says where the configuration is.
func registered(t *testing.T, a *authority, alias, endpoint string) (config string) {
	t.Helper()
	config = t.TempDir()
	dir := filepath.Join(config, "openshell", "gateways", alias)
	crt, key := a.sign(t)
	put(t, filepath.Join(dir, "metadata.json"), fmt.Sprintf(`{"name":%q,"gateway_endpoint":%q,"is_remote":false,"gateway_port":17670}`, alias, endpoint))
	put(t, filepath.Join(dir, "mtls/ca.crt"), string(a.pem))
	put(t, filepath.Join(dir, "mtls/tls.crt"), string(crt))
	put(t, filepath.Join(dir, "mtls/tls.key"), string(key))
	return config
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func find(t *testing.T, config, alias string) Registration {
	t.Helper()
	r, err := Registrations{Vars: map[string]string{"XDG_CONFIG_HOME": config}}.Find(alias)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// fake is a gateway that does what a test says, and nothing else.
type fake struct {
	wire.UnimplementedOpenShellServer
	version string
	drivers []string
	info    func(ctx context.Context) error // what comes in the place of the drivers; nil: nothing does
	do      func(ctx context.Context, request any) (any, error)
	exec    func(r *wire.ExecSandboxRequest, send func(*wire.ExecSandboxEvent) error) error

	mu    sync.Mutex
	calls map[string]int
}

func (f *fake) Health(context.Context, *wire.HealthRequest) (*wire.HealthResponse, error) {
	return &wire.HealthResponse{Status: wire.ServiceStatus_SERVICE_STATUS_HEALTHY, Version: f.version}, nil
}

func (f *fake) GetGatewayInfo(ctx context.Context, _ *wire.GetGatewayInfoRequest) (*wire.GetGatewayInfoResponse, error) {
	if f.info != nil {
		if err := f.info(ctx); err != nil {
			return nil, err
		}
	}
	out := &wire.GetGatewayInfoResponse{GatewayVersion: f.version}
	for _, d := range f.drivers {
		out.ComputeDrivers = append(out.ComputeDrivers, &wire.ComputeDriverInfo{Name: d, Capabilities: &wire.ComputeDriverCapabilities{DriverName: d, DriverVersion: "20.10.24"}})
	}
	return out, nil
}

func (f *fake) ExecSandbox(r *wire.ExecSandboxRequest, s grpc.ServerStreamingServer[wire.ExecSandboxEvent]) error {
	return f.exec(r, s.Send)
}

// served is a running fake.
type served struct {
	*fake
	*authority
	address string

	mu     sync.Mutex
	server *grpc.Server
	conns  []net.Conn
}

// serve runs a gateway with mTLS.
func serve(t *testing.T, f *fake) *served {
	t.Helper()
	if f.version == "" {
		f.version = Qualified
	}
	if f.drivers == nil {
		f.drivers = []string{"docker"}
	}
	f.calls = map[string]int{}
	a := newAuthority(t)
	s := &served{fake: f, authority: a, address: "127.0.0.1:0"}
	s.start(t)
	t.Cleanup(s.stop)
	return s
}

// start serves again at the same address.
func (s *served) start(t *testing.T) {
	t.Helper()
	l := listen(t, s.address)
	s.address = l.Addr().String()
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(s.authority.server(t, s.authority))), grpc.UnaryInterceptor(s.intercept), grpc.MaxRecvMsgSize(1<<20))
	wire.RegisterOpenShellServer(server, s.fake)
	s.mu.Lock()
	s.server = server
	s.mu.Unlock()
	go func() { _ = server.Serve(&kept{l, s}) }()
}

// intercept answers every unary call but the first two through do.
func (s *served) intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo, own grpc.UnaryHandler) (any, error) {
	name := filepath.Base(info.FullMethod)
	s.fake.mu.Lock()
	s.calls[name]++
	do := s.do
	s.fake.mu.Unlock()
	if do == nil || name == "Health" || name == "GetGatewayInfo" {
		return own(ctx, request)
	}
	return do(ctx, request)
}

// then is what becomes of the calls from now on.
func (s *served) then(do func(ctx context.Context) (any, error)) {
	s.fake.mu.Lock()
	defer s.fake.mu.Unlock()
	s.do = func(ctx context.Context, _ any) (any, error) { return do(ctx) }
}

func (s *served) called(name string) int {
	s.fake.mu.Lock()
	defer s.fake.mu.Unlock()
	return s.calls[name]
}

func (s *served) stop() {
	s.mu.Lock()
	server := s.server
	s.mu.Unlock()
	s.cut()
	server.Stop()
}

// cut breaks all connections off, in the middle of whatever they carry.
func (s *served) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
	s.conns = nil
}

func (s *served) connect(t *testing.T) *Gateway {
	t.Helper()
	g, err := Connect(t.Context(), find(t, registered(t, s.authority, "lab", "https://"+s.address), "lab"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

// kept is a listener whose connections can be cut.
type kept struct {
	net.Listener
	s *served
}

func (k *kept) Accept() (net.Conn, error) {
	c, err := k.Listener.Accept()
	if err == nil {
		k.s.mu.Lock()
		k.s.conns = append(k.s.conns, c)
		k.s.mu.Unlock()
	}
	return c, err
}

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// answering is a listener whose connections are handled one by one, and closed after.
func answering(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	l := listen(t, "127.0.0.1:0")
	answer(l, handle)
	return l.Addr().String()
}

// answer hands every connection to handle, and ends it then.
func answer(l net.Listener, handle func(net.Conn)) {
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				handle(c)
			}()
		}
	}()
}

// silent takes everything and says nothing.
func silent(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
