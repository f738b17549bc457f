package openshell

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"

	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/failure"
	client "github.com/laufwerk/laufwerk/internal/openshell"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/testkit/gateway"
)

func TestEveryFaultOfADelete(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		call  string
		fault func(g *gateway.Gateway) gateway.Fault
		want  resource.Presence // after Delete
	}{
		"request lost":      {"DeleteSandbox", func(*gateway.Gateway) gateway.Fault { return gateway.LoseRequest() }, resource.Present},
		"reply lost":        {"DeleteSandbox", func(*gateway.Gateway) gateway.Fault { return gateway.LoseReply() }, resource.Absent},
		"delayed":           {"DeleteSandbox", func(*gateway.Gateway) gateway.Fault { return gateway.Delay(20 * time.Millisecond) }, resource.Absent},
		"unavailable":       {"DeleteSandbox", func(*gateway.Gateway) gateway.Fault { return gateway.Fail(codes.Unavailable, "x") }, resource.Present},
		"aborted":           {"DeleteSandbox", func(*gateway.Gateway) gateway.Fault { return gateway.Fail(codes.Aborted, "x") }, resource.Present},
		"the driver failed": {"DeleteSandbox", func(*gateway.Gateway) gateway.Fault { return gateway.Fail(codes.Internal, "delete sandbox failed: x") }, resource.Present},
		"no workspace": {"DeleteSandbox", func(*gateway.Gateway) gateway.Fault {
			return gateway.Fail(codes.NotFound, "workspace 'default' not found")
		}, resource.Present},
		"forgotten":              {"DeleteSandbox", func(*gateway.Gateway) gateway.Fault { return gateway.ForgetDelete() }, resource.Present},
		"killed before":          {"DeleteSandbox", func(g *gateway.Gateway) gateway.Fault { return gateway.Before(g.Kill) }, resource.Present},
		"killed with a row":      {gateway.Removing, func(g *gateway.Gateway) gateway.Fault { return gateway.Before(g.Kill) }, resource.Present},
		"killed, container gone": {gateway.Vanishing, func(g *gateway.Gateway) gateway.Fault { return gateway.Before(g.Kill) }, resource.Residue},
		"no workspace for a look": {"GetSandbox", func(*gateway.Gateway) gateway.Fault {
			return gateway.Fail(codes.NotFound, "workspace 'default' not found")
		}, resource.Present},
		"looks lost": {"GetSandbox", func(*gateway.Gateway) gateway.Fault { return gateway.LoseReply() }, resource.Present},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newGatewayFixture(t, gateway.Options{})
			k := w.worker()
			in := w.made(k, w.intent())
			w.g.Fault(c.call, c.fault(w.g))
			r := k.Delete(bounded(t), in)
			rows, containers := w.there(in)
			if r.Outcome == resource.Done && rows+containers > 0 && c.want != resource.Residue {
				t.Errorf("done, with %d rows and %d containers", rows, containers)
			}
			w.g.Start()
			w.g.Faultless()
			if c.want == resource.Absent { // where the reply was lost, it goes on without us
				eventually(t, "it is gone", func() bool { rows, containers := w.there(in); return rows+containers == 0 })
			}
			o := k.Observe(bounded(t), in)
			if _, err := os.Lstat(w.sessionDir(in)); err == nil && c.want != resource.Present {
				if o.Presence != resource.Present {
					t.Errorf("with its directory it is %v: %v", o.Presence, o.Err)
				}
			} else if o.Presence != c.want {
				t.Errorf("it is %v: %v %v", o.Presence, o.Err, o.Evidence)
			}
			// Asked again, it ends.
			r = k.Delete(bounded(t), in)
			if o = k.Observe(bounded(t), in); o.Presence == resource.Residue {
				w.g.Reconcile()
			} else if r.Outcome != resource.Done {
				t.Errorf("again: %v %v", r.Outcome, r.Err)
			}
			w.ended(k, in)
		})
	}
}

// What is not learned is not absence, whoever does not answer.
func TestEveryFaultOfAnObservation(t *testing.T) {
	t.Parallel()
	w := newGatewayFixture(t, gateway.Options{})
	k := w.worker()
	in := w.made(k, w.intent())
	gone := w.made(k, w.intent())
	if r := k.Delete(bounded(t), gone); r.Outcome != resource.Done {
		t.Fatal(r.Err)
	}
	for name, f := range map[string]gateway.Fault{
		"request lost": gateway.LoseRequest(), "reply lost": gateway.LoseReply(), "internal": gateway.Fail(codes.Internal, "x"), "denied": gateway.Fail(codes.PermissionDenied, "x"),
		"no workspace": gateway.Fail(codes.NotFound, "workspace 'default' not found"), "no word": gateway.Fail(codes.NotFound, ""), "no call": gateway.Fail(codes.Unimplemented, "x"),
	} {
		for _, one := range []resource.Intent{in, gone} {
			w.g.Fault("GetSandbox", f)
			if o := k.Observe(bounded(t), one); o.Presence != resource.Unobserved || o.Err == nil {
				t.Errorf("%s: %v %v", name, o.Presence, o.Err)
			}
		}
		w.g.Fault("ListSandboxes", f)
		if list, err := k.List(bounded(t), in); err == nil {
			t.Errorf("%s: %v", name, list)
		}
	}
	w.g.Kill()
	for _, one := range []resource.Intent{in, gone} {
		if o := k.Observe(bounded(t), one); o.Presence != resource.Unobserved {
			t.Errorf("without a gateway: %v", o.Presence)
		}
	}
	w.g.Start()
	eventually(t, "it is ready again", func() bool { return k.Observe(bounded(t), in).Presence == resource.Present })
	w.ended(k, gone)
	if r := k.Delete(bounded(t), in); r.Outcome != resource.Done {
		t.Errorf("%v %v", r.Outcome, r.Err)
	}
	w.ended(k, in)
}

// A deletion that overtakes a creation leaves a container that the gateway knows nothing of.
func TestAnOrphanIsIdentified(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]func(k *worker, in resource.Intent) resource.Result{
		"alone": func(k *worker, in resource.Intent) resource.Result { return k.Delete(bounded(k.w.t), in) },
		"in a sweep": func(k *worker, in resource.Intent) resource.Result {
			there, err := k.List(bounded(k.w.t), in)
			if err != nil || len(there) != 1 || there[0].Resource != in.Resource || there[0].Claim != in.Claim || there[0].Name != client.Name(in.Claim) {
				k.w.t.Errorf("%+v %v", there, err)
			}
			return k.DeleteAll(bounded(k.w.t), []resource.Intent{in}, there, 8)[0].Result
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newGatewayFixture(t, gateway.Options{})
			k := w.worker()
			in := w.intent()
			landing := make(chan struct{})
			w.g.Fault(gateway.Landing, gateway.Before(func() { <-landing }))
			w.g.Fault("CreateSandbox", gateway.LoseReply())
			if r := k.Create(bounded(t), in); r.Outcome != resource.Unknown {
				t.Fatal(r.Outcome)
			}
			g, err := k.gateway(bounded(t), here)
			must(t, err)
			sb, _, err := g.Get(bounded(t), client.Name(in.Claim))
			must(t, err)
			in.Resource = sb.GetMetadata().GetId()
			_, err = g.Delete(bounded(t), client.Name(in.Claim)) // not by us: we wait for the container
			must(t, err)
			close(landing)
			eventually(t, "its container has landed", func() bool { rows, containers := w.there(in); return rows == 0 && containers == 1 })
			if o := k.Observe(bounded(t), in); o.Presence != resource.Present {
				t.Errorf("%v %v", o.Presence, o.Err)
			}
			if r := one(k, in); r.Outcome != resource.Done {
				t.Errorf("%v %v", r.Outcome, r.Err)
			}
			w.ended(k, in)
		})
	}
}

// Ours does not overtake: it waits until the container is on the engine.
func TestADeletionWaitsForTheContainer(t *testing.T) {
	t.Parallel()
	w := newGatewayFixture(t, gateway.Options{})
	k := w.worker()
	in := w.intent()
	w.g.Fault(gateway.Landing, gateway.Delay(50*time.Millisecond))
	w.g.Fault("CreateSandbox", gateway.LoseReply())
	if r := k.Create(bounded(t), in); r.Outcome != resource.Unknown {
		t.Fatal(r.Outcome)
	}
	o := k.Observe(bounded(t), in)
	if in.Resource = o.Resource; o.Presence != resource.Present {
		t.Fatalf("%v %v", o.Presence, o.Err)
	}
	if r := k.Delete(bounded(t), in); r.Outcome != resource.Done {
		t.Errorf("%v %v", r.Outcome, r.Err)
	}
	w.ended(k, in)
}

func TestAThousandSessionsAreEndedTogether(t *testing.T) {
	t.Parallel()
	w := newGatewayFixture(t, gateway.Options{})
	k := w.worker()
	const n = 1000
	list := make([]resource.Intent, n)
	for i := range list {
		list[i] = w.intent()
	}
	stranger := w.intent()
	stranger.Owner = "store-2"
	stranger = w.made(k, stranger)
	var making errgroup.Group
	making.SetLimit(32)
	for i := range list {
		making.Go(func() error {
			r := k.Create(bounded(t), list[i])
			if list[i].Resource = r.Resource; r.Outcome != resource.Done {
				return fmt.Errorf("%v: %w", r.Outcome, r.Err)
			}
			return nil
		})
	}
	must(t, making.Wait())
	before := w.g.Calls()
	there, err := k.List(bounded(t), list[0])
	if err != nil || len(there) != n {
		t.Fatalf("%d of %d: %v", len(there), n, err)
	}
	if calls := w.g.Calls()["ListSandboxes"] - before["ListSandboxes"]; calls > 2 {
		t.Errorf("a list took %d calls", calls)
	}
	most := atATime(w.g, maxParallelDeletes)
	before = w.g.Calls()
	for i, e := range k.DeleteAll(bounded(t), list, there, 4) {
		if e.Observation.Presence != resource.Absent || e.Result.Outcome != resource.Done {
			t.Fatalf("%d: %v %v %v", i, e.Result.Outcome, e.Observation.Presence, e.Observation.Err)
		}
	}
	asked := w.g.Calls()
	for name, n := range before {
		if asked[name] -= n; asked[name] == 0 {
			delete(asked, name)
		}
	}
	// Two pages, of a thousand and of none, say whose they are, and then one that none is left; the last ones may be on their way.
	lists := asked["ListSandboxes"]
	delete(asked, "ListSandboxes")
	if !maps.Equal(asked, map[string]int{"DeleteSandbox": n}) || lists < 3 || lists > 20 || most() != maxParallelDeletes {
		t.Errorf("%v and %d lists; %d deletions at a time", asked, lists, most())
	}
	for _, in := range []resource.Intent{list[0], list[n-1]} {
		w.ended(k, in)
	}
	if o := k.Observe(bounded(t), stranger); o.Presence != resource.Present {
		t.Errorf("the stranger is %v", o.Presence)
	}
}

// atATime tells how many deletions were under way at most. The first ones wait until there are as many as wanted.
func atATime(g *gateway.Gateway, wanted int) func() int {
	var mu sync.Mutex
	now, most := 0, 0
	full := make(chan struct{})
	g.Fault("DeleteSandbox", gateway.Before(func() {
		mu.Lock()
		now++
		if now > most {
			if most = now; most == wanted {
				close(full)
			}
		}
		mu.Unlock()
		select {
		case <-full:
		case <-time.After(limit):
		}
		mu.Lock()
		now--
		mu.Unlock()
	}).Times(0))
	return func() int { mu.Lock(); defer mu.Unlock(); return most }
}

func TestASweepOfWhatIsStuckAndOfAGatewayThatGoes(t *testing.T) {
	t.Parallel()
	w := newGatewayFixture(t, gateway.Options{})
	k := w.worker()
	a, b := w.made(k, w.intent()), w.made(k, w.intent())
	there, err := k.List(bounded(t), a)
	must(t, err)
	w.g.Fault(gateway.Vanishing, gateway.Before(w.g.Kill))
	for _, e := range k.DeleteAll(bounded(t), []resource.Intent{a}, there, 8) {
		if e.Observation.Presence == resource.Absent {
			t.Errorf("%+v", e)
		}
	}
	w.g.Start()
	for range 2 {
		eventually(t, "it is listed", func() bool { there, err = k.List(bounded(t), a); return err == nil })
		if e := k.DeleteAll(bounded(t), []resource.Intent{a}, there, 8)[0]; e.Observation.Presence != resource.Residue {
			t.Errorf("%v %v", e.Observation.Presence, e.Observation.Err)
		}
	}
	w.g.Reconcile()
	w.ended(k, a)
	// What is not asked for any more stays.
	w.g.Kill()
	for _, e := range k.DeleteAll(bounded(t), []resource.Intent{b}, there, 8) {
		if e.Observation.Presence != resource.Unobserved || e.Observation.Err == nil {
			t.Errorf("%+v", e)
		}
	}
	w.g.Start()
	if r := k.Delete(bounded(t), b); r.Outcome != resource.Done {
		t.Errorf("%v %v", r.Outcome, r.Err)
	}
	w.ended(k, b)
}

// An intent that cannot be read keeps no other from its end.
func TestASweepWithAnIntentThatCannotBeRead(t *testing.T) {
	t.Parallel()
	w := newGatewayFixture(t, gateway.Options{})
	k := w.worker()
	broken, good := w.made(k, w.intent()), w.made(k, w.intent())
	whole := broken.Spec
	broken.Spec = []byte("{")
	there, err := k.List(bounded(t), good)
	must(t, err)
	out := k.DeleteAll(bounded(t), []resource.Intent{broken, good}, there, 4)
	if out[0].Observation.Err == nil || out[0].Result.Outcome == resource.Done {
		t.Errorf("%+v", out[0])
	}
	if out[1].Observation.Presence != resource.Absent {
		t.Errorf("%+v", out[1])
	}
	broken.Spec = whole
	if r := k.Delete(bounded(t), broken); r.Outcome != resource.Done {
		t.Errorf("%+v", r)
	}
}

// Together, too, sandboxes are ended in whatever phase they are: a dead one, and one that is just coming up, whose container is
// waited for.
func TestASweepOfEveryPhase(t *testing.T) {
	t.Parallel()
	die := make(chan struct{}, 1)
	w := newGatewayFixture(t, gateway.Options{Run: func(p gateway.Process) int {
		select {
		case <-p.Killed:
			return 137
		case <-die:
			return 143
		}
	}})
	k := w.worker()
	dead := w.made(k, w.intent())
	die <- struct{}{}
	eventually(t, "it is ERROR", func() bool {
		return w.g.Rows()[client.Name(dead.Claim)] == wire.SandboxPhase_SANDBOX_PHASE_ERROR
	})
	landing := make(chan struct{})
	w.g.Fault(gateway.Landing, gateway.Before(func() { <-landing }))
	w.g.Fault("CreateSandbox", gateway.LoseReply())
	coming := w.intent()
	if r := k.Create(bounded(t), coming); r.Outcome != resource.Unknown {
		t.Fatalf("%v %v", r.Outcome, r.Err)
	}
	g, err := k.gateway(bounded(t), here)
	must(t, err)
	sb, _, err := g.Get(bounded(t), client.Name(coming.Claim))
	must(t, err)
	if coming.Resource = sb.GetMetadata().GetId(); phaseName(sb) != "PROVISIONING" {
		t.Fatal(phaseName(sb))
	}
	there, err := k.List(bounded(t), dead)
	if err != nil || len(there) != 2 {
		t.Fatalf("%d %v", len(there), err)
	}
	early := make(chan int, 1)
	time.AfterFunc(50*time.Millisecond, func() { early <- w.g.Calls()["DeleteSandbox"]; close(landing) })
	for _, in := range []resource.Intent{coming, dead} {
		if e := k.DeleteAll(bounded(t), []resource.Intent{in}, there, 8)[0]; e.Observation.Presence != resource.Absent || e.Result.Outcome != resource.Done {
			t.Errorf("%v %v %v", e.Result.Outcome, e.Observation.Presence, e.Observation.Err)
		}
		w.ended(k, in)
	}
	if <-early > 0 {
		t.Error("a deletion overtakes the container")
	}
}

// By its id alone nothing is deleted in a sweep: names are all that a gateway deletes by, and the labels have to be ours, too.
func TestASweepDoesNotTouchAnothersClaim(t *testing.T) {
	t.Parallel()
	w := newGatewayFixture(t, gateway.Options{})
	k := w.worker()
	other := w.made(k, w.intent())
	in := w.intent()
	in.Resource = other.Resource
	there, err := k.List(bounded(t), other)
	must(t, err)
	e := k.DeleteAll(bounded(t), []resource.Intent{in}, there, 8)[0]
	if e.Result.Outcome != resource.NotDone || !failure.Is(e.Result.Err, failure.AlreadyExists) {
		t.Errorf("%v %v", e.Result.Outcome, e.Result.Err)
	}
	if n := w.g.Calls()["DeleteSandbox"]; n > 0 || k.Observe(bounded(t), other).Presence != resource.Present {
		t.Errorf("%d deletions", n)
	}
	if r := k.Delete(bounded(t), other); r.Outcome != resource.Done {
		t.Errorf("%v %v", r.Outcome, r.Err)
	}
}

// A gateway that answers no deletion is not asked for each of many; none of them is called gone, and the next sweep ends them.
func TestASweepAtAGatewayThatDoesNotDelete(t *testing.T) {
	t.Parallel()
	w := newGatewayFixture(t, gateway.Options{})
	k := w.worker()
	list := make([]resource.Intent, 5*maxParallelDeletes)
	for i := range list {
		list[i] = w.made(k, w.intent())
	}
	there, err := k.List(bounded(t), list[0])
	must(t, err)
	w.g.Fault("DeleteSandbox", gateway.LoseRequest().Times(0))
	for i, e := range k.DeleteAll(bounded(t), list, there, 1) {
		if e.Result.Outcome == resource.Done || e.Result.Err == nil || e.Observation.Presence != resource.Present {
			t.Errorf("%d: %v %v, %v", i, e.Result.Outcome, e.Result.Err, e.Observation.Presence)
		}
	}
	if n := w.g.Calls()["DeleteSandbox"]; n >= 2*maxParallelDeletes {
		t.Errorf("it was asked %d times", n)
	}
	w.g.Faultless()
	for i, e := range k.DeleteAll(bounded(t), list, there, 1) {
		if e.Observation.Presence != resource.Absent {
			t.Errorf("%d: %v %v", i, e.Observation.Presence, e.Observation.Err)
		}
	}
}

// A sandbox whose id is recorded, and that somebody else has removed before it was counted as made, is not made again.
func TestAMadeSandboxThatVanishes(t *testing.T) {
	t.Parallel()
	w := newGatewayFixture(t, gateway.Options{})
	k := w.worker()
	in := w.made(k, w.intent())
	g, err := k.gateway(bounded(t), here)
	must(t, err)
	_, err = g.Delete(bounded(t), client.Name(in.Claim))
	must(t, err)
	eventually(t, "it is gone", func() bool { rows, containers := w.there(in); return rows+containers == 0 })
	if r := k.Resolve(bounded(t), in); r.Outcome != resource.NotDone || !failure.Is(r.Err, failure.SessionLost) {
		t.Errorf("%v %v", r.Outcome, r.Err)
	}
	if n := w.g.Calls()["CreateSandbox"]; n != 1 {
		t.Errorf("%d creations", n)
	}
	w.ended(k, in)
}

// A container that somebody removes takes its session along: the gateway waits for it a while, and then has forgotten the sandbox.
func TestAContainerThatSomebodyRemoves(t *testing.T) {
	t.Parallel()
	w := newGatewayFixture(t, gateway.Options{})
	k := w.worker()
	in := w.made(k, w.intent())
	for _, c := range w.g.InMemory() {
		if done, err := w.engine.Remove(bounded(t), c.ID); done != resource.Done {
			t.Fatal(done, err)
		}
	}
	if _, err := k.Enter(bounded(t), in, coding); !failure.Is(err, failure.SessionLost) || !strings.Contains(err.Error(), in.Resource) {
		t.Errorf("%v", err)
	}
	if n := w.g.Calls(); n["CreateSandbox"] != 1 || n["ExecSandbox"] > 0 {
		t.Errorf("%v", n)
	}
	eventually(t, "it is gone", func() bool { rows, _ := w.there(in); return rows == 0 })
	if r := k.Delete(bounded(t), in); r.Outcome != resource.Done {
		t.Errorf("%v %v", r.Outcome, r.Err)
	}
	w.ended(k, in)
}

// behind is a socket that leads to an engine, and then to another one.
func behind(t *testing.T, engine string) (endpoint string, lead func(to string)) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sock") // not the test's: the path of a socket is short
	must(t, err)
	l, err := net.Listen("unix", dir+"/s")
	must(t, err)
	var mu sync.Mutex
	var open []net.Conn
	lead = func(to string) {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range open {
			_ = c.Close()
		}
		open, engine = nil, to
	}
	t.Cleanup(func() { _ = l.Close(); lead(""); _ = os.RemoveAll(dir) })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			out, err := net.Dial("unix", strings.TrimPrefix(engine, "unix://"))
			if open = append(open, in); err == nil {
				open = append(open, out)
				go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
				go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
			}
			mu.Unlock()
		}
	}()
	return "unix://" + dir + "/s", lead
}

// That an engine has no container counts only of the one that the sandbox was made on: another one may have taken its socket
// since it was connected to.
func TestASweepAtAnotherEnginesSocket(t *testing.T) {
	t.Parallel()
	w, other := newGatewayFixture(t, gateway.Options{}), newGatewayFixture(t, gateway.Options{})
	endpoint, lead := behind(t, w.g.Engine())
	through := func() *worker {
		e := w.connect(endpoint)
		return w.worker(func(c *Config) {
			c.Connect = func(context.Context, string) (*dockerengine.Engine, error) { return e, nil }
		})
	}
	in := w.made(through(), w.intent())
	there, err := through().List(bounded(t), in)
	if err != nil || len(there) != 1 {
		t.Fatalf("%v %v", there, err)
	}
	listing, ending := through(), through()
	lead(other.g.Engine())
	if list, err := listing.List(bounded(t), in); err == nil || !strings.Contains(err.Error(), "another engine answers") {
		t.Errorf("%v %v", list, err)
	}
	if e := ending.DeleteAll(bounded(t), []resource.Intent{in}, there, 8)[0]; e.Observation.Presence != resource.Unobserved || e.Observation.Err == nil || !strings.Contains(e.Observation.Err.Error(), "another engine answers") {
		t.Errorf("%v %v", e.Observation.Presence, e.Observation.Err)
	}
	lead(w.g.Engine())
	if e := through().DeleteAll(bounded(t), []resource.Intent{in}, there, 8)[0]; e.Observation.Presence != resource.Absent {
		t.Errorf("%v %v", e.Observation.Presence, e.Observation.Err)
	}
	w.ended(w.worker(), in)
}
