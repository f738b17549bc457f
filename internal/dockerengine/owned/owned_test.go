package owned_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"

	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// engineFixture is a proxy in front of the shared engine, and a store's owner of its own.
type engineFixture struct {
	t     *testing.T
	proxy *engine.Proxy
	owner string
	image string
	n     int
}

func newEngineFixture(t *testing.T) *engineFixture {
	t.Helper()
	w := &engineFixture{t: t, owner: fmt.Sprintf("test-%s-%d", t.Name(), time.Now().UnixNano())}
	direct := engine.Endpoint(t)
	w.proxy = engine.NewProxy(t, direct)
	i, err := engine.Client(t, direct).ImageInspect(w.ctx(), engine.Busybox)
	if err != nil {
		t.Fatal(err)
	}
	w.image = i.ID
	t.Cleanup(func() {
		w.proxy.Reset()
		w.proxy.Return()
		engine.Remove(t, direct, owned.LabelOwner+"="+w.owner)
	})
	return w
}

func (w *engineFixture) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	w.t.Cleanup(cancel)
	return ctx
}

func (w *engineFixture) connect(ctx context.Context) (*dockerengine.Engine, error) {
	return dockerengine.Connect(ctx, dockerengine.Endpoint{Host: w.proxy.Endpoint, Origin: "the test"})
}

func (w *engineFixture) container() owned.Container {
	return owned.Container{Engine: w.connect, Now: time.Now, Image: w.image}
}

func (w *engineFixture) intent() resource.Intent {
	w.t.Helper()
	w.n++
	e, err := w.connect(w.ctx())
	if err != nil {
		w.t.Fatal(err)
	}
	defer e.Close()
	claim := fmt.Sprintf("c%d-%d", time.Now().UnixNano(), w.n)
	return resource.Intent{Claim: claim, Name: owned.Name(claim), Owner: w.owner, Run: "r1", Endpoint: e.Facts().Identity(), At: time.Now()}
}

func want() owned.ContainerSpec {
	return owned.ContainerSpec{Config: &container.Config{Entrypoint: []string{"/bin/sleep", "1000"}}, Host: &container.HostConfig{NetworkMode: "none"}}
}

// containers are those of an intent's name or claim label, strangers' included.
func (w *engineFixture) containers(in resource.Intent) (ids []string) {
	w.t.Helper()
	for _, c := range engine.Containers(w.t, engine.Endpoint(w.t), owned.LabelClaim+"="+in.Claim) {
		ids = append(ids, c.ID)
	}
	return ids
}

func (w *engineFixture) expect(what string, got resource.Outcome, err error, wanted resource.Outcome) {
	w.t.Helper()
	if got != wanted {
		w.t.Fatalf("%s: %s (%v), want %s", what, got, err, wanted)
	}
}

func TestLife(t *testing.T) {
	w := newEngineFixture(t)
	c, in := w.container(), w.intent()
	if o := c.Observe(w.ctx(), in); o.Presence != resource.Absent {
		t.Fatalf("%+v", o)
	}
	r := c.Create(w.ctx(), in, want())
	w.expect("create", r.Outcome, r.Err, resource.Done)
	for _, known := range []string{"", r.Resource} {
		in.Resource = known
		if o := c.Observe(w.ctx(), in); o.Presence != resource.Present || o.Resource != r.Resource {
			t.Errorf("%q: %+v", known, o)
		}
		if again := c.Resolve(w.ctx(), in, want()); again.Outcome != resource.Done || again.Resource != r.Resource {
			t.Errorf("%q: %+v", known, again)
		}
	}
	if again := c.Create(w.ctx(), w.without(in), want()); again.Outcome != resource.Done || again.Resource != r.Resource {
		t.Errorf("created twice: %+v", again)
	}
	if n := len(w.containers(in)); n != 1 {
		t.Errorf("%d containers", n)
	}
	for range 2 {
		d := c.Delete(w.ctx(), in)
		w.expect("delete", d.Outcome, d.Err, resource.Done)
		if o := c.Observe(w.ctx(), in); o.Presence != resource.Absent {
			t.Errorf("%+v", o)
		}
	}
	if r := c.Resolve(w.ctx(), in, want()); r.Outcome != resource.NotDone {
		t.Errorf("what is gone was resolved to %+v", r)
	}
}

func (w *engineFixture) without(in resource.Intent) resource.Intent {
	in.Resource = ""
	return in
}

func TestStrangersAreNeverTouched(t *testing.T) {
	w := newEngineFixture(t)
	other, err := engine.Client(t, engine.Endpoint(t)).ImageInspect(w.ctx(), engine.OnlyShell)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(in *resource.Intent, c *container.Config){
		"without labels":            func(_ *resource.Intent, c *container.Config) { c.Labels = nil },
		"of another store":          func(_ *resource.Intent, c *container.Config) { c.Labels[owned.LabelOwner] = "another" },
		"of another claim":          func(_ *resource.Intent, c *container.Config) { c.Labels[owned.LabelClaim] = "another" },
		"from another image":        func(_ *resource.Intent, c *container.Config) { c.Image = other.ID },
		"created before the intent": func(in *resource.Intent, _ *container.Config) { in.At = time.Now().Add(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			in := w.intent()
			config := &container.Config{Image: w.image, Entrypoint: []string{"/bin/sleep", "1000"}, Labels: map[string]string{owned.LabelOwner: in.Owner, owned.LabelClaim: in.Claim}}
			change(&in, config)
			cl := engine.Client(t, engine.Endpoint(t))
			planted, err := cl.ContainerCreate(w.ctx(), config, &container.HostConfig{NetworkMode: "none"}, nil, nil, in.Name)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cl.ContainerRemove(context.Background(), planted.ID, container.RemoveOptions{Force: true}) })
			c := w.container()
			for what, r := range map[string]resource.Result{
				"create": c.Create(w.ctx(), in, want()), "resolve": c.Resolve(w.ctx(), in, want()), "delete": c.Delete(w.ctx(), in),
			} {
				if r.Outcome != resource.NotDone || !failure.Is(r.Err, failure.AlreadyExists) || r.Resource != "" {
					t.Errorf("%s: %+v", what, r)
				}
			}
			if o := c.Observe(w.ctx(), in); o.Presence != resource.Foreign || o.Resource != "" {
				t.Errorf("%+v", o)
			}
			// What is recorded by its id is ours and gone, whoever has its name now.
			in.Resource = strings.Repeat("0", 64)
			if o := c.Observe(w.ctx(), in); o.Presence != resource.Absent {
				t.Errorf("%+v", o)
			}
			if r := c.Delete(w.ctx(), in); r.Outcome != resource.Done {
				t.Errorf("%+v", r)
			}
			if _, err := cl.ContainerInspect(w.ctx(), planted.ID); err != nil {
				t.Errorf("the stranger's: %v", err)
			}
		})
	}
}

// TestCommittedLabels: an image that was made from our container gives its labels to strangers' containers.
func TestCommittedLabels(t *testing.T) {
	w := newEngineFixture(t)
	cl := engine.Client(t, engine.Endpoint(t))
	c, in := w.container(), w.intent()
	r := c.Create(w.ctx(), in, want())
	w.expect("create", r.Outcome, r.Err, resource.Done)
	made, err := cl.ContainerCommit(w.ctx(), r.Resource, container.CommitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := cl.ContainerCreate(w.ctx(), &container.Config{Image: made.ID}, nil, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cl.ContainerRemove(context.Background(), stranger.ID, container.RemoveOptions{Force: true})
		_, _ = cl.ImageRemove(context.Background(), made.ID, image.RemoveOptions{Force: true})
	})
	d := c.Delete(w.ctx(), in)
	w.expect("delete", d.Outcome, d.Err, resource.Done)
	if o := c.Observe(w.ctx(), in); o.Presence != resource.Absent {
		t.Errorf("%+v", o)
	}
	if left := w.containers(in); len(left) != 1 || left[0] != stranger.ID {
		t.Errorf("%v", left)
	}
	// And our own containers from such an image have our labels, not the inherited ones.
	c.Image = made.ID
	next := w.intent()
	next.Run = ""
	r = c.Create(w.ctx(), next, want())
	w.expect("create", r.Outcome, r.Err, resource.Done)
	got, err := cl.ContainerInspect(w.ctx(), r.Resource)
	if err != nil || got.Config.Labels[owned.LabelClaim] != next.Claim || got.Config.Labels[owned.LabelRun] != "" {
		t.Errorf("%v, %v", got.Config.Labels, err)
	}
	d = c.Delete(w.ctx(), next)
	w.expect("delete", d.Outcome, d.Err, resource.Done)
}

// TestUnknownCreatesAreResolved: whatever became of a create, there is one container in the end, and it is known.
func TestUnknownCreatesAreResolved(t *testing.T) {
	for name, fault := range engine.Faults() {
		t.Run(name, func(t *testing.T) {
			w := newEngineFixture(t)
			c, in := w.container(), w.intent()
			w.proxy.On(engine.Create, 1, fault)
			r := c.Create(w.ctx(), in, want())
			w.expect("create", r.Outcome, r.Err, resource.Unknown)
			w.proxy.Return()
			if r = c.Resolve(w.ctx(), in, want()); r.Outcome != resource.Done {
				t.Fatalf("%+v", r)
			}
			if left := w.containers(in); len(left) != 1 || left[0] != r.Resource {
				t.Errorf("%v, and %s is known", left, r.Resource)
			}
		})
	}
	t.Run("late request", func(t *testing.T) {
		w := newEngineFixture(t)
		c, in := w.container(), w.intent()
		late := w.proxy.On(engine.Create, 1, engine.LateRequest())
		ctx, cancel := context.WithCancel(w.ctx())
		go func() {
			<-late.Met()
			cancel()
		}()
		r := c.Create(ctx, in, want())
		w.expect("create", r.Outcome, r.Err, resource.Unknown)
		if o := c.Observe(w.ctx(), in); o.Presence != resource.Absent {
			t.Errorf("%+v", o)
		}
		go late.Release()
		if r = c.Resolve(w.ctx(), in, want()); r.Outcome != resource.Done {
			t.Fatalf("%+v", r)
		}
		<-late.Done()
		if left := w.containers(in); len(left) != 1 || left[0] != r.Resource {
			t.Errorf("%v, and %s is known", left, r.Resource)
		}
	})
}

// TestFaultsAfterTheCreate: an answer that is lost later leaves the container known, or nothing.
func TestFaultsAfterTheCreate(t *testing.T) {
	for op, nth := range map[engine.Operation]int{engine.Info: 3, engine.Inspect: 1} { // info: to connect, before and after the create
		for name, fault := range engine.Faults() {
			t.Run(string(op)+", "+name, func(t *testing.T) {
				w := newEngineFixture(t)
				c, in := w.container(), w.intent()
				w.proxy.On(op, nth, fault)
				r := c.Create(w.ctx(), in, want())
				w.proxy.Return()
				w.proxy.Reset()
				if r.Outcome == resource.NotDone { // a lost question is asked again by the transport, so it can be Yes
					t.Fatalf("%+v", r)
				}
				in.Resource = r.Resource
				again := c.Resolve(w.ctx(), in, want())
				w.expect("resolve", again.Outcome, again.Err, resource.Done)
				if left := w.containers(in); len(left) != 1 || left[0] != again.Resource {
					t.Errorf("%v", left)
				}
			})
		}
	}
}

func TestRefusedCreate(t *testing.T) {
	w := newEngineFixture(t)
	c, in := w.container(), w.intent()
	c.Image = "sha256:" + strings.Repeat("0", 64)
	if r := c.Create(w.ctx(), in, want()); r.Outcome != resource.NotDone || !failure.Is(r.Err, failure.NotReady) {
		t.Errorf("%+v", r)
	}
	c.Image = w.image
	h := want()
	h.Host.Mounts = []mount.Mount{{Type: mount.TypeBind, Source: "/nosuch/anywhere", Target: "/x"}}
	if r := c.Create(w.ctx(), in, h); r.Outcome != resource.NotDone {
		t.Errorf("%+v", r)
	}
	w.proxy.Leave()
	if r := c.Create(w.ctx(), in, want()); r.Outcome != resource.NotDone {
		t.Errorf("%+v", r)
	}
	if r := c.Resolve(w.ctx(), in, want()); r.Outcome != resource.Unknown {
		t.Errorf("nobody there, and it is resolved: %+v", r)
	}
	if r := c.Delete(w.ctx(), in); r.Outcome != resource.Unknown {
		t.Errorf("%+v", r)
	}
	if o := c.Observe(w.ctx(), in); o.Presence != resource.Unobserved {
		t.Errorf("%+v", o)
	}
}

// TestAnotherEngine: what another engine on the same socket says is neither absence nor ours.
func TestAnotherEngine(t *testing.T) {
	w := newEngineFixture(t)
	c, in := w.container(), w.intent()
	made := c.Create(w.ctx(), in, want())
	w.expect("create", made.Outcome, made.Err, resource.Done)
	next := w.intent()
	w.proxy.Pretend("another")
	for _, known := range []string{"", made.Resource} {
		in.Resource = known
		if o := c.Observe(w.ctx(), in); o.Presence != resource.Unobserved || o.Err == nil {
			t.Errorf("%+v", o)
		}
		if r := c.Delete(w.ctx(), in); r.Outcome != resource.Unknown {
			t.Errorf("%+v", r)
		}
		if r := c.Resolve(w.ctx(), in, want()); r.Outcome != resource.Unknown {
			t.Errorf("%+v", r)
		}
	}
	if r := c.Create(w.ctx(), next, want()); r.Outcome != resource.NotDone || !failure.Is(r.Err, failure.NotReady) {
		t.Errorf("%+v", r)
	}
	w.proxy.Pretend("")
	// It comes in between the look and the create: what was made on it is taken back.
	w.proxy.On(engine.Create, 1, engine.Before(func() { w.proxy.Pretend("another") }))
	if r := c.Create(w.ctx(), next, want()); r.Outcome != resource.NotDone || !strings.Contains(r.Err.Error(), "another engine") {
		t.Errorf("%+v", r)
	}
	w.proxy.Pretend("")
	if n := len(w.containers(next)); n != 0 {
		t.Errorf("%d are left", n)
	}
	if left := w.containers(in); len(left) != 1 || left[0] != made.Resource {
		t.Errorf("%v", left)
	}
}

// TestOnlyWhatWasWantedCounts: a container that the engine made otherwise is removed.
func TestOnlyWhatWasWantedCounts(t *testing.T) {
	w := newEngineFixture(t)
	cl := engine.Client(t, engine.Endpoint(t))
	from, err := cl.ContainerCreate(w.ctx(), &container.Config{Image: w.image, Cmd: []string{"true"}, Labels: map[string]string{owned.LabelOwner: w.owner}}, nil, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	made, err := cl.ContainerCommit(w.ctx(), from.ID, container.CommitOptions{Changes: []string{"VOLUME /data"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cl.ImageRemove(context.Background(), made.ID, image.RemoveOptions{Force: true}) })
	c, in := w.container(), w.intent()
	c.Image = made.ID
	if r := c.Create(w.ctx(), in, want()); r.Outcome != resource.NotDone || !strings.Contains(r.Err.Error(), `something else is mounted at "/data"`) {
		t.Errorf("%+v", r)
	}
	if n := len(w.containers(in)); n != 0 {
		t.Errorf("%d are left", n)
	}
	h := want()
	h.Host.Tmpfs = map[string]string{"/data": "rw"}
	r := c.Create(w.ctx(), in, h)
	w.expect("with a tmpfs in its place", r.Outcome, r.Err, resource.Done)
	d := c.Delete(w.ctx(), in)
	w.expect("delete", d.Outcome, d.Err, resource.Done)
}

// TestDeleteFaults: whatever becomes of a removal, the container is absent or known, and a second removal ends it.
func TestDeleteFaults(t *testing.T) {
	for name, fault := range engine.Faults() {
		t.Run(name, func(t *testing.T) {
			w := newEngineFixture(t)
			c, in := w.container(), w.intent()
			r := c.Create(w.ctx(), in, want())
			w.expect("create", r.Outcome, r.Err, resource.Done)
			in.Resource = r.Resource
			w.proxy.On(engine.Delete, 1, fault)
			if d := c.Delete(w.ctx(), in); d.Outcome == resource.NotDone {
				t.Errorf("%+v", d)
			}
			w.proxy.Return()
			d := c.Delete(w.ctx(), in)
			w.expect("delete again", d.Outcome, d.Err, resource.Done)
			if o := c.Observe(w.ctx(), in); o.Presence != resource.Absent {
				t.Errorf("%+v", o)
			}
			if n := len(w.containers(in)); n != 0 {
				t.Errorf("%d are left", n)
			}
		})
	}
}
