package claims_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/store"
)

// fakeProvider has its resources in memory. Like a real one it loses requests and replies, does things late, and says that
// it has done what it has not. It does not keep names unique and deletes by name what has no id: everything that the driver
// may not rely on.
type fakeProvider struct {
	things   map[string]*thing // by id
	next     int
	inFlight []*thing // asked for, and not there yet
	dying    []string // ids whose deletion was accepted, and has not happened yet

	fault   func(call string) string // what goes wrong with a call; "" nothing
	during  func(call string)        // what happens meanwhile
	calls   []string
	touched []string // strangers that were touched
	broken  []string // what must never happen and did
}

type thing struct {
	id, name, claim string
	listed          bool // nothing of it runs, but it is still in the list
	created         time.Time
}

func (w *fakeProvider) Lister() resource.Lister { return w }

func newFakeProvider() *fakeProvider {
	return &fakeProvider{things: map[string]*thing{}, fault: func(string) string { return "" }, during: func(string) {}}
}

// killed is what a SIGKILL of our own process looks like to the test.
type killed struct{}

func (w *fakeProvider) begin(call string, in resource.Intent) string {
	f := w.fault(call)
	w.calls = append(w.calls, fmt.Sprintf("%s %s of %s: %s", call, in.Resource, in.Claim, f))
	if f == "kill before" {
		panic(killed{})
	}
	return f
}

func (w *fakeProvider) end(fault string) {
	if fault == "kill after" {
		panic(killed{})
	}
}

func (w *fakeProvider) add(name, claim string) *thing {
	w.next++
	return &thing{id: fmt.Sprintf("id%d", w.next), name: name, claim: claim}
}

func (w *fakeProvider) named(name string) *thing {
	for _, id := range slices.Sorted(maps.Keys(w.things)) {
		if w.things[id].name == name {
			return w.things[id]
		}
	}
	return nil
}

func (w *fakeProvider) of(claim string) (present, coming int) {
	for _, t := range w.things {
		if t.claim == claim {
			present++
		}
	}
	for _, t := range w.inFlight {
		if t.claim == claim {
			coming++
		}
	}
	return present, coming
}

func evidence(format string, args ...any) []resource.Evidence {
	return []resource.Evidence{{What: fmt.Sprintf(format, args...)}}
}

func (w *fakeProvider) Create(_ context.Context, in resource.Intent) resource.Result {
	f := w.begin("create", in)
	if f == "lost" {
		return resource.Result{Err: errors.New("connection refused, perhaps")}
	}
	if t := w.named(in.Name); t != nil && t.claim != in.Claim {
		w.end(f)
		return resource.Result{Outcome: resource.NotDone, Err: failure.New(failure.AlreadyExists, "%s is a stranger's", in.Name), Evidence: evidence("409")}
	}
	if f == "invalid" {
		return resource.Result{Outcome: resource.NotDone, Err: failure.New(failure.NotReady, "no such image")}
	}
	t := w.add(in.Name, in.Claim)
	t.created = in.At
	w.inFlight = append(w.inFlight, t)
	if present, coming := w.of(in.Claim); present+coming > 1 {
		w.broken = append(w.broken, "two resources for the claim "+in.Claim)
	}
	w.during("create")
	switch f {
	case "late":
		return resource.Result{Err: context.DeadlineExceeded}
	case "late kill":
		panic(killed{})
	}
	w.arrive(t)
	w.end(f)
	if f == "reply lost" {
		return resource.Result{Err: errors.New("connection reset")}
	}
	return resource.Result{Outcome: resource.Done, Resource: t.id, Evidence: evidence("201 %s", t.id)}
}

func (w *fakeProvider) arrive(t *thing) {
	if i := slices.Index(w.inFlight, t); i >= 0 {
		w.inFlight = slices.Delete(w.inFlight, i, i+1)
		w.things[t.id] = t
	}
}

func (w *fakeProvider) Resolve(_ context.Context, in resource.Intent) resource.Result {
	f := w.begin("resolve", in)
	w.during("resolve")
	defer w.end(f)
	if f == "unseen" {
		return resource.Result{Err: errors.New("daemon unreachable")}
	}
	if _, coming := w.of(in.Claim); coming > 0 {
		return resource.Result{Err: errors.New("409, and inspect says 404"), Evidence: evidence("in flight")}
	}
	for _, t := range w.things {
		if t.claim == in.Claim {
			return resource.Result{Outcome: resource.Done, Resource: t.id, Evidence: evidence("found %s", t.id)}
		}
	}
	return resource.Result{Outcome: resource.NotDone, Evidence: evidence("nothing was made")}
}

func (w *fakeProvider) Observe(_ context.Context, in resource.Intent) resource.Observation {
	f := w.begin("observe", in)
	w.during("observe")
	defer w.end(f)
	if f == "unseen" {
		return resource.Observation{Err: errors.New("HTTP 500")}
	}
	if f == "down" {
		return resource.Observation{Err: failure.New(failure.NotReady, "nothing listens there").WithHint("start it")}
	}
	t := w.things[in.Resource]
	if in.Resource == "" {
		t = w.named(in.Name)
	}
	switch {
	case t == nil && w.named(in.Name) != nil || t != nil && t.claim != in.Claim:
		return resource.Observation{Presence: resource.Foreign, Evidence: evidence("a stranger's")}
	case t == nil:
		// Also while it is in flight: one "not found" proves nothing, but it is what one gets.
		return resource.Observation{Presence: resource.Absent, Evidence: evidence("404")}
	case t.listed:
		return resource.Observation{Presence: resource.Residue, Resource: t.id, Evidence: evidence("row DELETING")}
	default:
		return resource.Observation{Presence: resource.Present, Resource: t.id}
	}
}

func (w *fakeProvider) Delete(_ context.Context, in resource.Intent) resource.Result {
	f := w.begin("delete", in)
	w.during("delete")
	defer w.end(f)
	t := w.things[in.Resource]
	if in.Resource == "" {
		t = w.named(in.Name)
	}
	if t == nil {
		return resource.Result{Outcome: resource.Done, Evidence: evidence("rm -f: 204")}
	}
	if t.claim != in.Claim {
		w.touched = append(w.touched, t.id)
		return resource.Result{Outcome: resource.Done}
	}
	switch f {
	case "lost":
		return resource.Result{Err: errors.New("timeout")}
	case "forgotten":
		return resource.Result{Outcome: resource.Done, Evidence: evidence("202, and nothing happens")}
	case "refused":
		return resource.Result{Outcome: resource.NotDone, Err: errors.New("permission denied")}
	case "slow":
		w.dying = append(w.dying, t.id)
		return resource.Result{Outcome: resource.Done}
	case "residue":
		t.listed = true
		return resource.Result{Outcome: resource.Done}
	}
	delete(w.things, t.id)
	if f == "reply lost" {
		return resource.Result{Err: errors.New("connection reset")}
	}
	return resource.Result{Outcome: resource.Done}
}

func (w *fakeProvider) List(_ context.Context, in resource.Intent) ([]resource.Summary, error) {
	f := w.begin("list", in)
	w.during("list")
	defer w.end(f)
	switch f {
	case "unseen":
		return nil, errors.New("HTTP 500")
	case "unreachable":
		return nil, failure.New(failure.NotReady, "nobody listens")
	}
	var out []resource.Summary
	for _, id := range slices.Sorted(maps.Keys(w.things)) {
		t := w.things[id]
		one := resource.Summary{Resource: t.id, Name: t.name, Claim: t.claim, Created: t.created}
		if t.claim != "" {
			one.Owner = owner
		}
		out = append(out, one)
	}
	return out, nil
}

func (w *fakeProvider) ListCommand() string { return "ls" }

func (w *fakeProvider) DeleteAll(ctx context.Context, list []resource.Intent, there []resource.Summary, _ int) []resource.Deletion {
	out := make([]resource.Deletion, len(list))
	for i, in := range list {
		if slices.ContainsFunc(there, func(f resource.Summary) bool { return f.Resource == in.Resource }) {
			out[i].Result = w.Delete(ctx, in)
		}
	}
	for i, in := range list {
		out[i].Observation = w.Observe(ctx, in)
	}
	return out
}

// settle lets everything happen that was asked for.
func (w *fakeProvider) settle() {
	for _, t := range slices.Clone(w.inFlight) {
		w.arrive(t)
	}
	for _, id := range w.dying {
		delete(w.things, id)
	}
	w.dying = nil
	maps.DeleteFunc(w.things, func(_ string, t *thing) bool { return t.listed })
}

// memory is a store whose commits are atomic, without a disk.
type memory struct {
	buckets map[store.Bucket]map[string]json.RawMessage
	updates int
	views   int
	kill    func() string // "kill before" or "kill after" a commit

	committed func(what string)
}

func newMemory() *memory {
	return &memory{buckets: map[store.Bucket]map[string]json.RawMessage{}, kill: func() string { return "" }, committed: func(string) {}}
}

func (m *memory) View(ctx context.Context, fn func(store.Tx) error) error {
	m.views++
	if err := ctx.Err(); err != nil {
		return err
	}
	return fn(memoryTx(m.copy()))
}

func (m *memory) Update(ctx context.Context, fn func(store.Tx) error) error {
	m.updates++
	if err := ctx.Err(); err != nil {
		return err
	}
	k := m.kill()
	tx := m.copy()
	if err := fn(memoryTx(tx)); err != nil {
		return err
	}
	if k == "kill before" {
		panic(killed{})
	}
	for id, raw := range tx[store.Claims] {
		if string(m.buckets[store.Claims][id]) != string(raw) {
			m.committed(fmt.Sprintf("%s %s", id, raw))
		}
	}
	m.buckets = tx
	if k == "kill after" {
		panic(killed{})
	}
	return nil
}

func (m *memory) copy() map[store.Bucket]map[string]json.RawMessage {
	c := map[store.Bucket]map[string]json.RawMessage{}
	for b, records := range m.buckets {
		c[b] = maps.Clone(records)
	}
	return c
}

type memoryTx map[store.Bucket]map[string]json.RawMessage

func (t memoryTx) Get(b store.Bucket, key string, into any) (bool, error) {
	raw, ok := t[b][key]
	if !ok {
		return false, nil
	}
	return true, json.Unmarshal(raw, into)
}

func (t memoryTx) Put(b store.Bucket, key string, v any) error {
	raw, err := json.Marshal(v)
	if t[b] == nil {
		t[b] = map[string]json.RawMessage{}
	}
	t[b][key] = raw
	return err
}

func (t memoryTx) Delete(b store.Bucket, key string) error { delete(t[b], key); return nil }

func (t memoryTx) Each(b store.Bucket, prefix string, fn func(string, json.RawMessage) error) error {
	for _, k := range slices.Sorted(maps.Keys(t[b])) {
		if strings.HasPrefix(k, prefix) {
			if err := fn(k, t[b][k]); err != nil {
				return err
			}
		}
	}
	return nil
}

const owner = "0123456789abcdef"

// driver is a driver over a store and a fake provider; the clock goes on by a second at every reading.
func driver(s claims.Store, w *fakeProvider) *claims.Driver {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return claims.NewDriver(claims.Options{
		Store: s,
		Now:   func() time.Time { now = now.Add(time.Second); return now },
		Owner: func(context.Context) (string, error) { return owner, nil },
		Resources: func(_ claims.Kind, provider string) (resource.Manager, bool) {
			return w, provider == "fake"
		},
	})
}

func request(op string) claims.Request {
	return claims.Request{
		ID: claims.ID("r1", op), Kind: claims.KindSession, Provider: "fake", Run: "r1", Operation: op, Project: "p",
		Intent: resource.Intent{Name: "lw-" + op, Endpoint: "the provider"},
		Locks:  []claims.LockRequest{{Key: "workspace/" + op, Mode: claims.Exclusive, What: "session " + op}},
	}
}
