package openshell

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/guest"
	client "github.com/laufwerk/laufwerk/internal/openshell"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/providers/sessiondir"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/targets"
	"github.com/laufwerk/laufwerk/internal/testkit/gateway"
)

func TestASessionFromItsIntentToItsEnd(t *testing.T) {
	t.Parallel()
	w := newGatewayFixture(t, gateway.Options{})
	k := w.worker()
	in := w.intent(func(s *spec) { s.ReadOnly = true; s.Resources = targets.Resources{CPUs: 1.5, MemoryBytes: 1 << 28} })
	in = w.made(k, in)
	list := w.g.InMemory()
	if len(list) != 1 {
		t.Fatalf("%+v", list)
	}
	c := list[0]
	if c.NanoCPUs != 1_500_000_000 || c.Memory != 1<<28 || c.Image != image || c.Labels[client.LabelOwner] != w.owner || c.Labels[client.LabelClaim] != in.Claim || c.Labels[client.LabelRun] != "r1" {
		t.Errorf("%+v", c)
	}
	mounts := map[string]gateway.Mount{}
	for _, m := range c.Mounts {
		mounts[m.Target] = m
	}
	dir := w.sessionDir(in)
	for target, want := range map[string]gateway.Mount{
		"/sandbox/work": {Source: filepath.Join(w.dir, "work"), ReadOnly: true}, "/sandbox/home": {Source: dir + "/home"}, "/sandbox/ops": {Source: dir + "/ops"},
		guest.Binary: {Source: "/bin/sh", ReadOnly: true},
	} {
		if got := mounts[target]; got.Source != want.Source || got.ReadOnly != want.ReadOnly {
			t.Errorf("%s: %+v", target, got)
		}
	}
	if o := k.Observe(bounded(t), in); o.Presence != resource.Present || o.Resource != in.Resource {
		t.Errorf("%v %v", o.Presence, o.Err)
	}
	if n := w.g.Calls(); n["CreateSandbox"] != 1 || n["GetSandboxConfig"] != 1 || n["Health"] != 1 || n["GetGatewayInfo"] != 1 || n["DeleteSandbox"] != 0 {
		t.Errorf("%v", n)
	}
	if r := k.Delete(bounded(t), in); r.Outcome != resource.Done {
		t.Errorf("%v %v", r.Outcome, r.Err)
	}
	w.ended(k, in)
	if n := w.g.Calls(); n["CreateSandbox"] != 1 || n["DeleteSandbox"] != 1 || n["GetSandboxConfig"] != 1 {
		t.Errorf("%v", n)
	}
	if r := k.Delete(bounded(t), in); r.Outcome != resource.Done || w.g.Calls()["DeleteSandbox"] != 1 {
		t.Errorf("again: %v %v", r.Outcome, r.Err)
	}
}

// outcome is what may come of a create with a fault: the claim's driver goes on with Resolve where that is unknown.
func (w *gatewayFixture) outcome(k *worker, in resource.Intent) (resource.Result, bool) {
	r := k.Create(bounded(w.t), in)
	resolved := r.Outcome == resource.Unknown
	for i := 0; r.Outcome == resource.Unknown && i < 2; i++ {
		if r.Resource != "" {
			in.Resource = r.Resource
		}
		w.g.Start()
		r = k.Resolve(bounded(w.t), in)
	}
	return r, resolved
}

// either is Yes or No: whether the container was there when the gateway died.
const either resource.Outcome = -1

func TestEveryFaultOfACreate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		call  string
		fault func(g *gateway.Gateway) gateway.Fault
		want  resource.Outcome
		rows  int
	}{
		"request lost":       {"CreateSandbox", func(*gateway.Gateway) gateway.Fault { return gateway.LoseRequest() }, resource.Unknown, 0},
		"reply lost":         {"CreateSandbox", func(*gateway.Gateway) gateway.Fault { return gateway.LoseReply() }, resource.Done, 1},
		"delayed":            {"CreateSandbox", func(*gateway.Gateway) gateway.Fault { return gateway.Delay(20 * time.Millisecond) }, resource.Done, 1},
		"unavailable":        {"CreateSandbox", func(*gateway.Gateway) gateway.Fault { return gateway.Fail(codes.Unavailable, "x") }, resource.Unknown, 0},
		"internal, and made": {"CreateSandbox", func(*gateway.Gateway) gateway.Fault { return gateway.FailAfter(codes.Internal, "x") }, resource.Done, 1},
		"refused":            {"CreateSandbox", func(*gateway.Gateway) gateway.Fault { return gateway.Fail(codes.InvalidArgument, "x") }, resource.NotDone, 0},
		"not there: the workspace": {"CreateSandbox", func(*gateway.Gateway) gateway.Fault {
			return gateway.Fail(codes.NotFound, "workspace 'default' not found")
		}, resource.NotDone, 0},
		"killed before":            {"CreateSandbox", func(g *gateway.Gateway) gateway.Fault { return gateway.Before(g.Kill) }, resource.Unknown, 0},
		"killed after":             {"CreateSandbox", func(g *gateway.Gateway) gateway.Fault { return gateway.After(g.Kill) }, either, 0},
		"killed with a row":        {gateway.Stored, func(g *gateway.Gateway) gateway.Fault { return gateway.Before(g.Kill) }, resource.NotDone, 0},
		"killed while it comes up": {gateway.Landing, func(g *gateway.Gateway) gateway.Fault { return gateway.Before(g.Kill) }, resource.NotDone, 0},
		"restarted, coming up":     {gateway.Landing, func(g *gateway.Gateway) gateway.Fault { return gateway.After(g.Restart) }, either, 0},
		"looks lost":               {"GetSandbox", func(*gateway.Gateway) gateway.Fault { return gateway.LoseRequest() }, resource.Done, 1},
		"looks fail for a while":   {"GetSandbox", func(*gateway.Gateway) gateway.Fault { return gateway.Fail(codes.Internal, "x").Times(2) }, resource.Done, 1},
		"no workspace for a look": {"GetSandbox", func(*gateway.Gateway) gateway.Fault {
			return gateway.Fail(codes.NotFound, "workspace 'default' not found")
		}, resource.Done, 1},
		"policy not told":       {"GetSandboxConfig", func(*gateway.Gateway) gateway.Fault { return gateway.LoseReply() }, resource.Done, 1},
		"killed for the policy": {"GetSandboxConfig", func(g *gateway.Gateway) gateway.Fault { return gateway.Before(g.Restart) }, resource.Done, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newGatewayFixture(t, gateway.Options{})
			k := w.worker()
			w.g.Fault(c.call, c.fault(w.g))
			in := w.intent()
			r, _ := w.outcome(k, in)
			rows, containers := w.there(in)
			if c.want == either && r.Outcome != resource.Unknown {
				c.want = r.Outcome
				if r.Outcome == resource.Done {
					c.rows = 1
				}
			}
			if r.Outcome != c.want || rows != c.rows || containers != c.rows {
				t.Fatalf("%v with %d rows and %d containers, want %v: %v %v", r.Outcome, rows, containers, c.want, r.Err, r.Evidence)
			}
			if n := w.g.Calls()["CreateSandbox"]; n != 1 {
				t.Errorf("it was asked for %d times", n)
			}
			switch r.Outcome {
			case resource.Done:
				in.Resource = r.Resource
				if r := k.Delete(bounded(t), in); r.Outcome != resource.Done {
					t.Errorf("%v %v", r.Outcome, r.Err)
				}
				w.ended(k, in)
			case resource.NotDone:
				w.ended(k, in)
			default:
				// It is not to be seen, and may land still. Looks prove nothing, however often.
				if r := k.Resolve(bounded(t), in); r.Outcome != resource.Unknown {
					t.Errorf("%v %v", r.Outcome, r.Err)
				}
				if r := k.Delete(bounded(t), in); r.Outcome != resource.Unknown {
					t.Errorf("%v %v", r.Outcome, r.Err)
				}
				if o := k.Observe(bounded(t), in); o.Presence != resource.Unobserved || !strings.Contains(o.Err.Error(), "it may still appear") {
					t.Errorf("what may still appear is %v: %v", o.Presence, o.Err)
				}
			}
		})
	}
}

func TestACreationThatWasNotAnsweredIsFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		call  string
		fault func(func()) gateway.Fault
		want  resource.Outcome
	}{
		"it comes up":       {"CreateSandbox", gateway.After, resource.Done},
		"a row and no more": {gateway.Stored, gateway.Before, resource.NotDone}, // and nothing brings its container up
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newGatewayFixture(t, gateway.Options{})
			k := w.worker()
			if c.want == resource.NotDone {
				k.Provider.w.ready = 200 * time.Millisecond
			}
			in := w.intent()
			ctx, cancel := context.WithCancel(bounded(t))
			w.g.Fault(c.call, c.fault(func() { cancel(); time.Sleep(100 * time.Millisecond) }))
			if r := k.Create(ctx, in); r.Outcome != resource.Unknown {
				t.Fatalf("%v %v", r.Outcome, r.Err)
			}
			var r resource.Result
			eventually(t, "it is found", func() bool { r = k.Resolve(bounded(t), in); return r.Outcome != resource.Unknown })
			if n := w.g.Calls()["CreateSandbox"]; r.Outcome != c.want || n != 1 {
				t.Errorf("%v, asked for %d times: %v", r.Outcome, n, r.Err)
			}
			if in.Resource = r.Resource; r.Outcome == resource.Done {
				if r := k.Delete(bounded(t), in); r.Outcome != resource.Done {
					t.Errorf("%v %v", r.Outcome, r.Err)
				}
			}
			w.ended(k, in)
		})
	}
}

func TestWhatWasNotAskedForIsNotThere(t *testing.T) {
	t.Parallel()
	w := newGatewayFixture(t, gateway.Options{})
	k := w.worker()
	in := w.intent()
	if r := k.Resolve(bounded(t), in); r.Outcome != resource.NotDone {
		t.Errorf("without a directory: %v %v", r.Outcome, r.Err)
	}
	s, err := readSpec(in)
	must(t, err)
	must(t, os.MkdirAll(s.Dir+".making/home", 0o700))
	if r := k.Resolve(bounded(t), in); r.Outcome != resource.NotDone {
		t.Errorf("with half a directory: %v %v", r.Outcome, r.Err)
	}
	if _, err := os.Lstat(s.Dir + ".making"); err == nil {
		t.Error("half a directory is left")
	}
	w.g.Kill()
	r := w.worker().Create(bounded(t), in)
	if r.Outcome != resource.NotDone || !failure.Is(r.Err, failure.NotReady) {
		t.Errorf("without a gateway: %v %v", r.Outcome, r.Err)
	}
	// Killed before it noted that it asks: that is told without a gateway, too.
	before := w.intent()
	s, err = readSpec(before)
	must(t, err)
	k.directory(before, s).Make(bounded(t), nil, []string{sessiondir.Home, sessiondir.Ops}, func(*sessiondir.Folder) resource.Result { return resource.Result{} })
	if _, err := os.Lstat(s.Dir); err != nil {
		t.Fatal(err)
	}
	if r := w.worker().Resolve(bounded(t), before); r.Outcome != resource.NotDone {
		t.Errorf("without a note, and without a gateway: %v %v", r.Outcome, r.Err)
	}
	w.g.Start()
	w.ended(w.worker(), in)
	w.ended(w.worker(), before)
}

func TestWhatMustNotBeUsed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options gateway.Options
		spec    func(s *spec)
		config  func(w *gatewayFixture) func(c *Config)
		kind    failure.Kind
		says    string
	}{
		"a policy of the gateway": {options: gateway.Options{GlobalPolicy: true}, kind: failure.Unsupported, says: "replaces that of every sandbox"},
		"no bind mounts":          {options: gateway.Options{NoBindMounts: true}, kind: failure.NotReady, says: "enable_bind_mounts"},
		"no image":                {options: gateway.Options{Images: []string{}}, kind: failure.NotReady, says: "ImagePullFailed"},
		"no workspace":            {spec: func(s *spec) { s.Workspace += "-gone" }, kind: failure.NotReady, says: "ContainerCreateFailed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newGatewayFixture(t, c.options)
			k := w.worker()
			var change []func(s *spec)
			if c.spec != nil {
				change = append(change, c.spec)
			}
			in := w.intent(change...)
			r, _ := w.outcome(k, in)
			if r.Outcome != resource.NotDone || !failure.Is(r.Err, c.kind) || !strings.Contains(r.Err.Error(), c.says) || failure.As(r.Err).Hint == "" {
				t.Errorf("%v %v", r.Outcome, r.Err)
			}
			w.ended(k, in)
		})
	}
}

func TestAGatewayWithAnotherEngine(t *testing.T) {
	t.Parallel()
	w, other := newGatewayFixture(t, gateway.Options{}), newGatewayFixture(t, gateway.Options{})
	k := w.worker(func(c *Config) {
		c.Connect = func(context.Context, string) (*dockerengine.Engine, error) { return other.engine, nil }
	})
	in := w.intent(func(s *spec) { s.Engine = other.engine.Facts().Identity() })
	r := k.Create(bounded(t), in)
	if r.Outcome != resource.NotDone || !strings.Contains(r.Err.Error(), "works with another engine") {
		t.Errorf("%v %v", r.Outcome, r.Err)
	}
	if rows, containers := w.there(in); rows+containers > 0 {
		t.Errorf("%d rows, %d containers", rows, containers)
	}
	// What another engine has not, says nothing of a sandbox.
	mine := w.worker()
	in = w.made(mine, w.intent())
	if o := k.Observe(bounded(t), in); o.Presence != resource.Unobserved || !strings.Contains(o.Err.Error(), "another engine answers") {
		t.Errorf("%v %v", o.Presence, o.Err)
	}
	if r := k.Delete(bounded(t), in); r.Outcome != resource.Unknown {
		t.Errorf("%v %v", r.Outcome, r.Err)
	}
	if rows, containers := w.there(in); rows != 1 || containers != 1 {
		t.Errorf("%d rows, %d containers", rows, containers)
	}
}

func TestStrangersAreNotTouched(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(r *wire.CreateSandboxRequest){
		"no labels":      func(r *wire.CreateSandboxRequest) { r.Labels = nil },
		"another store":  func(r *wire.CreateSandboxRequest) { r.Labels[client.LabelOwner] = "store-2" },
		"another claim":  func(r *wire.CreateSandboxRequest) { r.Labels[client.LabelClaim] = "c0" },
		"another image":  func(r *wire.CreateSandboxRequest) { r.Spec.Template.Image = "busybox" },
		"made long ago":  nil,
		"of another id":  nil,
		"without an end": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newGatewayFixture(t, gateway.Options{})
			k := w.worker()
			in := w.intent()
			if change == nil {
				change = func(*wire.CreateSandboxRequest) {}
			}
			sb := w.stranger(in, change)
			switch name {
			case "made long ago":
				in.At = in.At.Add(time.Hour)
			case "of another id":
				in.Resource = "00000000-0000-4000-8000-000000000000"
			case "without an end":
				in.Resource = sb.GetMetadata().GetId() // the id alone is not enough where the labels do not fit
				in.Owner = "store-3"
			}
			if in.Resource == "" {
				if r := k.Create(bounded(t), in); r.Outcome != resource.NotDone || !failure.Is(r.Err, failure.AlreadyExists) {
					t.Errorf("create: %v %v", r.Outcome, r.Err)
				}
				if o := k.Observe(bounded(t), in); o.Presence != resource.Foreign {
					t.Errorf("observe: %v %v", o.Presence, o.Err)
				}
			}
			if r := k.Delete(bounded(t), in); r.Outcome == resource.Unknown {
				t.Errorf("delete: %v %v", r.Outcome, r.Err)
			}
			k.DeleteAll(bounded(t), []resource.Intent{in}, []resource.Summary{{Resource: in.Resource}}, 8)
			if rows := w.g.Rows(); rows[sb.GetMetadata().GetName()] != wire.SandboxPhase_SANDBOX_PHASE_READY || len(w.g.InMemory()) != 1 {
				t.Errorf("%v", rows)
			}
		})
	}
}

func TestAnotherGatewayUnderTheAlias(t *testing.T) {
	t.Parallel()
	w := newGatewayFixture(t, gateway.Options{})
	in := w.made(w.worker(), w.intent())
	w.g.Kill()
	w.g.Rotate()
	w.g.Start()
	w.g.Register(w.config, here)
	k := w.worker()
	r, err := w.registrations().Find(here)
	must(t, err)
	for what, err := range map[string]error{
		"create": k.Create(bounded(t), in).Err, "resolve": k.Resolve(bounded(t), in).Err, "observe": k.Observe(bounded(t), in).Err, "delete": k.Delete(bounded(t), in).Err,
	} {
		f := failure.As(err)
		if f == nil || f.Kind != failure.NotReady || f.Fields["answers"] != r.Identity() || !strings.Contains(f.Hint, "--accept-identity") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := k.List(bounded(t), in); err == nil {
		t.Error("it is listed")
	}
	in.Endpoint = r.Identity() // a person says that it is the same one
	if r := k.Delete(bounded(t), in); r.Outcome != resource.Done {
		t.Errorf("%v %v", r.Outcome, r.Err)
	}
	w.ended(k, in)
}

func TestWorkersThatAreRefused(t *testing.T) {
	t.Parallel()
	w := newGatewayFixture(t, gateway.Options{})
	in := w.intent()
	for name, change := range map[string]func(c *Config){
		"root":         func(c *Config) { c.UID, c.GID = 0, 0 },
		"root's group": func(c *Config) { c.GID = 0 },
		"another user": func(c *Config) { c.UID = 4321 },
	} {
		k := w.worker(change)
		if name != "another user" {
			own := w.intent(func(s *spec) { s.UID, s.GID = k.c.UID, k.c.GID })
			if r := k.Create(bounded(t), own); r.Outcome != resource.NotDone || !failure.Is(r.Err, failure.Unsupported) {
				t.Errorf("%s: %v %v", name, r.Outcome, r.Err)
			}
		}
		if r := k.Create(bounded(t), in); r.Outcome != resource.NotDone {
			t.Errorf("%s: %v %v", name, r.Outcome, r.Err)
		}
		if missing := k.Ready(bounded(t), targets.Definition{Kind: Kind, ID: "box"}, providers.Need{}); name != "another user" && (len(missing) != 1 || missing[0].ID != "openshell.host") {
			t.Errorf("%s: %+v", name, missing)
		}
	}
	if n := w.g.Calls()["CreateSandbox"]; n != 0 {
		t.Errorf("%d creations", n)
	}
	for says, f := range map[string]dockerengine.Facts{
		"Docker Desktop": {OS: "linux", Arch: "amd64", System: dockerDesktopOS}, "maps users": {OS: "linux", Arch: w.engine.Facts().Arch, Rootless: true}, "contains no supervisor": {OS: "linux", Arch: "riscv"},
	} {
		if err := checkEngine(f); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", says, err)
		}
	}
}
