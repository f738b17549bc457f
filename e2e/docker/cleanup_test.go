package docker_test

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

	"github.com/docker/docker/api/types/container"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/agent/codex"
	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/providers/docker"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/runs"
	"github.com/laufwerk/laufwerk/internal/store"
	"github.com/laufwerk/laufwerk/internal/targets"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// ledger writes claims into a machine's store as workers do.
type ledger struct {
	b        *e2e.DockerMachine
	home     *store.Home
	store    *store.Store
	driver   *claims.Driver
	provider *docker.Provider
}

func newLedger(b *e2e.DockerMachine) *ledger {
	b.T.Helper()
	home, err := store.OpenHome(b.Home, true)
	if err != nil {
		b.T.Fatal(err)
	}
	e, err := dockerengine.Connect(b.T.Context(), dockerengine.Endpoint{Host: b.Proxy.Endpoint, Origin: "the test"})
	if err != nil {
		b.T.Fatal(err)
	}
	b.T.Cleanup(e.Close)
	l := &ledger{b: b, home: home, store: store.Open(home, time.Now, "the test")}
	l.provider = docker.New(docker.Config{
		Executable: b.Program, Now: time.Now, UID: os.Getuid(), GID: os.Getgid(), State: home.Dir(), Programs: agent.Programs{codex.New()},
		Connect: func(context.Context, string) (*dockerengine.Engine, error) { return e, nil },
	})
	l.driver = claims.NewDriver(claims.Options{Store: l.store, Now: time.Now, Owner: l.store.ID, Resources: func(claims.Kind, string) (resource.Manager, bool) { return l.provider, true }})
	return l
}

// over makes a run that has failed.
func (l *ledger) over(id string) {
	l.b.T.Helper()
	if err := os.MkdirAll(l.home.RunDir(id), 0o700); err != nil {
		l.b.T.Fatal(err)
	}
	log, _, err := journal.Open(l.home.RunDir(id)).Open()
	if err != nil {
		l.b.T.Fatal(err)
	}
	defer log.Close()
	if err := log.Append(journal.Record{Type: journal.Begin, Version: journal.Version, Run: id}); err != nil {
		l.b.T.Fatal(err)
	}
	if err := l.store.Update(l.b.T.Context(), func(tx store.Tx) error {
		return tx.Put(store.Runs, id, runs.Run{ID: id, State: runs.Failed, CreatedAt: time.Now()})
	}); err != nil {
		l.b.T.Fatal(err)
	}
}

// request asks for a container that is never started.
func (l *ledger) request(run, operation string) (claims.Request, error) {
	def, err := docker.New(docker.Config{Programs: agent.Programs{codex.New()}}).Validate(json.RawMessage(`{"image":"` + engine.Busybox + `","network":"none"}`))
	if err != nil {
		return claims.Request{}, err
	}
	operation += "-" + filepath.Base(filepath.Dir(l.b.Proxy.Endpoint)) // names are the whole engine's
	id := claims.ID(run, operation)
	dir := filepath.Join(l.home.Dir(), "probes", id)
	if run != "" {
		dir = filepath.Join(l.home.RunDir(run), "sessions", id)
	}
	endpoint, err := l.provider.Endpoint(l.b.T.Context(), def)
	if err != nil {
		return claims.Request{}, err
	}
	plan, missing, err := l.provider.Plan(l.b.T.Context(), def, providers.Need{}, providers.SessionSpec{Key: operation, Dir: dir, Workspace: filepath.Join(dir, "home"), Mark: id})
	if len(missing) > 0 {
		err = targets.NotReady(def, missing)
	}
	return claims.Request{
		ID: id, Kind: claims.KindSession, Provider: docker.Kind, Target: def.ID, Fingerprint: def.Fingerprint, Run: run, Operation: operation, Image: plan.Image,
		Intent: resource.Intent{Name: owned.Name(id), Endpoint: endpoint, Spec: plan.Spec},
	}, err
}

func (l *ledger) allocate(run, operation string) (claims.Claim, error) {
	req, err := l.request(run, operation)
	if err != nil {
		return claims.Claim{}, err
	}
	return l.driver.Allocate(l.b.T.Context(), req)
}

func (l *ledger) must(c claims.Claim, err error) claims.Claim {
	l.b.T.Helper()
	if err != nil {
		l.b.T.Fatal(err)
	}
	return c
}

// createContainer makes a container beside the driver.
func createContainer(b *e2e.DockerMachine, name, image string, labels map[string]string) string {
	b.T.Helper()
	made, err := b.Client.ContainerCreate(b.T.Context(), &container.Config{Image: image, Cmd: []string{"sleep", "1"}, Labels: labels}, &container.HostConfig{NetworkMode: "none"}, nil, nil, name)
	if err != nil {
		b.T.Fatal(err)
	}
	return made.ID
}

func cleanUp(b *e2e.DockerMachine, code int, args ...string) (rep e2e.CleanupReport) {
	b.T.Helper()
	out := b.MustRun([]int{code}, append([]string{"cleanup", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &rep); err != nil {
		b.T.Fatalf("%v: %s", err, out)
	}
	return rep
}

// 100 dangling claims, of runs and of none, cost what one costs, beside their removals: one list that says what is there and
// one that proves that it is gone, each between two questions who the engine is. Four removals are under way at a time.
func TestCleanUpOfAHundredContainers(t *testing.T) {
	t.Parallel()
	const claims, parallel = 100, 4
	b := e2e.NewDockerMachine(t, engine.Endpoint(t))
	l := newLedger(b)
	var wg sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for i := range claims {
		run := ""
		if i%2 == 0 {
			run = fmt.Sprintf("261129-over%04d", i/10)
			if i%10 == 0 {
				l.over(run)
			}
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if _, err := l.allocate(run, fmt.Sprintf("op-%d", i)); err != nil {
				t.Error(err)
			}
		})
	}
	if wg.Wait(); t.Failed() {
		t.FailNow()
	}
	b.PlantStrangers(false)

	b.Proxy.Reset()
	var mu sync.Mutex
	now, most := 0, 0
	full := make(chan struct{})
	b.Proxy.On(engine.Delete, 0, engine.Before(func() {
		mu.Lock()
		now++
		if most = max(most, now); most == parallel && now == parallel {
			select {
			case <-full:
			default:
				close(full)
			}
		}
		mu.Unlock()
		select {
		case <-full:
		case <-time.After(e2e.HangLimit):
		}
		mu.Lock()
		now--
		mu.Unlock()
	}))
	rep := cleanUp(b, 0, "--all")
	if len(rep.Released) != claims || len(rep.Retained) > 0 {
		t.Errorf("%d released, %d retained", len(rep.Released), len(rep.Retained))
	}
	counts := b.Proxy.Counts()
	for op, want := range map[engine.Operation]int{engine.Ping: 1, engine.Info: 4, engine.List: 2, engine.Delete: claims} {
		if counts[op] != want {
			t.Errorf("%s was called %d times, want %d", op, counts[op], want)
		}
		delete(counts, op)
	}
	if len(counts) > 0 || most != parallel {
		t.Errorf("also called: %v; %d removals at a time", counts, most)
	}
	b.CheckClean()
}

// What arrives after its claim was released is taken up again, by every clean-up that may; what only looks like it is left
// alone, and named by doctor --scan.
func TestLateContainers(t *testing.T) {
	t.Parallel()
	b := e2e.NewDockerMachine(t, engine.Endpoint(t))
	l := newLedger(b)
	l.over("261129-over0001")
	late := func(run string) (claims.Claim, string) {
		t.Helper()
		c := l.must(l.allocate(run, "late"))
		c = l.must(l.driver.Release(t.Context(), c.ID))
		return c, createContainer(b, c.Intent.Name, c.Image, map[string]string{owned.LabelOwner: b.StoreOwner(), owned.LabelClaim: c.ID, owned.LabelRun: run})
	}
	ofRun, first := late("261129-over0001")
	_, second := late("")
	b.MakeStranger("a container with our owner's label and no claim", "", engine.Busybox, map[string]string{owned.LabelOwner: b.StoreOwner(), owned.LabelClaim: "cnosuch"})
	b.MakeStranger("a container of another store", "", engine.Busybox, map[string]string{owned.LabelOwner: "another", owned.LabelClaim: ofRun.ID})

	seen, _ := doctorChecks(b, "scan.docker", nil, "--scan")
	text := fmt.Sprint(seen)
	for id, what := range b.Strangers {
		if !strings.Contains(text, id[:12]) {
			t.Errorf("doctor --scan does not name %s: %s", what, text)
		}
	}
	for _, id := range []string{first, second} {
		if !strings.Contains(text, id[:12]) || !strings.Contains(text, "laufwerk cleanup --all") {
			t.Errorf("doctor --scan does not name what came late: %s", text)
		}
	}

	if rep := cleanUp(b, 0, "--all", "--dry-run"); len(rep.Released) != 2 || len(b.Containers()) != 2 {
		t.Errorf("a dry run: %+v, %d are there", rep, len(b.Containers()))
	}
	if rep := cleanUp(b, 0, ofRun.Run); len(rep.Released) != 1 || rep.Released[0].Claim != ofRun.ID || len(b.Containers()) != 1 {
		t.Errorf("the run's: %+v", rep)
	}
	if rep := cleanUp(b, 0, "--all"); len(rep.Released) != 1 {
		t.Errorf("the other: %+v", rep)
	}
	b.CheckClean()
}

// An engine that says otherwise who it is proves nothing, and is not taken for the recorded one, until a person says so; what
// is not so is refused.
func TestAnEngineWithANewIdentity(t *testing.T) {
	t.Parallel()
	b := e2e.NewDockerMachine(t, engine.Endpoint(t))
	l := newLedger(b)
	l.over("261129-over0001")
	of := l.must(l.allocate("261129-over0001", "one"))
	free := l.must(l.allocate("", "two"))
	old, now := of.Intent.Endpoint, "docker engine another at /var/lib/another"
	refused := func(code int, says, accept string) {
		t.Helper()
		if rep := cleanUp(b, code, "--all", "--accept-identity", accept); !strings.Contains(rep.Error.Message, says) || len(rep.Released) > 0 {
			t.Errorf("%q: %+v", accept, rep.Error)
		}
	}
	refused(2, "still answers", old+"="+now)
	b.Proxy.Pretend("another")
	for range 2 {
		rep := cleanUp(b, 6, "--all")
		if len(rep.Retained) != 2 || !strings.Contains(rep.Error.Hint, "laufwerk cleanup") || !strings.Contains(rep.Error.Hint, "--accept-identity '"+old+"="+now+"'") {
			t.Errorf("%+v", rep)
		}
	}
	refused(2, "is not OLD=NEW", "another")
	refused(2, "does not begin with an identity that claims record", now+"="+old)
	refused(4, "is not what answers now; it is the "+now, old+"=docker engine third at /var/lib/third")
	cleanUp(b, 0, "--all", "--dry-run", "--accept-identity", old+"="+now)
	if c := l.must(l.driver.Get(t.Context(), of.ID)); c.Intent.Endpoint != old || len(b.Containers()) != 2 {
		t.Errorf("a dry run changed it: %+v", c)
	}

	if rep := cleanUp(b, 0, of.Run, "--accept-identity", old+"="+now); len(rep.Released) != 1 {
		t.Errorf("%+v", rep)
	}
	if rep := cleanUp(b, 0, "--all", "--accept-identity", old+"="+now); len(rep.Released) != 1 {
		t.Errorf("%+v", rep)
	}
	refused(2, "no claim of a resource that may exist records", old+"="+now)
	for _, id := range []string{of.ID, free.ID} {
		c := l.must(l.driver.Get(t.Context(), id))
		if len(c.Accepted) != 1 || c.Accepted[0].Old != old || c.Accepted[0].New != now || c.Accepted[0].At.IsZero() || len(c.Accepted[0].Who.Chain) == 0 {
			t.Errorf("%+v", c.Accepted)
		}
	}
	b.CheckClean()
}

// A run whose engine says otherwise who it is goes on where a person says that it is the same.
func TestARunOnAnEngineWithANewIdentity(t *testing.T) {
	t.Parallel()
	b := e2e.NewDockerMachine(t, engine.Endpoint(t))
	b.WriteWorkflow("job", strings.Replace(e2e.SandboxWorkflow, "const counted", "yield* Human.confirm({ key: \"go\", title: \"Go on?\" });\n    const counted", 1))
	b.WriteWorkflow("job", strings.Replace(readProjectFile(b, "laufwerk/workflows/job/workflow.ts"), "{ defineWorkflow,", "{ defineWorkflow, Human,", 1))
	b.MustRun([]int{8}, "run", "job", "--no-input")
	r := b.OnlyRun()
	old := b.SandboxClaims()[0].Intent.Endpoint
	b.Proxy.Pretend("another")
	code, _, errs := b.Run(nil, "answer", r.ID, "go", "yes")
	hint := "laufwerk resume " + r.ID + " --accept-identity '" + old + "=docker engine another at /var/lib/another'"
	if code != 4 || !strings.Contains(errs, hint) {
		t.Fatalf("exit %d, want one that names %s\n%s", code, hint, errs)
	}
	if state := b.OnlyRun().State; state != "interrupted" {
		t.Errorf("the run is %s", state)
	}
	b.MustRun([]int{4}, "resume", r.ID)
	b.MustRun([]int{2}, "resume", "--all", "--accept-identity", "a=b")
	b.MustRun([]int{0}, "resume", r.ID, "--accept-identity", old+"=docker engine another at /var/lib/another")
	b.CheckDone(1)
}

func readProjectFile(b *e2e.DockerMachine, name string) string {
	b.T.Helper()
	text, err := os.ReadFile(filepath.Join(b.Project, name))
	if err != nil {
		b.T.Fatal(err)
	}
	return string(text)
}

// Whatever happens to a call of a clean-up, nothing is called released that is there, no stranger is touched, and the next
// clean-up ends the rest.
func TestFaultsOfCleanUp(t *testing.T) {
	t.Parallel()
	b := e2e.NewDockerMachine(t, engine.Endpoint(t))
	l := newLedger(b)
	l.over("261129-over0001")
	faults := engine.Faults()
	faults["another engine before"] = engine.Before(func() { b.Proxy.Pretend("another") })
	faults["another engine after"] = engine.After(func() { b.Proxy.Pretend("another") })
	n := 0
	for _, at := range []struct {
		op  engine.Operation
		nth int
	}{{engine.Ping, 1}, {engine.Info, 1}, {engine.Info, 2}, {engine.List, 1}, {engine.Info, 3}, {engine.Delete, 1}, {engine.Delete, 2}, {engine.List, 2}, {engine.Info, 4}} {
		for name, fault := range faults {
			what := fmt.Sprintf("%s, %s %d", name, at.op, at.nth)
			for have := len(b.Containers()); have < 2; have++ {
				n++
				l.must(l.allocate([]string{"", "261129-over0001"}[n%2], fmt.Sprintf("op-%d", n)))
			}
			if n <= 2 {
				b.PlantStrangers(false)
			}
			b.Proxy.Reset()
			rule := b.Proxy.On(at.op, at.nth, fault)
			code, out, errs := b.Run(nil, "cleanup", "--all")
			came := rule.Came()
			b.Proxy.Pretend("")
			b.Proxy.Return()
			if !came {
				t.Errorf("%s did not come: exit %d\n%s%s", what, code, out, errs)
			}
			b.Proxy.Reset()
			if left := len(b.Containers()); code != 0 && code != 6 || code == 0 && left > 0 {
				t.Errorf("%s: exit %d, and %d are there\n%s%s", what, code, left, out, errs)
			}
			b.CheckAccounted()
			if t.Failed() {
				t.Fatalf("with %s", what)
			}
		}
	}
	b.MustRun([]int{0}, "cleanup", "--all")
	b.CheckClean()
}

// An engine that gives no answer is not asked for the end of every container.
func TestCleanUpStopsAskingAnEngineWithoutAnswers(t *testing.T) {
	t.Parallel()
	const claims = 24
	b := e2e.NewDockerMachine(t, engine.Endpoint(t))
	l := newLedger(b)
	for i := range claims {
		l.must(l.allocate("", fmt.Sprintf("op-%d", i)))
	}
	b.Proxy.Reset()
	b.Proxy.On(engine.Delete, 0, engine.LoseRequest())
	if rep := cleanUp(b, 6, "--all"); len(rep.Retained) != claims || len(b.Containers()) != claims {
		t.Errorf("%d retained, %d are there", len(rep.Retained), len(b.Containers()))
	}
	if n := b.Proxy.Count(engine.Delete); n >= claims {
		t.Errorf("it was asked %d times", n)
	}
	b.Proxy.Reset()
	if rep := cleanUp(b, 0, "--all"); len(rep.Released) != claims {
		t.Errorf("%+v", rep)
	}
	b.CheckClean()
}
