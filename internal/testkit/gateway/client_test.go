package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/laufwerk/laufwerk/internal/openshell/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const limit = time.Minute // when a test hangs

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never came to be: %s", what)
		}
	}
}

// consumer speaks to a gateway by its registration.
type consumer struct {
	wire.OpenShellClient
	t *testing.T
}

func dial(t *testing.T, g *Gateway) consumer {
	t.Helper()
	home := t.TempDir()
	g.Register(home, "here")
	dir := filepath.Join(home, "openshell/gateways/here")
	var metadata struct {
		Endpoint string `json:"gateway_endpoint"`
	}
	b, err := os.ReadFile(filepath.Join(dir, "metadata.json"))
	must(t, err)
	must(t, json.Unmarshal(b, &metadata))
	u, err := url.Parse(metadata.Endpoint)
	must(t, err)
	ca, err := os.ReadFile(filepath.Join(dir, "mtls/ca.crt"))
	must(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "mtls/tls.crt"), filepath.Join(dir, "mtls/tls.key"))
	must(t, err)
	conn, err := grpc.NewClient("passthrough:///"+u.Host, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		RootCAs: pool, Certificates: []tls.Certificate{pair}, ServerName: u.Hostname(), MinVersion: tls.VersionTLS12,
	})), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20), grpc.WaitForReady(true)))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return consumer{wire.NewOpenShellClient(conn), t}
}

// holdMoment holds the next such moment until it is released, or until the test is over.
func holdMoment(t *testing.T, g *Gateway, moment string) (release func()) {
	t.Helper()
	open := make(chan struct{})
	release = sync.OnceFunc(func() { close(open) })
	t.Cleanup(release)
	g.Fault(moment, Before(func() { <-open }))
	return release
}

func code(t *testing.T, want codes.Code, err error) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("%v; want %v", err, want)
	}
}

func object(t *testing.T, v map[string]any) *structpb.Struct {
	t.Helper()
	s, err := structpb.NewStruct(v)
	must(t, err)
	return s
}

// create makes a sandbox and waits until it is what it becomes.
func (c consumer) create(name string, change func(r *wire.CreateSandboxRequest)) *wire.Sandbox {
	c.t.Helper()
	req := request(name)
	if change != nil {
		change(req)
	}
	made, err := c.CreateSandbox(bounded(c.t), req)
	must(c.t, err)
	if phase := made.GetSandbox().GetStatus().GetPhase(); phase != wire.SandboxPhase_SANDBOX_PHASE_PROVISIONING {
		c.t.Errorf("the reply says %v", phase)
	}
	return c.settled(name)
}

func request(name string) *wire.CreateSandboxRequest {
	return &wire.CreateSandboxRequest{Name: name, Labels: map[string]string{"of": "tests"}, Spec: &wire.SandboxSpec{
		Template: &wire.SandboxTemplate{Image: "image"}, Command: []string{"/bin/sleep", "infinity"},
	}}
}

func (c consumer) get(name string) (*wire.Sandbox, error) {
	got, err := c.GetSandbox(bounded(c.t), &wire.GetSandboxRequest{Name: name})
	return got.GetSandbox(), err
}

func (c consumer) settled(name string) (s *wire.Sandbox) {
	c.t.Helper()
	eventually(c.t, name+" settles", func() bool {
		var err error
		s, err = c.get(name)
		must(c.t, err)
		return s.GetStatus().GetPhase() != wire.SandboxPhase_SANDBOX_PHASE_PROVISIONING
	})
	return s
}

// back waits until the connection is one to the gateway that runs now.
func (c consumer) back() {
	c.t.Helper()
	eventually(c.t, "the gateway is back", func() bool {
		_, err := c.Health(bounded(c.t), &wire.HealthRequest{})
		return err == nil
	})
}

func (c consumer) ready(name string, change func(r *wire.CreateSandboxRequest)) *wire.Sandbox {
	c.t.Helper()
	s := c.create(name, change)
	if s.GetStatus().GetPhase() != wire.SandboxPhase_SANDBOX_PHASE_READY {
		c.t.Fatalf("%s is %v", name, s.GetStatus())
	}
	return s
}

func (c consumer) gone(name string) {
	c.t.Helper()
	eventually(c.t, name+" is gone", func() bool {
		_, err := c.get(name)
		return status.Code(err) == codes.NotFound
	})
}

func (c consumer) delete(name string) bool {
	c.t.Helper()
	out, err := c.DeleteSandbox(bounded(c.t), &wire.DeleteSandboxRequest{Name: name})
	must(c.t, err)
	return out.GetDeleted()
}

// exec runs a command to its end; -1 is a stream without an exit event.
func (c consumer) exec(req *wire.ExecSandboxRequest) (code int, stdout, stderr string, err error) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(bounded(c.t))
	defer cancel()
	stream, err := c.ExecSandbox(ctx, req)
	must(c.t, err)
	var out, problems bytes.Buffer
	code = -1
	for {
		e, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return code, out.String(), problems.String(), nil
		}
		if err != nil {
			return code, out.String(), problems.String(), err
		}
		out.Write(e.GetStdout().GetData())
		problems.Write(e.GetStderr().GetData())
		if n := max(len(e.GetStdout().GetData()), len(e.GetStderr().GetData())); n > maxEvent {
			c.t.Errorf("an event of %d bytes", n)
		}
		if e.GetExit() != nil {
			code = int(e.GetExit().GetExitCode())
		}
	}
}
