//go:build crashpoints

package app_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/openshell"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
	"github.com/laufwerk/laufwerk/internal/testkit/gateway"
)

// site is what the worlds of a test have in common: a gateway with a login, an image, and a binary with crash points.
type site struct {
	gateway *gateway.Gateway
	first   *sandboxed
	binary  string
}

func newSite(t *testing.T) *site {
	t.Helper()
	s, g := newSandboxed(t)
	s.login()
	s.register(g)
	s.target()
	s.must([]int{0}, "provision", "openshell")
	s.prepare()
	b, err := os.ReadFile(boxedBinary(t, "crashpoints"))
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(filepath.Dir(s.dir), "laufwerk")
	if err := os.WriteFile(binary, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return &site{gateway: g, first: s, binary: binary}
}

// crashing is a world of a site. What is held there of containers, claims and what ran is held as with Docker.
type crashing struct {
	*boxed
	in     *sandboxed
	others map[string]string // sandboxes of others: id by name
}

func (s *site) world(t *testing.T) *crashing {
	t.Helper()
	in := kept(t, s.first.endpoint)
	in.images, in.look = s.first.images, s.first.look
	if err := os.Remove(in.program); err != nil {
		t.Fatal(err)
	}
	in.program = s.binary
	in.target()
	in.write(filepath.Join(in.project, "agent.sh"), boxedAgent)
	in.workflow("job", boxedWorkflow)
	in.register(s.gateway)
	c := &crashing{in: in, others: map[string]string{}, boxed: &boxed{
		world: in.world, endpoint: in.endpoint, client: engine.Client(t, in.endpoint), strangers: map[string]string{},
		made: map[string]string{"begin": "session.ask[writer]:edit", "count": "session.exec[writer]:count"},
	}}
	t.Cleanup(c.sweep)
	return c
}

// alone lets the agent end the supervisor that stands by, so that the one of the command is started by the gateway.
func (c *crashing) alone() {
	c.write(filepath.Join(c.project, "agent.sh"), `
stands() { tr '\0' ' ' <"/proc/$1/cmdline" | grep -q ' standby '; }
end() { for p in $(pgrep -x laufwerk); do if [ "$p" != $PPID ] && stands "$p"; then kill -9 "$p"; return; fi; done; return 1; }
if stands $PPID; then until end; do sleep 0.1; done; fi
`+boxedAgent)
}

// inBoth is a path on this host, and in a sandbox, whose /tmp is its own.
func (c *crashing) inBoth(name string) string {
	c.t.Helper()
	path := filepath.Join("/tmp", filepath.Base(filepath.Dir(c.dir))+"-"+name)
	c.t.Cleanup(func() { _ = os.Remove(path) })
	return path
}

// plant makes a sandbox of another store beside each of ours, which has a claim of the same id, and a container likewise.
func (c *crashing) plant() {
	c.t.Helper()
	if c.owner() == "" {
		return
	}
	ours, _ := c.in.there()
	for _, s := range ours {
		labels := map[string]string{}
		for name, value := range s.GetMetadata().GetLabels() {
			labels[name] = value
		}
		labels["dev.laufwerk.owner"] = "another"
		c.stranger("a container of another store", "", engine.Busybox, labels)
		made, _, err := c.in.look.Create(c.t.Context(), &wire.CreateSandboxRequest{
			Name: openshell.Name("another " + s.GetMetadata().GetName()), Labels: labels,
			Spec: &wire.SandboxSpec{Template: &wire.SandboxTemplate{Image: "laufwerk-test/no-such-image:1", Labels: labels}},
		})
		if err != nil {
			c.t.Fatal(err)
		}
		name := made.GetMetadata().GetName()
		c.others[name] = made.GetMetadata().GetId()
		c.t.Cleanup(func() { _, _ = c.in.look.Delete(context.Background(), name) })
	}
}

// isAlone checks that the gateway has nothing of ours, and all that others have.
func (c *crashing) isAlone() {
	c.t.Helper()
	c.in.has(0, "in the end")
	for name, id := range c.others {
		got, presence, err := c.in.look.Get(c.t.Context(), name)
		if presence != resource.Present || got.GetMetadata().GetId() != id || got.GetMetadata().GetDeletionTimestampMs() != 0 {
			c.t.Errorf("the sandbox of another store: %s, %v, %v", presence, got, err)
		}
	}
}

// points are the points that a run reaches on this host while it has a session, and those that its supervisors reach
// in the sandbox.
func (s *site) points(t *testing.T, change func(*crashing)) (outside, inside []string) {
	t.Helper()
	c := s.world(t)
	change(c)
	log := c.inBoth("log")
	c.workflow("job", strings.Replace(boxedWorkflow, "echo count >> ran;", "echo count >> ran; sed s/^/inside:/ "+log+" >> ran;", 1))
	c.in.own()
	if code, out, errs := c.laufwerk([]string{"LAUFWERK_CRASH_LOG=" + log}, "run", "job", "--no-input"); code != 0 {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	outside = pointsOf(t, log)
	for _, line := range pointsOf(t, filepath.Join(c.project, "ran")) {
		if p, is := strings.CutPrefix(line, "inside:"); is {
			inside = append(inside, p)
		}
	}
	c.isDone(1)
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
	c.t.Helper()
	records, j := c.records(), c.journaled()
	if e := records[len(records)-1].Error; e == nil || e.Code != string(failure.SessionLost) {
		c.t.Fatalf("the run has failed: %+v", e)
	}
	cut := 0
	for word, id := range c.made {
		if n := c.count(word); n > 1 {
			c.t.Errorf("%s ran %d times", id, n)
		}
		cut += j["cut "+id]
	}
	if cut != 1 {
		c.t.Errorf("%d operations were cut", cut)
	}
	c.must([]int{0}, "cleanup", "--all", "--discard-changes")
	c.isClean()
}

// isAbandoned checks a run whose worker was killed after it had recorded that it would ask for a sandbox, and before it did.
// For whoever looks later it may have been asked for, and still come. Nothing but a person ends that.
func (c *crashing) isAbandoned(end string) {
	c.t.Helper()
	run, id := c.onlyRun().ID, c.sessions()[0].ID
	abandon := "laufwerk claims abandon " + id
	if end == givenUp {
		c.must([]int{0}, "runs", "cancel", run)
		if code, out, errs := c.laufwerk(nil, "cleanup", run); code != 6 {
			c.t.Errorf("cleanup: exit %d\n%s%s", code, out, errs)
		}
	} else if code, out, errs := c.laufwerk(nil, "resume", run, "--no-input"); code != 4 || !strings.Contains(errs, abandon) {
		c.t.Errorf("resume: exit %d\n%s%s", code, out, errs)
	}
	c.must([]int{0}, "claims", "abandon", id, "--reason", "the worker was killed before it asked")
	if end != givenUp {
		c.must([]int{7}, "resume", run, "--no-input")
		records := c.records()
		if e := records[len(records)-1].Error; e == nil || e.Code != string(failure.SessionLost) {
			c.t.Errorf("the run has failed: %+v", e)
		}
	}
	c.must([]int{0}, "cleanup", run)
	if left := c.claims(); len(left) > 0 {
		c.t.Errorf("claims left: %v", left)
	}
	if left, _ := filepath.Glob(filepath.Join(c.home, "workspaces/*")); len(left) > 0 {
		c.t.Errorf("left: %v", left)
	}
	c.untouched()
}

// besides says whether a point is reached beside the run, which may end before, and is repeated then: a supervisor that stands by
// is started while a command runs.
func besides(point string) bool {
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
	random := chance(t)
	for i, point := range slices.Concat(outside, alone, inside) {
		most := 1
		if i >= len(outside)+len(alone) {
			most = 2 // cut, and made once more
		}
		ends := []string{resumed, givenUp}
		if !everything() {
			ends = ends[random.IntN(2):][:1]
		}
		for _, end := range ends {
			t.Run(strings.ReplaceAll(point, "/", ".")+"/"+end, func(t *testing.T) {
				t.Parallel()
				run := func() (c *crashing, code int, said string) {
					c = at.world(t)
					if slices.Contains(alone, point) {
						c.alone()
					}
					env := []string{"LAUFWERK_CRASH=" + point, "LAUFWERK_CRASH_ONCE=" + c.inBoth("crashed")}
					code, out, errs := c.laufwerk(env, "run", "job", "--no-input")
					return c, code, out + errs
				}
				c, code, said := run()
				for tries := 1; code == 0 && besides(point) && tries < 20; tries++ {
					c.isDone(1)
					c, code, said = run()
				}
				if died := code == 137; died != (most == 1) {
					t.Errorf("exit %d\n%s", code, said)
				}
				c.plant()
				c.accounted()
				switch {
				case strings.HasPrefix(point, "openshell/after-note#"), strings.HasPrefix(point, "openshell/before-create#"):
					c.isAbandoned(end)
				case end == givenUp:
					c.isGivenUp()
				case most > 1 && c.finish().State == "failed":
					c.isLost()
				default:
					c.isDone(most)
				}
				c.isAlone()
			})
		}
	}
}
