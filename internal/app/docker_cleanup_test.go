package app_test

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

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/providers/docker"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/runs"
	"github.com/laufwerk/laufwerk/internal/store"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// ledger writes claims into a world's store as workers do.
type ledger struct {
	b        *boxed
	home     *store.Home
	store    *store.Store
	driver   *claims.Driver
	provider *docker.Provider
}

func (b *boxed) ledger() *ledger {
	b.t.Helper()
	home, err := store.OpenHome(b.home, true)
	if err != nil {
		b.t.Fatal(err)
	}
	e, err := dockerengine.Connect(b.t.Context(), dockerengine.Endpoint{Host: b.proxy.Endpoint, Origin: "the test"})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(e.Close)
	l := &ledger{b: b, home: home, store: store.Open(home, time.Now, "the test")}
	l.provider = docker.New(docker.Config{
		Executable: b.program, Now: time.Now, UID: os.Getuid(), GID: os.Getgid(), State: home.Dir(),
		Connect: func(context.Context, string) (*dockerengine.Engine, error) { return e, nil },
	})
	l.driver = claims.NewDriver(claims.Options{Store: l.store, Now: time.Now, Owner: l.store.ID, Resources: func(claims.Kind, string) (resource.Manager, bool) { return l.provider, true }})
	return l
}

// over makes a run that has failed.
func (l *ledger) over(id string) {
	l.b.t.Helper()
	if err := os.MkdirAll(l.home.RunDir(id), 0o700); err != nil {
		l.b.t.Fatal(err)
	}
	log, _, err := journal.At(l.home.RunDir(id)).Open()
	if err != nil {
		l.b.t.Fatal(err)
	}
	defer log.Close()
	if err := log.Append(journal.Record{Type: journal.Begin, Version: journal.Version, Run: id}); err != nil {
		l.b.t.Fatal(err)
	}
	if err := l.store.Update(l.b.t.Context(), func(tx store.Tx) error {
		return tx.Put(store.Runs, id, runs.Run{ID: id, State: runs.Failed, CreatedAt: time.Now()})
	}); err != nil {
		l.b.t.Fatal(err)
	}
}

// request asks for a container that is never started.
func (l *ledger) request(run, operation string) (claims.Request, error) {
	def, err := docker.Validate(json.RawMessage(`{"image":"` + engine.Busybox + `","network":"none"}`))
	if err != nil {
		return claims.Request{}, err
	}
	operation += "-" + filepath.Base(filepath.Dir(l.b.proxy.Endpoint)) // names are the whole engine's
	id := claims.ID(run, operation)
	dir := filepath.Join(l.home.Dir(), "probes", id)
	if run != "" {
		dir = filepath.Join(l.home.RunDir(run), "sessions", id)
	}
	endpoint, err := l.provider.Endpoint(l.b.t.Context(), def)
	if err != nil {
		return claims.Request{}, err
	}
	plan, err := l.provider.Plan(l.b.t.Context(), def, providers.SessionSpec{Key: operation, Dir: dir, Workspace: filepath.Join(dir, "home"), Mark: id})
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
	return l.driver.Allocate(l.b.t.Context(), req)
}

func (l *ledger) must(c claims.Claim, err error) claims.Claim {
	l.b.t.Helper()
	if err != nil {
		l.b.t.Fatal(err)
	}
	return c
}

// create makes a container beside the driver.
func (b *boxed) create(name, image string, labels map[string]string) string {
	b.t.Helper()
	made, err := b.client.ContainerCreate(b.t.Context(), &container.Config{Image: image, Cmd: []string{"sleep", "1"}, Labels: labels}, &container.HostConfig{NetworkMode: "none"}, nil, nil, name)
	if err != nil {
		b.t.Fatal(err)
	}
	return made.ID
}

// report is what cleanup says.
type report struct {
	Released, Kept, Retained []struct{ Claim, Kind, LastObservation, Next string }
	Error                    struct{ Code, Message, Hint string }
}

func (b *boxed) cleanup(code int, args ...string) (rep report) {
	b.t.Helper()
	out := b.must([]int{code}, append([]string{"cleanup", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &rep); err != nil {
		b.t.Fatalf("%v: %s", err, out)
	}
	return rep
}

// 100 dangling claims, of runs and of none, cost what one costs, beside their removals: one list that says what is there and
// one that proves that it is gone, each between two questions who the engine is. Four removals are under way at a time.
func TestCleanUpOfAHundredContainers(t *testing.T) {
	t.Parallel()
	const claims, parallel = 100, 4
	b := newBoxed(t, engine.Endpoint(t))
	l := b.ledger()
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
	b.plant(false)

	b.proxy.Reset()
	var mu sync.Mutex
	now, most := 0, 0
	full := make(chan struct{})
	b.proxy.On(engine.Delete, 0, engine.Before(func() {
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
		case <-time.After(hang):
		}
		mu.Lock()
		now--
		mu.Unlock()
	}))
	rep := b.cleanup(0, "--all")
	if len(rep.Released) != claims || len(rep.Retained) > 0 {
		t.Errorf("%d released, %d retained", len(rep.Released), len(rep.Retained))
	}
	counts := b.proxy.Counts()
	for op, want := range map[engine.Operation]int{engine.Ping: 1, engine.Info: 4, engine.List: 2, engine.Delete: claims} {
		if counts[op] != want {
			t.Errorf("%s was called %d times, want %d", op, counts[op], want)
		}
		delete(counts, op)
	}
	if len(counts) > 0 || most != parallel {
		t.Errorf("also called: %v; %d removals at a time", counts, most)
	}
	b.isClean()
}

// What arrives after its claim was released is taken up again, by every clean-up that may; what only looks like it is left
// alone, and named by doctor --scan.
func TestLateContainers(t *testing.T) {
	t.Parallel()
	b := newBoxed(t, engine.Endpoint(t))
	l := b.ledger()
	l.over("261129-over0001")
	late := func(run string) (claims.Claim, string) {
		t.Helper()
		c := l.must(l.allocate(run, "late"))
		c = l.must(l.driver.Release(t.Context(), c.ID))
		return c, b.create(c.Intent.Name, c.Image, map[string]string{owned.LabelOwner: b.owner(), owned.LabelClaim: c.ID, owned.LabelRun: run})
	}
	ofRun, first := late("261129-over0001")
	_, second := late("")
	b.stranger("a container with our owner's label and no claim", "", engine.Busybox, map[string]string{owned.LabelOwner: b.owner(), owned.LabelClaim: "cnosuch"})
	b.stranger("a container of another store", "", engine.Busybox, map[string]string{owned.LabelOwner: "another", owned.LabelClaim: ofRun.ID})

	seen, _ := b.examined("scan.docker", nil, "--scan")
	text := fmt.Sprint(seen)
	for id, what := range b.strangers {
		if !strings.Contains(text, id[:12]) {
			t.Errorf("doctor --scan does not name %s: %s", what, text)
		}
	}
	for _, id := range []string{first, second} {
		if !strings.Contains(text, id[:12]) || !strings.Contains(text, "laufwerk cleanup --all") {
			t.Errorf("doctor --scan does not name what came late: %s", text)
		}
	}

	if rep := b.cleanup(0, "--all", "--dry-run"); len(rep.Released) != 2 || len(b.ours()) != 2 {
		t.Errorf("a dry run: %+v, %d are there", rep, len(b.ours()))
	}
	if rep := b.cleanup(0, ofRun.Run); len(rep.Released) != 1 || rep.Released[0].Claim != ofRun.ID || len(b.ours()) != 1 {
		t.Errorf("the run's: %+v", rep)
	}
	if rep := b.cleanup(0, "--all"); len(rep.Released) != 1 {
		t.Errorf("the other: %+v", rep)
	}
	b.isClean()
}

// An engine that says otherwise who it is proves nothing, and is not taken for the recorded one, until a person says so; what
// is not so is refused.
func TestAnEngineWithANewIdentity(t *testing.T) {
	t.Parallel()
	b := newBoxed(t, engine.Endpoint(t))
	l := b.ledger()
	l.over("261129-over0001")
	of := l.must(l.allocate("261129-over0001", "one"))
	free := l.must(l.allocate("", "two"))
	old, now := of.Intent.Endpoint, "docker engine another at /var/lib/another"
	refused := func(code int, says, accept string) {
		t.Helper()
		if rep := b.cleanup(code, "--all", "--accept-identity", accept); !strings.Contains(rep.Error.Message, says) || len(rep.Released) > 0 {
			t.Errorf("%q: %+v", accept, rep.Error)
		}
	}
	refused(2, "still answers", old+"="+now)
	b.proxy.Pretend("another")
	for range 2 {
		rep := b.cleanup(6, "--all")
		if len(rep.Retained) != 2 || !strings.Contains(rep.Error.Hint, "laufwerk cleanup") || !strings.Contains(rep.Error.Hint, "--accept-identity '"+old+"="+now+"'") {
			t.Errorf("%+v", rep)
		}
	}
	refused(2, "is not OLD=NEW", "another")
	refused(2, "does not begin with an identity that claims record", now+"="+old)
	refused(4, "is not what answers now; it is the "+now, old+"=docker engine third at /var/lib/third")
	b.cleanup(0, "--all", "--dry-run", "--accept-identity", old+"="+now)
	if c := l.must(l.driver.Get(t.Context(), of.ID)); c.Intent.Endpoint != old || len(b.ours()) != 2 {
		t.Errorf("a dry run changed it: %+v", c)
	}

	if rep := b.cleanup(0, of.Run, "--accept-identity", old+"="+now); len(rep.Released) != 1 {
		t.Errorf("%+v", rep)
	}
	if rep := b.cleanup(0, "--all", "--accept-identity", old+"="+now); len(rep.Released) != 1 {
		t.Errorf("%+v", rep)
	}
	refused(2, "nothing that may exist records", old+"="+now)
	for _, id := range []string{of.ID, free.ID} {
		c := l.must(l.driver.Get(t.Context(), id))
		if len(c.Accepted) != 1 || c.Accepted[0].Old != old || c.Accepted[0].New != now || c.Accepted[0].At.IsZero() || len(c.Accepted[0].Who.Chain) == 0 {
			t.Errorf("%+v", c.Accepted)
		}
	}
	b.isClean()
}

// A run whose engine says otherwise who it is goes on where a person says that it is the same.
func TestARunOnAnEngineWithANewIdentity(t *testing.T) {
	t.Parallel()
	b := newBoxed(t, engine.Endpoint(t))
	b.workflow("job", strings.Replace(boxedWorkflow, "const counted", "yield* Human.confirm({ key: \"go\", title: \"Go on?\" });\n    const counted", 1))
	b.workflow("job", strings.Replace(b.read("laufwerk/workflows/job/workflow.ts"), "{ defineWorkflow,", "{ defineWorkflow, Human,", 1))
	b.must([]int{8}, "run", "job", "--no-input")
	r := b.onlyRun()
	old := b.sessions()[0].Intent.Endpoint
	b.proxy.Pretend("another")
	code, _, errs := b.laufwerk(nil, "answer", r.ID, "go", "yes")
	hint := "laufwerk resume " + r.ID + " --accept-identity '" + old + "=docker engine another at /var/lib/another'"
	if code != 4 || !strings.Contains(errs, hint) {
		t.Fatalf("exit %d, want one that names %s\n%s", code, hint, errs)
	}
	if state := b.onlyRun().State; state != "interrupted" {
		t.Errorf("the run is %s", state)
	}
	b.must([]int{4}, "resume", r.ID)
	b.must([]int{2}, "resume", "--all", "--accept-identity", "a=b")
	b.must([]int{0}, "resume", r.ID, "--accept-identity", old+"=docker engine another at /var/lib/another")
	b.isDone(1)
}

func (b *boxed) read(name string) string {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.project, name))
	if err != nil {
		b.t.Fatal(err)
	}
	return string(text)
}

// Whatever happens to a call of a clean-up, nothing is called released that is there, no stranger is touched, and the next
// clean-up ends the rest.
func TestFaultsOfCleanUp(t *testing.T) {
	t.Parallel()
	b := newBoxed(t, engine.Endpoint(t))
	l := b.ledger()
	l.over("261129-over0001")
	faults := engine.Faults()
	faults["another engine before"] = engine.Before(func() { b.proxy.Pretend("another") })
	faults["another engine after"] = engine.After(func() { b.proxy.Pretend("another") })
	n := 0
	for _, at := range []struct {
		op  engine.Operation
		nth int
	}{{engine.Ping, 1}, {engine.Info, 1}, {engine.Info, 2}, {engine.List, 1}, {engine.Info, 3}, {engine.Delete, 1}, {engine.Delete, 2}, {engine.List, 2}, {engine.Info, 4}} {
		for name, fault := range faults {
			what := fmt.Sprintf("%s, %s %d", name, at.op, at.nth)
			for have := len(b.ours()); have < 2; have++ {
				n++
				l.must(l.allocate([]string{"", "261129-over0001"}[n%2], fmt.Sprintf("op-%d", n)))
			}
			if n <= 2 {
				b.plant(false)
			}
			b.proxy.Reset()
			rule := b.proxy.On(at.op, at.nth, fault)
			code, out, errs := b.laufwerk(nil, "cleanup", "--all")
			came := rule.Came()
			b.proxy.Pretend("")
			b.proxy.Return()
			if !came {
				t.Errorf("%s did not come: exit %d\n%s%s", what, code, out, errs)
			}
			b.proxy.Reset()
			if left := len(b.ours()); code != 0 && code != 6 || code == 0 && left > 0 {
				t.Errorf("%s: exit %d, and %d are there\n%s%s", what, code, left, out, errs)
			}
			b.accounted()
			if t.Failed() {
				t.Fatalf("with %s", what)
			}
		}
	}
	b.must([]int{0}, "cleanup", "--all")
	b.isClean()
}

// An engine that gives no answer is not asked for the end of every container.
func TestCleanUpStopsAskingAnEngineWithoutAnswers(t *testing.T) {
	t.Parallel()
	const claims = 24
	b := newBoxed(t, engine.Endpoint(t))
	l := b.ledger()
	for i := range claims {
		l.must(l.allocate("", fmt.Sprintf("op-%d", i)))
	}
	b.proxy.Reset()
	b.proxy.On(engine.Delete, 0, engine.LoseRequest())
	if rep := b.cleanup(6, "--all"); len(rep.Retained) != claims || len(b.ours()) != claims {
		t.Errorf("%d retained, %d are there", len(rep.Retained), len(b.ours()))
	}
	if n := b.proxy.Count(engine.Delete); n >= claims {
		t.Errorf("it was asked %d times", n)
	}
	b.proxy.Reset()
	if rep := b.cleanup(0, "--all"); len(rep.Released) != claims {
		t.Errorf("%+v", rep)
	}
	b.isClean()
}
