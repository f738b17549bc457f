package openshell

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/failure"
	client "github.com/laufwerk/laufwerk/internal/openshell"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/targets"
	"github.com/laufwerk/laufwerk/internal/testkit"
	"github.com/laufwerk/laufwerk/internal/testkit/gateway"
)

// intend is an intent for a sandbox that is a container.
func (b *boxes) intend(change ...func(s *spec)) resource.Intent {
	return b.w.intent(append([]func(s *spec){func(s *spec) {
		s.Image, s.UID, s.GID, s.Binary = b.image, os.Getuid(), os.Getgid(), testkit.Binary(b.t)
	}}, change...)...)
}

// What a real engine says of a sandbox's container is compared with the intent, and each difference is seen.
func TestSandboxIsWhatWasAskedFor(t *testing.T) {
	b := newBoxes(t)
	in := b.w.made(b.worker, b.intend(func(s *spec) { s.ReadOnly, s.Resources = true, targets.Resources{CPUs: 0.5, MemoryBytes: 256 << 20} }))
	defer func() {
		if r := b.Delete(bounded(t), in); r.Outcome != resource.Done {
			t.Errorf("%v %v", r.Outcome, r.Err)
		}
		b.w.ended(b.worker, in)
	}()
	s, err := readSpec(in)
	must(t, err)
	l, err := b.locate(bounded(t), in, s)
	must(t, err)
	f := l.find(bounded(t))
	must(t, f.err)
	if err := b.verifySandbox(bounded(t), l.g, l.e, in, s, f.sandbox); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(s *spec, in *resource.Intent){
		"another workspace": func(s *spec, _ *resource.Intent) { s.Workspace = filepath.Dir(s.Workspace) },
		"another home":      func(s *spec, _ *resource.Intent) { s.Dir += "x" },
		"another access":    func(s *spec, _ *resource.Intent) { s.ReadOnly = false },
		"another binary":    func(s *spec, _ *resource.Intent) { s.Binary = "/bin/sh" },
		"another user":      func(s *spec, _ *resource.Intent) { s.UID++ },
		"another group":     func(s *spec, _ *resource.Intent) { s.GID++ },
		"another image":     func(s *spec, _ *resource.Intent) { s.Image = image },
		"less memory":       func(s *spec, _ *resource.Intent) { s.Resources.MemoryBytes-- },
		"no memory limit":   func(s *spec, _ *resource.Intent) { s.Resources.MemoryBytes = 0 },
		"more cores":        func(s *spec, _ *resource.Intent) { s.Resources.CPUs = 0.501 },
		"with credentials":  func(s *spec, _ *resource.Intent) { s.Provider = "p" },
		"another run":       func(_ *spec, in *resource.Intent) { in.Run = "r2" },
		"another owner":     func(_ *spec, in *resource.Intent) { in.Owner = "store-2" },
		"another id":        func(_ *spec, in *resource.Intent) { in.Resource = "00000000-0000-4000-8000-000000000000" },
	} {
		s, in := s, in
		change(&s, &in)
		var unfit *unusableError
		if err := b.verifySandbox(bounded(t), l.g, l.e, in, s, f.sandbox); !errors.As(err, &unfit) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Another worker compares it, too, before it uses it.
	raw := slices.Clone(in.Spec)
	next := b.another()
	in.Spec = []byte(string(raw[:len(raw)-1]) + `,"resources":{"cpus":1,"memoryBytes":268435456}}`)
	if _, err := next.Enter(bounded(t), in, coding); !failure.Is(err, failure.SessionLost) {
		t.Errorf("%v", err)
	}
	in.Spec = raw
}

func TestSandboxIsFoundAndEndedOnAnEngine(t *testing.T) {
	b := newBoxes(t)
	g := b.w.g
	for name, c := range map[string]struct {
		call  string
		fault gateway.Fault
	}{
		"create, not answered": {"CreateSandbox", gateway.LoseReply()}, "create, killed after": {"CreateSandbox", gateway.After(g.Restart)},
		"killed while it comes up": {gateway.Landing, gateway.After(g.Restart)}, "delete, not answered": {"DeleteSandbox", gateway.LoseReply()},
		"delete, lost": {"DeleteSandbox", gateway.LoseRequest()}, "delete, forgotten": {"DeleteSandbox", gateway.ForgetDelete()},
		"killed with the container": {gateway.Removing, gateway.Before(g.Restart)}, "killed with the row": {gateway.Vanishing, gateway.Before(g.Restart)},
	} {
		k := b.another()
		k.Provider.w.absent, k.Provider.w.deletion = 5*time.Second, time.Second
		g.Fault(c.call, c.fault)
		in := b.intend()
		r, _ := b.w.outcome(k.worker, in)
		rows, containers := b.w.there(in)
		if r.Outcome == resource.Unknown || rows != containers || rows > 1 || (r.Outcome == resource.Done) != (rows == 1) {
			t.Errorf("%s: %v with %d rows and %d containers: %v", name, r.Outcome, rows, containers, r.Err)
		}
		if in.Resource = r.Resource; r.Outcome == resource.Done {
			residue := false
			eventually(t, name+": it is gone", func() bool { // while a gateway starts again, a look and a deletion fail
				_ = k.Delete(bounded(t), in)
				o := k.Observe(bounded(t), in)
				if o.Presence == resource.Residue {
					residue = true
					if rows, containers := b.w.there(in); rows != 1 || containers != 0 {
						t.Errorf("%s: residue is %d rows and %d containers", name, rows, containers)
					}
					g.Reconcile()
				}
				return o.Presence == resource.Absent
			})
			if residue != (name == "killed with the row" || name == "killed with the container") {
				t.Errorf("%s: residue: %v", name, residue)
			}
		}
		g.Faultless()
		b.w.ended(k.worker, in)
	}
}

// A container that a deletion has overtaken is on the engine, and the gateway knows nothing of it.
func TestSandboxOrphansAreRemoved(t *testing.T) {
	b := newBoxes(t)
	w := b.w
	landing := make(chan struct{})
	w.g.Fault(gateway.Landing, gateway.Before(func() { <-landing }))
	w.g.Fault("CreateSandbox", gateway.LoseReply())
	in := b.intend()
	if r := b.Create(bounded(t), in); r.Outcome != resource.Unknown {
		t.Fatal(r.Outcome)
	}
	g, err := b.gateway(bounded(t), here)
	must(t, err)
	sb, _, err := g.Get(bounded(t), client.Name(in.Claim))
	must(t, err)
	in.Resource = sb.GetMetadata().GetId()
	_, err = g.Delete(bounded(t), client.Name(in.Claim))
	must(t, err)
	close(landing)
	eventually(t, "its container has landed", func() bool { rows, containers := w.there(in); return rows == 0 && containers == 1 })
	there, err := b.List(bounded(t), in)
	if err != nil || len(there) != 1 || there[0].Resource != in.Resource || there[0].Image != b.image || there[0].Created.Before(in.At.Add(-maxClockSkew)) {
		t.Errorf("%+v %v", there, err)
	}
	// It is none of the Docker target's, which has the same engine and the same store.
	list, err := owned.List(bounded(t), w.engine, resource.Intent{Owner: w.owner})
	if err != nil || len(list) != 0 {
		t.Errorf("%+v %v", list, err)
	}
	other := w.made(b.worker, b.intend())
	there, err = b.List(bounded(t), in)
	must(t, err)
	for i, e := range b.DeleteAll(bounded(t), []resource.Intent{in, other}, there, 8) {
		if e.Observation.Presence != resource.Absent {
			t.Errorf("%d: %v %v", i, e.Observation.Presence, e.Observation.Err)
		}
	}
	w.ended(b.worker, in)
	w.ended(b.worker, other)
}
