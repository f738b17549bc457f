// Package dockerengine finds the Docker engine of this host and speaks to it. Every change has one of three outcomes, and
// every call an end: nothing here waits for an engine that hangs.
package dockerengine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/versions"
	"github.com/docker/docker/client"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system/fault"
)

// Engine is an engine that answered. It is safe for concurrent use.
type Engine struct {
	endpoint Endpoint
	client   *client.Client
	http     *http.Transport
	api      string // the engine's own version
	limits   callLimits

	mu    sync.Mutex
	facts Facts
}

// Facts are what an engine says of itself.
type Facts struct {
	ID            string
	RootDir       string // on its host
	Version       string // "20.10.24"
	API           string // the newest version that it speaks: "1.41"
	OS            string // "linux"
	System        string // "Debian GNU/Linux 12 (bookworm)", "Docker Desktop"
	Arch          string // as Go names it: "amd64", "arm64"
	Rootless      bool   // root inside is the user who started it
	UserNS        bool   // root inside is another user outside, unless a container asks for the host's
	Memory        bool   // can be enforced, like the three below
	Swap          bool
	Pids          bool
	CPU           bool
	CPUs          int    // cores that it has; 0 where it does not say
	CgroupVersion string // "1" or "2"
}

// Identity tells engines apart. The ID alone does not: engines that share one /etc/docker/key.json have the same.
func (f Facts) Identity() string { return fmt.Sprintf("docker engine %s at %s", f.ID, f.RootDir) }

// MinAPI is the oldest API version that has all that is asked of an engine: Docker 20.10.
const MinAPI = "1.41"

// Connect asks the engine at an endpoint who it is: one ping, one info. A failure is of kind NotReady, also where the engine is
// there and cannot be used.
func Connect(ctx context.Context, endpoint Endpoint) (*Engine, error) {
	return connect(ctx, endpoint, standardLimits())
}

func connect(ctx context.Context, endpoint Endpoint, l callLimits) (*Engine, error) {
	e, err := dial(endpoint, l)
	if err != nil {
		return nil, err
	}
	if err := e.negotiate(ctx); err != nil {
		e.Close()
		return nil, err
	}
	if _, err := e.Refresh(ctx); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// dial makes an Engine that nothing is known of. No environment variable changes what it does.
func dial(endpoint Endpoint, l callLimits) (*Engine, error) {
	if !strings.HasPrefix(endpoint.Host, unixScheme+"/") {
		_, err := endpointByName(endpoint.Host, endpoint.Origin)
		return nil, err
	}
	e := &Engine{endpoint: endpoint, limits: l}
	e.http = &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return e.connect(ctx) },
		DisableCompression: true,
		MaxIdleConns:       8, MaxIdleConnsPerHost: 8, IdleConnTimeout: 30 * time.Second,
	}
	c, err := client.NewClientWithOpts(client.WithHost(endpoint.Host),
		client.WithHTTPClient(&http.Client{Transport: watchedTransport{e.http}, CheckRedirect: client.CheckRedirect}))
	if err != nil {
		return nil, failure.Wrap(err, failure.NotReady, "cannot connect to the engine at %s", endpoint)
	}
	e.client = c
	return e, nil
}

// connect waits where the queue of the socket is full: an engine that is busy, or hangs.
func (e *Engine) connect(ctx context.Context) (net.Conn, error) {
	if err := fault.Point("connect", e.endpoint.Socket()); err != nil {
		return nil, err
	}
	var d net.Dialer
	for {
		conn, err := d.DialContext(ctx, "unix", e.endpoint.Socket())
		if err == nil {
			return &connection{UnixConn: conn.(*net.UnixConn)}, nil
		}
		var soon interface{ Temporary() bool }
		if !errors.As(err, &soon) || !soon.Temporary() {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (e *Engine) negotiate(ctx context.Context) error {
	c, cancel := beginCall(ctx, e.limits.ping)
	defer cancel()
	ping, err := e.client.Ping(c.ctx)
	if err != nil && ping.APIVersion == "" {
		return e.explainPing(c, err)
	}
	if err != nil { // it is an engine, and says that it is not well
		return failure.Wrap(errors.New(bareMessage(err)), failure.NotReady, "the engine at %s answers a ping with an error", e.endpoint)
	}
	if err := e.checkVersion(ping); err != nil {
		return err
	}
	e.client.NegotiateAPIVersionPing(ping)
	e.api = ping.APIVersion
	return nil
}

func (e *Engine) checkVersion(ping types.Ping) error {
	version := e.client.ClientVersion()
	switch {
	case ping.APIVersion == "":
		return failure.New(failure.NotReady, "what listens at %s is not a Docker engine: it answers without an API version", e.endpoint).WithPaths(e.endpoint.Socket())
	case ping.OSType == "windows":
		return failure.New(failure.NotReady, "the engine at %s runs Windows containers; laufwerk needs Linux containers", e.endpoint).
			WithHint("switch Docker Desktop to Linux containers")
	case versions.LessThan(ping.APIVersion, MinAPI):
		return failure.New(failure.NotReady, "the engine at %s speaks API %s at most; laufwerk needs at least %s (Docker 20.10) and speaks up to %s",
			e.endpoint, ping.APIVersion, MinAPI, version).WithHint("upgrade the engine: https://docs.docker.com/engine/install/")
	}
	return nil
}

// explainPing explains a ping that brought no engine's answer.
func (e *Engine) explainPing(c *call, err error) error {
	text := c.cause(err).Error() + "\n" + err.Error()
	tls := strings.Contains(text, "HTTP request to an HTTPS server")
	switch {
	case c.ctx.Err() != nil && c.parent.Err() == nil:
		return failure.New(failure.NotReady, "the engine at %s hangs: it accepts connections, but did not answer a ping within %s", e.endpoint, c.limit).
			WithHint("%s", hungHint).WithPaths(e.endpoint.Socket())
	case tls || strings.Contains(text, "malformed HTTP"):
		what := "it does not speak HTTP/1.1"
		if tls || strings.Contains(text, `\x15\x03`) {
			what = "it speaks TLS, which is not used on unix sockets"
		}
		return failure.New(failure.NotReady, "what listens at %s is not a Docker engine's socket: %s", e.endpoint, what).
			WithHint("export DOCKER_HOST=unix:///var/run/docker.sock   # or another socket of an engine").WithPaths(e.endpoint.Socket()).WithCause(c.cause(err))
	case c.status.Load() != 0:
		return failure.New(failure.NotReady, "what listens at %s is not a Docker engine: it answered a ping with HTTP %d", e.endpoint, c.status.Load()).
			WithPaths(e.endpoint.Socket()).WithCause(errors.New(bareMessage(err)))
	default:
		return e.endRead(c, err, "cannot reach the Docker engine")
	}
}

// Endpoint is where it is.
func (e *Engine) Endpoint() Endpoint { return e.endpoint }

// Facts are what it said when it was asked last.
func (e *Engine) Facts() Facts {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.facts
}

// Close ends idle connections; calls go on.
func (e *Engine) Close() { e.http.CloseIdleConnections() }

// Refresh asks again, in one call: the engine may have been restarted, or another one may sit on the socket now.
func (e *Engine) Refresh(ctx context.Context) (Facts, error) {
	c, cancel := beginCall(ctx, e.limits.info)
	defer cancel()
	info, err := e.client.Info(c.ctx)
	if err == nil && (info.ID == "" || info.DockerRootDir == "") {
		// It answers so while its own parts do not answer it.
		return Facts{}, failure.New(failure.NotReady, "the engine at %s does not identify itself: its info has no ID or no root directory", e.endpoint).WithHint("%s", hungHint)
	}
	if c.hasAnswer(err, http.StatusBadRequest, "client version") {
		return Facts{}, failure.New(failure.NotReady, "the engine at %s speaks API %s and refuses %s, the newest that laufwerk speaks", e.endpoint, e.api, e.client.ClientVersion()).
			WithHint("upgrade laufwerk").WithCause(errors.New(bareMessage(err)))
	}
	if err != nil {
		return Facts{}, e.explain(c, err, failure.NotReady, "read the identity of the Docker engine at %s", e.endpoint)
	}
	if info.OSType != "linux" {
		return Facts{}, failure.New(failure.NotReady, "the engine at %s runs %s containers; laufwerk needs Linux containers", e.endpoint, info.OSType).
			WithHint("switch Docker Desktop to Linux containers")
	}
	f := e.readFacts(info)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.facts = f
	return f, nil
}

func (e *Engine) readFacts(info system.Info) Facts {
	option := func(name string) bool {
		return slices.ContainsFunc(info.SecurityOptions, func(o string) bool { return slices.Contains(strings.Split(o, ","), "name="+name) })
	}
	arch := info.Architecture
	switch arch {
	case "x86_64":
		arch = "amd64"
	case "aarch64":
		arch = "arm64"
	}
	return Facts{
		ID: info.ID, RootDir: info.DockerRootDir, Version: info.ServerVersion, API: e.api, OS: info.OSType, System: info.OperatingSystem, Arch: arch,
		Rootless: option("rootless"), UserNS: option("userns"),
		Memory: info.MemoryLimit, Swap: info.SwapLimit, Pids: info.PidsLimit, CPU: info.CPUCfsQuota && info.CPUCfsPeriod,
		CPUs: info.NCPU, CgroupVersion: info.CgroupVersion,
	}
}

// Engines is how engines are reached.
type Engines struct {
	// Connect is a connection to the engine behind a socket ("unix:///…"), made once or kept; "" is the one that the worker's
	// settings lead to.
	Connect func(ctx context.Context, host string) (*Engine, error)
	Host    func() (string, error) // which that is; nil where it is not known without connecting
}

// FindByIdentity is the engine with an identity, which was at host when that was recorded. Where another one answers there, or none, the
// one that the settings lead to may be it: a socket can move, an identity cannot. another is the failure of one that answers and
// is not it.
func (s Engines) FindByIdentity(ctx context.Context, host, identity string, another func(*Engine) error) (*Engine, error) {
	e, err := s.Connect(ctx, host)
	if err == nil && e.Facts().Identity() == identity {
		return e, nil
	}
	if err != nil && s.Host != nil {
		if settings, herr := s.Host(); herr == nil && settings == host {
			return nil, err // it is the same socket
		}
	}
	if other, oerr := s.Connect(ctx, ""); oerr == nil && other.Facts().Identity() == identity {
		return other, nil
	}
	if err != nil {
		return nil, err
	}
	return nil, another(e)
}
