package openshell_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/openshell"
	"github.com/laufwerk/laufwerk/internal/openshell/policy"
	provider "github.com/laufwerk/laufwerk/internal/providers/openshell"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/store"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
	"github.com/laufwerk/laufwerk/internal/testkit/gateway"
)

// What a run costs at the gateway and at its engine, call by call. Looks at what is becoming or going are as many as it takes.
func TestOpenShellCalls(t *testing.T) {
	t.Parallel()
	endpoint := engine.Endpoint(t)
	proxy := engine.NewProxy(t, endpoint)
	s, g := e2e.NewKeptMachine(t, endpoint, "DOCKER_HOST="+proxy.Endpoint), gateway.Containers(t, gateway.Options{})
	s.Connect(g)
	s.WriteLogin()
	s.RegisterGateway(g)
	s.WriteTarget()
	s.WriteFile(filepath.Join(s.Project, "agent.sh"), e2e.SandboxAgent)
	s.WriteWorkflow("job", e2e.SandboxWorkflow)
	s.GiveToWorker()
	s.MustRun([]int{0}, "provision", "openshell")
	s.PrepareImage()
	proxy.Reset()
	before := len(g.Sequence())
	s.MustRun([]int{0}, "run", "job", "--no-input")

	var got []string
	for _, name := range g.Sequence()[before:] {
		if len(got) == 0 || name != "GetSandbox" || got[len(got)-1] != name {
			got = append(got, name)
		}
	}
	want := []string{
		"Health", "GetGatewayInfo", // who it is
		"CreateSandbox", "GetSandbox", "GetSandboxConfig", // it is there, and as it was asked for
		"GetSandbox", "ExecSandbox", // it is entered, and tells its environment
		"ExecSandbox",               // the turn
		"GetSandbox", "ExecSandbox", // the command
		"GetSandbox", "DeleteSandbox", "GetSandbox", // the session is closed, and gone
	}
	if !slices.Equal(got, want) {
		t.Errorf("the gateway was asked for %v, want %v", got, want)
	}
	for op, n := range map[engine.Operation]int{
		engine.Ping: 1, engine.Info: 2, // it is the one that claims name: at first, and where it has no container any more
		engine.ImageInspect: 3,                    // for the workspace, the session and its sandbox
		engine.List:         2, engine.Inspect: 1, // its container is as it was asked for, and gone
	} {
		if proxy.Count(op) != n {
			t.Errorf("%s was called %d times, want %d: %v", op, proxy.Count(op), n, proxy.Calls())
		}
	}
	if n := len(proxy.Calls()); n != 9 {
		t.Errorf("the engine was asked %d times: %v", n, proxy.Calls())
	}
	s.CheckSandboxes(0, "after the run")
}

// 100 dangling claims cost what one costs, beside their deletions: at the gateway one list that says what is there, one whose
// that is and one that none is left, at the engine one of what is there and one of what is left.
func TestCleanUpOfAHundredSandboxes(t *testing.T) {
	t.Parallel()
	const many, alias = 100, "here"
	w, g := e2e.NewMachine(t), gateway.Memory(t, gateway.Options{})
	config := filepath.Join(w.Dir, ".config")
	g.Register(config, alias)
	proxy := engine.NewProxy(t, g.Engine())
	w.Env = []string{"DOCKER_HOST=" + proxy.Endpoint}
	r, err := openshell.Registrations{Home: w.Dir}.Find(alias)
	if err != nil {
		t.Fatal(err)
	}
	at, err := openshell.Connect(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(at.Close)
	e, err := dockerengine.Connect(t.Context(), dockerengine.Endpoint{Host: proxy.Endpoint, Origin: "the test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	home, err := store.OpenHome(w.Home, true)
	if err != nil {
		t.Fatal(err)
	}
	const uid, gid = 1234, 1234
	p := provider.New(provider.Config{
		Executable: "/bin/sh", Home: w.Dir, Now: time.Now, UID: uid, GID: gid, State: w.Home,
		Gateway: func(context.Context, string) (*openshell.Gateway, error) { return at, nil },
		Connect: func(context.Context, string) (*dockerengine.Engine, error) { return e, nil },
	})
	st := store.Open(home, time.Now, "the test")
	driver := claims.NewDriver(claims.Options{Store: st, Now: time.Now, Owner: st.ID, Resources: func(claims.Kind, string) (resource.Manager, bool) { return p, true }})
	var making errgroup.Group
	making.SetLimit(8)
	for i := range many {
		id := claims.ID("", fmt.Sprint("op-", i))
		spec, err := json.Marshal(map[string]any{ // as it is recorded
			"dir": filepath.Join(w.Home, "probes", id), "workspace": w.Project, "mark": id, "gateway": alias, "engine": e.Facts().Identity(), "socket": proxy.Endpoint,
			"image": "sha256:00", "uid": uid, "gid": gid, "policy": policy.Policies{}, "binary": "/bin/sh", "nonce": "n",
		})
		if err != nil {
			t.Fatal(err)
		}
		making.Go(func() error {
			_, err := driver.Allocate(t.Context(), claims.Request{
				ID: id, Kind: claims.KindSession, Provider: provider.Kind, Target: "secure-coding", Operation: id,
				Intent: resource.Intent{Name: openshell.Name(id), Endpoint: r.Identity(), Spec: spec},
			})
			return err
		})
	}
	if err := making.Wait(); err != nil {
		t.Fatal(err)
	}
	proxy.Reset()
	before := g.Calls()

	var rep e2e.CleanupReport
	if err := json.Unmarshal([]byte(w.MustRun([]int{0}, "cleanup", "--all", "--json")), &rep); err != nil {
		t.Fatal(err)
	}
	if len(rep.Released) != many || len(rep.Retained) > 0 || len(g.Rows()) > 0 {
		t.Errorf("%d released, %d retained, %d sandboxes left", len(rep.Released), len(rep.Retained), len(g.Rows()))
	}
	asked := g.Calls()
	for name, n := range before {
		if asked[name] -= n; asked[name] == 0 {
			delete(asked, name)
		}
	}
	lists := asked["ListSandboxes"] // the last ones may be on their way
	delete(asked, "ListSandboxes")
	if !maps.Equal(asked, map[string]int{"Health": 1, "GetGatewayInfo": 1, "DeleteSandbox": many}) || lists < 3 || lists > 20 {
		t.Errorf("the gateway was asked for %v and %d lists", asked, lists)
	}
	if got := proxy.Counts(); !maps.Equal(got, map[engine.Operation]int{engine.Ping: 1, engine.Info: 3, engine.List: 2}) {
		t.Errorf("the engine was asked for %v", got)
	}
}
