package openshell

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/dockerengine"
	client "github.com/laufwerk/laufwerk/internal/openshell"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/testkit/gateway"
)

const (
	here  = "here"
	image = "sha256:00000000000000000000000000000000000000000000000000000000000000aa"
	limit = time.Minute // when a test hangs
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never came to be: %s", what)
		}
	}
}

// gatewayFixture is a gateway with its containers in memory, and workers of one store.
type gatewayFixture struct {
	t        testing.TB
	g        *gateway.Gateway
	config   string // $XDG_CONFIG_HOME
	dir      string // of the sessions
	owner    string
	endpoint string
	engine   *dockerengine.Engine
	n        int
}

func newGatewayFixture(t testing.TB, o gateway.Options) *gatewayFixture {
	t.Helper()
	w := &gatewayFixture{t: t, g: gateway.Memory(t, o), config: t.TempDir(), dir: t.TempDir(), owner: "store-1"}
	must(t, os.Mkdir(filepath.Join(w.dir, "work"), 0o700))
	w.g.Register(w.config, here)
	w.engine = w.connect(w.g.Engine())
	r, err := w.registrations().Find(here)
	must(t, err)
	w.endpoint = r.Identity()
	return w
}

func (w *gatewayFixture) connect(endpoint string) *dockerengine.Engine {
	w.t.Helper()
	e, err := dockerengine.Connect(bounded(w.t), dockerengine.Endpoint{Host: endpoint, Origin: "the test"})
	must(w.t, err)
	w.t.Cleanup(e.Close)
	return e
}

func (w *gatewayFixture) registrations() client.Registrations {
	return client.Registrations{Vars: map[string]string{"XDG_CONFIG_HOME": w.config}}
}

// worker is a provider with connections of its own.
type worker struct {
	*Provider
	w    *gatewayFixture
	mu   sync.Mutex
	kept map[string]*client.Gateway
}

func (w *gatewayFixture) worker(change ...func(c *Config)) *worker {
	w.t.Helper()
	k := &worker{w: w, kept: map[string]*client.Gateway{}}
	c := Config{
		Executable: "/bin/sh", Now: time.Now, UID: 1234, GID: 1234, Gateway: k.gateway, State: w.dir, Programs: programs(),
		Connect: func(context.Context, string) (*dockerengine.Engine, error) { return w.engine, nil },
	}
	for _, f := range change {
		f(&c)
	}
	k.Provider = New(c)
	k.Provider.landlock = func() (int, error) { return 4, nil }
	k.Provider.w = waitLimits{ready: 10 * time.Second, absent: 2 * time.Second, settle: 100 * time.Millisecond, landing: time.Second, deletion: 50 * time.Millisecond, pause: time.Millisecond}
	w.t.Cleanup(k.leave)
	return k
}

func (k *worker) gateway(ctx context.Context, name string) (*client.Gateway, error) {
	r, err := k.w.registrations().Find(name)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if g := k.kept[r.Identity()]; g != nil {
		return g, nil
	}
	g, err := client.Connect(ctx, r)
	if err == nil {
		k.kept[r.Identity()] = g
	}
	return g, err
}

// leave ends the worker's connections: what it has asked for goes on without it.
func (k *worker) leave() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, g := range k.kept {
		g.Close()
	}
}

// intent is one of a session that has not been made.
func (w *gatewayFixture) intent(change ...func(s *spec)) resource.Intent {
	w.t.Helper()
	w.n++
	claim := fmt.Sprintf("c%d-%s", w.n, strings.ToLower(filepath.Base(w.dir)))
	s := spec{
		Dir: filepath.Join(w.dir, "sessions", claim), Workspace: filepath.Join(w.dir, "work"), Mark: claim, Gateway: here,
		Engine: w.engine.Facts().Identity(), Socket: w.engine.Endpoint().Host, Image: image, UID: 1234, GID: 1234, Binary: "/bin/sh", Nonce: "n",
	}
	for _, f := range change {
		f(&s)
	}
	raw, err := json.Marshal(s)
	must(w.t, err)
	return resource.Intent{Claim: claim, Name: client.Name(claim), Owner: w.owner, Run: "r1", Endpoint: w.endpoint, Spec: raw, At: time.Now()}
}

func (w *gatewayFixture) sessionDir(in resource.Intent) string {
	w.t.Helper()
	s, err := readSpec(in)
	must(w.t, err)
	return s.Dir
}

// made is a session whose sandbox is ready.
func (w *gatewayFixture) made(k *worker, in resource.Intent) resource.Intent {
	w.t.Helper()
	r := k.Create(bounded(w.t), in)
	if r.Outcome != resource.Done || r.Resource == "" {
		w.t.Fatalf("create: %v %v %v", r.Outcome, r.Err, r.Evidence)
	}
	in.Resource = r.Resource
	return in
}

// there are the sandboxes of a claim that could run: rows and containers.
func (w *gatewayFixture) there(in resource.Intent) (rows, containers int) {
	if _, ok := w.g.Rows()[client.Name(in.Claim)]; ok {
		rows++
	}
	by := map[string]string{client.LabelClaim: in.Claim}
	if in.Owner != "" { // a claim of the same name may be another fixture's, on the same engine
		by[client.LabelOwner] = in.Owner
	}
	list, err := w.engine.List(context.Background(), by)
	if err != nil {
		w.t.Errorf("list the containers: %v", err)
	}
	return rows, len(list)
}

// ended asserts that nothing is left of a session.
func (w *gatewayFixture) ended(k *worker, in resource.Intent) {
	w.t.Helper()
	if o := k.Observe(bounded(w.t), in); o.Presence != resource.Absent {
		w.t.Errorf("it is %v: %v %v", o.Presence, o.Err, o.Evidence)
	}
	if rows, containers := w.there(in); rows+containers > 0 {
		w.t.Errorf("there are %d rows and %d containers of it", rows, containers)
	}
	if _, err := os.Lstat(w.sessionDir(in)); err == nil {
		w.t.Error("its directory is there")
	}
}

// stranger makes a sandbox of a claim's name.
func (w *gatewayFixture) stranger(in resource.Intent, change func(r *wire.CreateSandboxRequest)) *wire.Sandbox {
	w.t.Helper()
	s, err := readSpec(in)
	must(w.t, err)
	r, err := s.request(in)
	must(w.t, err)
	r.Spec.Template.DriverConfig = nil // its directories are not there
	change(r)
	g, err := w.worker().gateway(bounded(w.t), here)
	must(w.t, err)
	_, _, err = g.Create(bounded(w.t), r)
	must(w.t, err)
	var sb *wire.Sandbox
	eventually(w.t, "the stranger's sandbox is ready", func() bool {
		sb, _, _ = g.Get(bounded(w.t), r.GetName())
		return phaseName(sb) == "READY"
	})
	return sb
}
