// Package gateway is an OpenShell gateway for tests, which speaks the wire of 0.0.116 over mTLS. It does what was observed of
// a real one, the unpleasant parts included: sandboxes come to be after the reply, a delete is only acknowledged, a delete that
// overtakes a create leaves a container that the gateway knows nothing of, a kill leaves rows that say DELETING, and many a
// mistake in a policy is taken without a word.
//
// Its sandboxes are in memory (Memory) or containers of the tests' engine (Containers), in which a small supervisor of our own
// starts processes as OpenShell's does, with the sandbox's user, Landlock and a proxy as the only way out.
//
// Where it differs: times are shorter (Options), and a graceful stop does not take ten seconds; there are one workspace,
// "default", and one user, whose certificate Register writes; no terminals, no volumes, no GPUs, no calls but those of package
// wire; of application protocols the proxy knows HTTP ("rest") alone, and refuses the others.
package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/testkit"
)

// Options say how a gateway is set up. The zero value is a usual one.
type Options struct {
	Version string   // "" is 0.0.116
	Drivers []string // nil is docker alone

	NoBindMounts bool // enable_bind_mounts is not set
	GlobalPolicy bool // a policy of the gateway replaces that of every sandbox

	Poll      time.Duration // between two looks at the containers; 0 is 20 ms
	Reconnect time.Duration // until supervisors are back after a restart; 0 is 50 ms, and was seen to be 2 s
	Grace     time.Duration // until rows without a container are dropped; 0 is 5 minutes, as in reality. Reconcile does not wait.

	// Of Memory alone.
	Images []string            // what is on the engine; nil is every image
	Run    func(p Process) int // what stands for the processes; nil: a main process runs until it is killed, all others end with 0
}

// Gateway is one gateway with its database. It runs until Stop or Kill, and again from Start on.
type Gateway struct {
	options   Options
	t         testkit.T
	namespace string
	back      backend
	work      sync.WaitGroup // what goes on when a call is over

	mu        sync.Mutex
	life      *life // nil while the gateway does not run
	address   string
	identity  *identity
	rows      map[string]*row // by name
	providers map[string]*provider
	profiles  map[string]*wire.ProviderProfile
	calls     []string
	faults    map[string][]*Fault
	leads     map[string]*url.URL // by host:port
}

// backend makes and ends containers. It knows nothing of rows, and outlives every run of the gateway.
type backend interface {
	create(b blueprint) error                     // an *unfit says why in the gateway's words
	start(id string) error                        // likewise
	connect(ctx context.Context, id string) error // returns when the supervisor of a container answers
	exec(id string, c command, emit func(stderr bool, data []byte)) (code int, err error)
	remove(id string) (found bool, err error)
	halt(id string) error                     // stops it, and keeps its files
	inspectAll() (map[string]observed, error) // by sandbox id
	version() string
	engine() string
	close()
}

// blueprint is what a container is made from.
type blueprint struct {
	sandbox *wire.Sandbox
	labels  map[string]string
	mounts  []mount
	limits  limits
	env     []string // of every process
}

// observed is a container as its engine tells of it.
type observed struct {
	state string // created, running, exited
	code  int    // when it has exited
}

const (
	created = "created"
	running = "running"
	exited  = "exited"
)

// unfit is why a sandbox cannot be: a condition of its status.
type unfit struct{ reason, message string }

func (u *unfit) Error() string { return u.reason + ": " + u.message }

// Memory is a gateway whose containers are in memory. Engine is a Docker engine that knows them.
func Memory(t testkit.T, o Options) *Gateway {
	t.Helper()
	return begin(t, o, func(g *Gateway) backend { return newMemory(g) })
}

func begin(t testkit.T, o Options, back func(g *Gateway) backend) *Gateway {
	t.Helper()
	set := func(d *time.Duration, standard time.Duration) {
		if *d == 0 {
			*d = standard
		}
	}
	set(&o.Poll, 20*time.Millisecond)
	set(&o.Reconnect, 50*time.Millisecond)
	set(&o.Grace, 5*time.Minute)
	if o.Version == "" {
		o.Version = "0.0.116"
	}
	if o.Drivers == nil {
		o.Drivers = []string{"docker"}
	}
	g := &Gateway{
		options: o, t: t, namespace: "t" + random(6), identity: newIdentity(t), address: "127.0.0.1:0",
		rows: map[string]*row{}, providers: map[string]*provider{}, profiles: builtin(), faults: map[string][]*Fault{},
		leads: map[string]*url.URL{},
	}
	g.back = back(g)
	t.Cleanup(func() {
		g.Kill()
		g.back.close()
		g.work.Wait()
		g.back.close() // what was on its way
	})
	g.Start()
	return g
}

// Endpoint is the gateway's address, https://127.0.0.1:port; it stays the same.
func (g *Gateway) Endpoint() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return "https://" + g.address
}

// Register writes the files of a registration below configHome ($XDG_CONFIG_HOME), as OpenShell's CLI does, for the user of
// the test.
func (g *Gateway) Register(configHome, alias string) {
	g.t.Helper()
	g.mu.Lock()
	address, id := g.address, g.identity
	g.mu.Unlock()
	dir := filepath.Join(configHome, "openshell/gateways", alias)
	mtls := filepath.Join(dir, "mtls")
	check := func(err error) {
		g.t.Helper()
		if err != nil {
			g.t.Fatalf("register the gateway: %v", err)
		}
	}
	check(os.MkdirAll(mtls, 0o700))
	_, port, err := net.SplitHostPort(address)
	check(err)
	metadata, err := json.MarshalIndent(map[string]any{
		"name": alias, "gateway_endpoint": "https://" + address, "is_remote": false, "gateway_port": json.Number(port),
	}, "", "  ")
	check(err)
	check(os.WriteFile(filepath.Join(dir, "metadata.json"), metadata, 0o600))
	for name, content := range map[string][]byte{"ca.crt": id.authority, "tls.crt": id.certificate, "tls.key": id.key} {
		check(os.WriteFile(filepath.Join(mtls, name), content, 0o600))
	}
}

// Rotate gives the gateway an authority and certificates of a new making, as `generate-certs` does; it has to be registered
// anew. Runs of the gateway take it up with the next Start.
func (g *Gateway) Rotate() {
	id := newIdentity(g.t)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.identity = id
}

// Calls are the calls that have reached the gateway since its making, by name.
func (g *Gateway) Calls() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := map[string]int{}
	for _, name := range g.calls {
		out[name]++
	}
	return out
}

// Sequence are the names of those calls in their order.
func (g *Gateway) Sequence() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.calls)
}

// Start runs the gateway again on what it has stored. One that runs stays as it is.
func (g *Gateway) Start() {
	g.t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.life != nil {
		return
	}
	l, err := listen(g.address)
	if err != nil {
		g.t.Errorf("start the gateway again: %v", err)
		return
	}
	g.address = l.Addr().String()
	g.life = newLife(g, l)
}

// listen takes the address again that the gateway had before. Nobody else may listen there now, but for a moment a connection
// may still have it.
func listen(address string) (net.Listener, error) {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		l, err := net.Listen("tcp", address)
		if err == nil || time.Now().After(end) {
			return l, err
		}
	}
}

// Kill ends the gateway as SIGKILL does: what it has stored stays as it is, and containers run on.
func (g *Gateway) Kill() {
	g.mu.Lock()
	l := g.life
	g.life = nil
	g.mu.Unlock()
	if l != nil {
		l.end()
	}
}

// Stop ends the gateway in order: its containers are stopped, and started with the next Start. Files in them stay, processes
// do not.
func (g *Gateway) Stop() {
	g.t.Helper()
	g.mu.Lock()
	l := g.life
	g.life = nil
	var ids []string
	for _, r := range g.rows {
		switch r.phase() {
		case wire.SandboxPhase_SANDBOX_PHASE_READY, wire.SandboxPhase_SANDBOX_PHASE_PROVISIONING:
			r.halted = true
			ids = append(ids, r.id())
		}
	}
	g.mu.Unlock()
	if l == nil {
		return
	}
	l.end()
	for _, id := range ids {
		if err := g.back.halt(id); err != nil {
			g.t.Errorf("stop the container of the sandbox %s: %v", id, err)
		}
	}
}

// Restart is Kill and Start.
func (g *Gateway) Restart() { g.t.Helper(); g.Kill(); g.Start() }

// Rows are the names of what the gateway has, with their phases.
func (g *Gateway) Rows() map[string]wire.SandboxPhase {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make(map[string]wire.SandboxPhase, len(g.rows))
	for name, r := range g.rows {
		out[name] = r.phase()
	}
	return out
}

// Reconcile does at once what the gateway does to rows without a container when its time of grace is over.
func (g *Gateway) Reconcile() {
	g.t.Helper()
	seen, err := g.back.inspectAll()
	if err != nil {
		g.t.Errorf("inspect the containers: %v", err)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, r := range g.rows {
		if _, there := seen[r.id()]; !there && r.stuck() {
			delete(g.rows, name)
		}
	}
}

// identity is an authority with a certificate for the gateway and one for its user.
type identity struct {
	authority, certificate, key []byte // PEM; the last two are the user's
	server                      tls.Certificate
	pool                        *x509.CertPool
}

func (i *identity) config() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{i.server}, ClientCAs: i.pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
}
