package upgrade_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
	"github.com/laufwerk/laufwerk/internal/testkit/gateway"
)

// openShellSite is what the machines of a test have in common: a gateway that the older laufwerk has provisioned, and an image that
// it has prepared.
type openShellSite struct {
	gateway *gateway.Gateway
	first   *e2e.OpenShellMachine
	image   string
}

// newOpenShellSite makes the site. The older laufwerk's image stays for the next time, apart from those that are prepared by what is
// tested, whose recipe may be another one day.
func newOpenShellSite(t *testing.T) *openShellSite {
	t.Helper()
	s, g := e2e.NewOpenShellMachine(t)
	u := installOlder(s.Machine)
	s.WriteLogin()
	s.RegisterGateway(g)
	s.WriteTarget()
	u.MustRun([]int{0}, "provision", "openshell")
	defer e2e.LockPreparation(t)()
	kept := filepath.Join(filepath.Dir(u.older), fmt.Sprintf("openshell-images-%d", os.Getuid()))
	if _, err := os.Stat(kept); err == nil {
		s.CopyDir(kept, s.ImageCache)
	}
	made, reused := prepareOpenShell(s)
	if !reused {
		_ = os.RemoveAll(kept)
		s.CopyDir(s.ImageCache, kept)
	}
	// A name that `.ci/engine sweep` does not remove.
	if err := engine.Client(t, s.Endpoint).ImageTag(t.Context(), made, "laufwerk-test/codex-openshell-older:1"); err != nil {
		t.Fatal(err)
	}
	return &openShellSite{gateway: g, first: s, image: made}
}

// prepareOpenShell prepares the image of the target as the machine's worker does.
func prepareOpenShell(s *e2e.OpenShellMachine) (image string, reused bool) {
	s.T.Helper()
	packages := engine.Packages(s.T, s.Endpoint)
	ca := filepath.Join(s.Dir, "registry-ca.crt")
	s.WriteFile(ca, string(packages.Authority))
	s.GiveToWorker()
	code, out, errs := s.Start(nil, "prepare", "openshell", "--image", engine.Base, "--registry", packages.URL, "--ca", ca, "--json").WaitWithin(10 * time.Minute)
	var made struct {
		Targets []struct {
			Image  string
			Reused bool
		}
	}
	if err := json.Unmarshal([]byte(out), &made); err != nil || code != 0 || len(made.Targets) != 1 {
		s.T.Fatalf("exit %d, %v\n%s%s", code, err, out, errs)
	}
	return made.Targets[0].Image, made.Targets[0].Reused
}

// openShellUpgraded is a machine of a site. What is held there of containers, claims and what ran is held as with Docker.
type openShellUpgraded struct {
	dockerUpgraded
	openShell *e2e.OpenShellMachine
}

func (s *openShellSite) machine(t *testing.T) *openShellUpgraded {
	t.Helper()
	in := e2e.NewKeptMachine(t, s.first.Endpoint)
	in.ImageCache, in.Gateway = s.first.ImageCache, s.first.Gateway
	u := installOlder(in.Machine)
	in.WriteTarget()
	in.WriteFile(filepath.Join(in.Project, "agent.sh"), e2e.SandboxAgent)
	in.WriteWorkflow("job", e2e.SandboxWorkflow)
	in.RegisterGateway(s.gateway)
	docker := &e2e.DockerMachine{
		Machine: in.Machine, Endpoint: in.Endpoint, Client: engine.Client(t, in.Endpoint), Strangers: map[string]string{},
		Operations: map[string]string{"begin": "session.ask[writer]:edit", "count": "session.exec[writer]:count"},
	}
	t.Cleanup(docker.Sweep)
	return &openShellUpgraded{dockerUpgraded{u, docker}, in}
}

func (o *openShellUpgraded) working() *e2e.Process {
	o.docker.HoldAgent()
	o.openShell.GiveToWorker()
	worker := o.Start(nil, "run", "job", "--no-input")
	o.docker.AwaitTurn()
	return worker
}

// openShellState is state, with sandboxes of a gateway.
type openShellState struct {
	name  string
	leave func(o *openShellUpgraded)
	then  func(t *testing.T, o *openShellUpgraded) // nil is the job's whole rest
}

func openShellStates() []openShellState {
	run := func(point string) func(o *openShellUpgraded) {
		return func(o *openShellUpgraded) { crashed(point, "run", "job", "--no-input")(o.upgraded) }
	}
	is := func(state string, leave func(o *openShellUpgraded)) func(o *openShellUpgraded) {
		return func(o *openShellUpgraded) { claimIs(state, func(*upgraded) { leave(o) })(o.upgraded) }
	}
	return []openShellState{
		{"a turn whose worker is dead and whose supervisor lives", func(o *openShellUpgraded) { o.working().Kill() }, func(t *testing.T, o *openShellUpgraded) {
			second := o.Start(nil, "resume", o.OnlyRun().ID, "--no-input")
			e2e.Eventually(t, "it is joined", func() bool { return o.HasAttached(o.OnlyRun().ID) })
			o.docker.ReleaseAgent()
			if code, out, errs := second.Wait(); code != 0 {
				t.Fatalf("exit %d\n%s%s", code, out, errs)
			}
			o.docker.CheckDone(1)
			o.checkBuilds()
		}},
		{"a turn whose supervisor lives, given up", func(o *openShellUpgraded) { o.working().Kill() }, func(_ *testing.T, o *openShellUpgraded) {
			o.docker.GiveUpAndCheck()
		}},
		{"a sandbox that was asked for", is("intent", run("claims/after-create#2")), nil},
		{"an allocated sandbox", is("allocated", run("journal/after-completed#3")), nil},
		{"a sandbox whose end is about to be asked for", is("deleting", run("claims/before-delete#1")), nil},
		{"a sandbox whose end was asked for", is("deleting", run("claims/after-delete#1")), nil},
	}
}

// TestOpenShellUpgrade is TestLocalUpgrade for sandboxes of a gateway, in which the older one's supervisors go on, with the image
// that the older one has prepared.
func TestOpenShellUpgrade(t *testing.T) {
	site := newOpenShellSite(t)
	for _, s := range openShellStates() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			o := site.machine(t)
			s.leave(o)
			o.upgrade()
			o.docker.CheckAccounted()
			if s.then != nil {
				s.then(t, o)
				return
			}
			o.docker.CheckDone(1)
			o.checkBuilds()
		})
	}
	t.Run("the image and what is provisioned", func(t *testing.T) {
		u := &upgraded{Machine: site.first.Machine, asked: [][]string{{"provision", "openshell", "--dry-run"}}}
		u.programs, _ = build()
		u.upgrade()
		if image, reused := prepareOpenShell(site.first); !reused || image != site.image {
			t.Errorf("the image %s was made, not %s used", image, site.image)
		}
	})
}

// TestResidueUpgrade: a claim of which nothing can run any more, but whose sandbox the gateway lists, since it was killed in the
// middle of the sandbox's end, stays until the gateway has dropped it.
func TestResidueUpgrade(t *testing.T) {
	t.Parallel()
	site := newOpenShellSite(t)
	o := site.machine(t)
	claimIs("residue", func(*upgraded) {
		o.working().Kill()
		run := o.OnlyRun().ID
		site.gateway.Fault(gateway.Vanishing, gateway.Before(site.gateway.Kill))
		_, _, _ = o.Run(nil, "runs", "cancel", run)
		site.gateway.Start()
		if code, out, errs := o.Run(nil, "cleanup", run, "--discard-changes"); code != 6 {
			t.Fatalf("cleanup: exit %d\n%s%s", code, out, errs)
		}
	})(o.upgraded)
	o.upgrade()
	run := o.OnlyRun().ID
	if code, out, errs := o.Run(nil, "cleanup", run, "--json"); code != 6 {
		t.Errorf("cleanup: exit %d\n%s%s", code, out, errs)
	}
	site.gateway.Reconcile()
	o.MustRun([]int{0}, "cleanup", run)
	o.docker.CheckClean()
}
