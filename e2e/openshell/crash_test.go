//go:build crashpoints

package openshell_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/openshell"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/testkit"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
	"github.com/laufwerk/laufwerk/internal/testkit/gateway"
)

// site is what the machines of a test have in common: a gateway with a login, an image, and a binary with crash points.
type site struct {
	gateway *gateway.Gateway
	first   *e2e.OpenShellMachine
	binary  string
}

func newSite(t *testing.T) *site {
	t.Helper()
	s, g := e2e.NewOpenShellMachine(t)
	s.WriteLogin()
	s.RegisterGateway(g)
	s.WriteTarget()
	s.MustRun([]int{0}, "provision", "openshell")
	s.PrepareImage()
	b, err := os.ReadFile(testkit.Binary(t, "crashpoints"))
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(filepath.Dir(s.Dir), "laufwerk")
	if err := os.WriteFile(binary, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return &site{gateway: g, first: s, binary: binary}
}

// crashing is a machine of a site. What is held there of containers, claims and what ran is held as with Docker.
type crashing struct {
	*e2e.DockerMachine
	in     *e2e.OpenShellMachine
	others map[string]string // sandboxes of others: id by name
}

func (s *site) crashing(t *testing.T) *crashing {
	t.Helper()
	in := e2e.NewKeptMachine(t, s.first.Endpoint)
	in.ImageCache, in.Gateway = s.first.ImageCache, s.first.Gateway
	if err := os.Remove(in.Program); err != nil {
		t.Fatal(err)
	}
	in.Program = s.binary
	in.WriteTarget()
	in.WriteFile(filepath.Join(in.Project, "agent.sh"), e2e.SandboxAgent)
	in.WriteWorkflow("job", e2e.SandboxWorkflow)
	in.RegisterGateway(s.gateway)
	c := &crashing{in: in, others: map[string]string{}, DockerMachine: &e2e.DockerMachine{
		Machine: in.Machine, Endpoint: in.Endpoint, Client: engine.Client(t, in.Endpoint), Strangers: map[string]string{},
		Operations: map[string]string{"begin": "session.ask[writer]:edit", "count": "session.exec[writer]:count"},
	}}
	t.Cleanup(c.Sweep)
	return c
}

// alone lets the agent end the supervisor that stands by, so that the one of the command is started by the gateway.
func (c *crashing) alone() {
	c.WriteFile(filepath.Join(c.Project, "agent.sh"), `
stands() { tr '\0' ' ' <"/proc/$1/cmdline" | grep -q ' standby '; }
end() { for p in $(pgrep -x laufwerk); do if [ "$p" != $PPID ] && stands "$p"; then kill -9 "$p"; return; fi; done; return 1; }
if stands $PPID; then until end; do sleep 0.1; done; fi
`+e2e.SandboxAgent)
}

// inBoth is a path on this host, and in a sandbox, whose /tmp is its own.
func (c *crashing) inBoth(name string) string {
	c.T.Helper()
	path := filepath.Join("/tmp", filepath.Base(filepath.Dir(c.Dir))+"-"+name)
	c.T.Cleanup(func() { _ = os.Remove(path) })
	return path
}

// plant makes a sandbox of another store beside each of ours, which has a claim of the same id, and a container likewise.
func (c *crashing) plant() {
	c.T.Helper()
	if c.StoreOwner() == "" {
		return
	}
	ours, _ := c.in.Sandboxes()
	for _, s := range ours {
		labels := map[string]string{}
		for name, value := range s.GetMetadata().GetLabels() {
			labels[name] = value
		}
		labels["dev.laufwerk.owner"] = "another"
		c.MakeStranger("a container of another store", "", engine.Busybox, labels)
		made, _, err := c.in.Gateway.Create(c.T.Context(), &wire.CreateSandboxRequest{
			Name: openshell.Name("another " + s.GetMetadata().GetName()), Labels: labels,
			Spec: &wire.SandboxSpec{Template: &wire.SandboxTemplate{Image: "laufwerk-test/no-such-image:1", Labels: labels}},
		})
		if err != nil {
			c.T.Fatal(err)
		}
		name := made.GetMetadata().GetName()
		c.others[name] = made.GetMetadata().GetId()
		c.T.Cleanup(func() { _, _ = c.in.Gateway.Delete(context.Background(), name) })
	}
}

// isAlone checks that the gateway has nothing of ours, and all that others have.
func (c *crashing) isAlone() {
	c.T.Helper()
	c.in.CheckSandboxes(0, "in the end")
	for name, id := range c.others {
		got, presence, err := c.in.Gateway.Get(c.T.Context(), name)
		if presence != resource.Present || got.GetMetadata().GetId() != id || got.GetMetadata().GetDeletionTimestampMs() != 0 {
			c.T.Errorf("the sandbox of another store: %s, %v, %v", presence, got, err)
		}
	}
}

// points are the points that a run reaches on this host while it has a session, and those that its supervisors reach
// in the sandbox.
func (s *site) points(t *testing.T, change func(*crashing)) (outside, inside []string) {
	t.Helper()
	c := s.crashing(t)
	change(c)
	log := c.inBoth("log")
	c.WriteWorkflow("job", strings.Replace(e2e.SandboxWorkflow, "echo count >> ran;", "echo count >> ran; sed s/^/inside:/ "+log+" >> ran;", 1))
	c.in.GiveToWorker()
	if code, out, errs := c.Run([]string{"LAUFWERK_CRASH_LOG=" + log}, "run", "job", "--no-input"); code != 0 {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	outside = e2e.ReadCrashPoints(t, log)
	for _, line := range e2e.ReadCrashPoints(t, filepath.Join(c.Project, "ran")) {
		if p, is := strings.CutPrefix(line, "inside:"); is {
			inside = append(inside, p)
		}
	}
	c.CheckDone(1)
	from, to := slices.Index(outside, "claims/before-intent#2"), slices.Index(outside, "workspace/before-freeze-blobs#1")
	if from < 0 || to < from {
		t.Fatalf("%v", outside)
	}
	outside = outside[from:to]
	if len(outside) < 50 || len(inside) < 8 {
		t.Fatalf("only %d and %d crash points: %v %v", len(outside), len(inside), outside, inside)
	}
	t.Logf("%d points outside, %d inside", len(outside), len(inside))
	return outside, inside
}

// isLost checks a run whose supervisor was killed: what that had begun can only be ended with the sandbox, and the run can
// not go on in it.
func (c *crashing) isLost() {
	c.T.Helper()
	records, j := c.JournalRecords(), c.CountRecords()
	if e := records[len(records)-1].Error; e == nil || e.Code != string(failure.SessionLost) {
		c.T.Fatalf("the run has failed: %+v", e)
	}
	cut := 0
	for word, id := range c.Operations {
		if n := c.CountWord(word); n > 1 {
			c.T.Errorf("%s ran %d times", id, n)
		}
		cut += j["cut "+id]
	}
	if cut != 1 {
		c.T.Errorf("%d operations were cut", cut)
	}
	c.MustRun([]int{0}, "cleanup", "--all", "--discard-changes")
	c.CheckClean()
}

// isAbandoned checks a run whose worker was killed after it had recorded that it would ask for a sandbox, and before it did.
// For whoever looks later it may have been asked for, and still come. Nothing but a person ends that.
func (c *crashing) isAbandoned(end string) {
	c.T.Helper()
	run, id := c.OnlyRun().ID, c.SandboxClaims()[0].ID
	abandon := "laufwerk claims abandon " + id
	if end == e2e.EndGivenUp {
		c.MustRun([]int{0}, "runs", "cancel", run)
		if code, out, errs := c.Run(nil, "cleanup", run); code != 6 {
			c.T.Errorf("cleanup: exit %d\n%s%s", code, out, errs)
		}
	} else if code, out, errs := c.Run(nil, "resume", run, "--no-input"); code != 4 || !strings.Contains(errs, abandon) {
		c.T.Errorf("resume: exit %d\n%s%s", code, out, errs)
	}
	c.MustRun([]int{0}, "claims", "abandon", id, "--reason", "the worker was killed before it asked")
	if end != e2e.EndGivenUp {
		c.MustRun([]int{7}, "resume", run, "--no-input")
		records := c.JournalRecords()
		if e := records[len(records)-1].Error; e == nil || e.Code != string(failure.SessionLost) {
			c.T.Errorf("the run has failed: %+v", e)
		}
	}
	c.MustRun([]int{0}, "cleanup", run)
	if left := c.ListClaims(); len(left) > 0 {
		c.T.Errorf("claims left: %v", left)
	}
	if left, _ := filepath.Glob(filepath.Join(c.Home, "workspaces/*")); len(left) > 0 {
		c.T.Errorf("left: %v", left)
	}
	c.CheckStrangers()
}

// isOptionalPoint says whether a point is reached beside the run, which may end before, and is repeated then: a supervisor that stands by
// is started while a command runs.
func isOptionalPoint(point string) bool {
	return strings.HasPrefix(point, "openshell/before-exec#") && point != "openshell/before-exec#1"
}

// A run is killed at each of its points, the supervisors inside at each of theirs. Each sandbox has its claim then. Resumed,
// the run ends as if nothing had happened, and only with its supervisor it can lose its sandbox; or it is cancelled and cleaned
// up once, and nothing of ours is left, and all of the strangers'.
func TestOpenShellKilledAnywhere(t *testing.T) {
	at := newSite(t)
	outside, inside := at.points(t, func(*crashing) {})
	alone, _ := at.points(t, (*crashing).alone)
	alone = slices.DeleteFunc(alone, func(point string) bool { return slices.Contains(outside, point) })
	if !slices.Contains(alone, "openshell/before-supervisor#1") || !slices.Contains(outside, "entered/after-take#1") {
		t.Errorf("supervisors are started in one way only: %v %v", outside, alone)
	}
	random := testkit.NewRandom(t)
	for i, point := range testkit.EveryNth(random, 3, slices.Concat(outside, alone, inside)) {
		most := 1
		if i >= len(outside)+len(alone) {
			most = 2 // cut, and made once more
		}
		ends := []string{e2e.EndResumed, e2e.EndGivenUp}
		if !testkit.TakesEverySample() {
			ends = ends[random.IntN(2):][:1]
		}
		for _, end := range ends {
			t.Run(strings.ReplaceAll(point, "/", ".")+"/"+end, func(t *testing.T) {
				t.Parallel()
				run := func() (c *crashing, code int, said string) {
					c = at.crashing(t)
					if slices.Contains(alone, point) {
						c.alone()
					}
					env := []string{"LAUFWERK_CRASH=" + point, "LAUFWERK_CRASH_ONCE=" + c.inBoth("crashed")}
					code, out, errs := c.Run(env, "run", "job", "--no-input")
					return c, code, out + errs
				}
				c, code, said := run()
				for tries := 1; code == 0 && isOptionalPoint(point) && tries < 20; tries++ {
					c.CheckDone(1)
					c, code, said = run()
				}
				if died := code == 137; died != (most == 1) {
					t.Errorf("exit %d\n%s", code, said)
				}
				c.plant()
				c.CheckAccounted()
				switch {
				case strings.HasPrefix(point, "openshell/after-note#"), strings.HasPrefix(point, "openshell/before-create#"):
					c.isAbandoned(end)
				case end == e2e.EndGivenUp:
					c.GiveUpAndCheck()
				case most > 1 && c.Finish().State == "failed":
					c.isLost()
				default:
					c.CheckDone(most)
				}
				c.isAlone()
			})
		}
	}
}
