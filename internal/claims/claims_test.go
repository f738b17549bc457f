package claims_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/store"
)

// fails makes the n-th and later calls of one kind go wrong, up to times times.
func (w *fakeProvider) fails(call, how string, times int) {
	before := w.fault
	w.fault = func(c string) string {
		if c == call && times > 0 {
			times--
			return how
		}
		return before(c)
	}
}

func wantFailure(t *testing.T, err error, kind failure.Kind, words ...string) {
	t.Helper()
	if !failure.Is(err, kind) {
		t.Fatalf("got %v (%s), want %s", err, failure.KindOf(err), kind)
	}
	f := failure.As(err)
	for _, w := range words {
		if !strings.Contains(err.Error()+" "+f.Hint, w) {
			t.Errorf("%v (hint %q) does not say %q", err, f.Hint, w)
		}
	}
}

func allocate(t *testing.T, d *claims.Driver, op string) claims.Claim {
	t.Helper()
	c, err := d.Allocate(context.Background(), request(op))
	if err != nil || c.State != claims.Allocated {
		t.Fatalf("allocate: %s, %v", c.State, err)
	}
	return c
}

// The whole way on a real store, with the number of its transactions.
func TestOnARealStore(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	h, err := store.OpenHome(filepath.Join(t.TempDir(), "home"), true)
	if err != nil {
		t.Fatal(err)
	}
	s := &counting{Store: store.Open(h, time.Now, "test")}
	w := newFakeProvider()
	d := claims.NewDriver(claims.Options{Store: s, Now: time.Now, Owner: s.ID, Resources: func(claims.Kind, string) (resource.Manager, bool) { return w, true }})
	id, err := s.ID(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c := allocate(t, d, "a")
	if c.Intent.Owner != id || c.Intent.Claim != c.ID || c.Intent.Run != "r1" || c.Intent.At.IsZero() || c.Intent.Resource == "" || c.AllocatedAt.IsZero() {
		t.Errorf("the claim is %+v", c)
	}
	if s.updates != 2 || s.views != 0 {
		t.Errorf("allocating took %d updates and %d views, want 2 and 0", s.updates, s.views)
	}
	s.updates, s.views = 0, 0
	c, err = d.Release(ctx, c.ID)
	if err != nil || c.State != claims.Released || c.ReleasedAt.IsZero() {
		t.Fatalf("%+v, %v", c, err)
	}
	if s.updates != 2 || s.views != 1 {
		t.Errorf("releasing took %d updates and %d views, want 2 and 1", s.updates, s.views)
	}
	stored, err := d.Get(ctx, c.ID)
	if err != nil || stored.State != claims.Released || stored.Intent.Name != "lw-a" || len(stored.Evidence) == 0 {
		t.Errorf("the tombstone is %+v, %v", stored, err)
	}
}

type counting struct {
	*store.Store
	updates, views int
}

func (c *counting) Update(ctx context.Context, fn func(store.Tx) error) error {
	c.updates++
	return c.Store.Update(ctx, fn)
}

func (c *counting) View(ctx context.Context, fn func(store.Tx) error) error {
	c.views++
	return c.Store.View(ctx, fn)
}

// C21: whatever state a claim was left in, one clean-up ends it.
func TestEveryStoredStateReachesReleased(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, state := range states() {
		for _, there := range []bool{true, false} {
			mem, w := newMemory(), newFakeProvider()
			d := driver(mem, w)
			c := allocate(t, d, "a")
			c.State = state
			if state == claims.Intent || state == claims.Unknown {
				c.Intent.Resource = ""
			}
			if !there || state == claims.Released {
				clear(w.things)
			}
			if err := mem.Update(ctx, func(tx store.Tx) error { return tx.Put(store.Claims, c.ID, c) }); err != nil {
				t.Fatal(err)
			}
			after, err := d.Release(ctx, c.ID)
			want := claims.Released
			if state == claims.Abandoned {
				want = claims.Abandoned // a person has taken it over
			}
			if err != nil || after.State != want {
				t.Errorf("%s, there %v: %s, %v", state, there, after.State, err)
			}
			if present, _ := w.of(c.ID); present > 0 && state != claims.Abandoned {
				t.Errorf("%s: it is still there", state)
			}
		}
	}
}

// C4: an acknowledged delete is not absence.
func TestAcknowledgedDeleteIsNotAbsence(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	mem, w := newMemory(), newFakeProvider()
	d := driver(mem, w)
	c := allocate(t, d, "a")
	w.fails("delete", "forgotten", 5)
	for range 5 {
		got, err := d.Release(ctx, c.ID)
		wantFailure(t, err, failure.Retained, "still deleting", "present", "laufwerk cleanup r1", c.ID)
		if got.State != claims.Deleting || failure.As(err).Fields["state"] != claims.Deleting {
			t.Fatalf("%+v", got)
		}
	}
	if got, err := d.Release(ctx, c.ID); err != nil || got.State != claims.Released {
		t.Fatalf("%s, %v", got.State, err)
	}
}

// C14: a look that fails is not absence either, and what failed is said.
func TestFailedObservationIsNotAbsence(t *testing.T) {
	t.Parallel()
	mem, w := newMemory(), newFakeProvider()
	d := driver(mem, w)
	c := allocate(t, d, "a")
	w.fails("observe", "unseen", 1)
	got, err := d.Release(context.Background(), c.ID)
	wantFailure(t, err, failure.Retained, "unseen: HTTP 500")
	if got.State != claims.Deleting {
		t.Fatal(got.State)
	}
	// Absence alone ends it now, although the thing was deleted before.
	if got, err := d.Release(context.Background(), c.ID); err != nil || got.State != claims.Released {
		t.Fatalf("%s, %v", got.State, err)
	}
}

// C1: the first signal cancels the context in the middle of a clean-up; what was learned is recorded all the same.
func TestCancelledInTheMiddleLosesNothing(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"create", "delete", "observe"} {
		mem, w := newMemory(), newFakeProvider()
		d := driver(mem, w)
		ctx, cancel := context.WithCancel(context.Background())
		w.during = func(call string) {
			if call == at {
				cancel()
			}
		}
		c, err := d.Allocate(ctx, request("a"))
		if err != nil || c.State != claims.Allocated {
			t.Fatalf("%s: %s, %v", at, c.State, err)
		}
		if at == "create" {
			continue
		}
		if c, err := d.Release(ctx, c.ID); err != nil || c.State != claims.Released {
			t.Errorf("%s: %s, %v", at, c.State, err)
		}
	}
}

func TestCancelledBeforeItBegan(t *testing.T) {
	t.Parallel()
	mem, w := newMemory(), newFakeProvider()
	ctx, cancel := context.WithCancel(context.Background())
	d := claims.NewDriver(claims.Options{Store: cancelAfterUpdate{mem, cancel}, Now: time.Now, Owner: func(context.Context) (string, error) { return owner, nil },
		Resources: func(claims.Kind, string) (resource.Manager, bool) { return w, true }})
	c, err := d.Allocate(ctx, request("a"))
	wantFailure(t, err, failure.Cancelled)
	if c.State != claims.Released || len(w.calls) > 0 {
		t.Fatalf("%s, %q", c.State, w.calls)
	}
}

// A person interrupts a run while something is being made for it, or its target is not ready: the operation is made again
// when the run goes on, under the same id, and holds what it held.
func TestWhatWasNeverMadeIsAskedForAnew(t *testing.T) {
	t.Parallel()
	mem, w := newMemory(), newFakeProvider()
	w.fails("create", "invalid", 1)
	c, err := driver(mem, w).Allocate(context.Background(), request("a"))
	wantFailure(t, err, failure.NotReady)
	if c.State != claims.Released {
		t.Fatal(c.State)
	}
	again := allocate(t, driver(mem, w), "a")
	if again.ID != c.ID || again.Attempts != 2 || !again.ReleasedAt.IsZero() || len(again.Evidence) == 0 {
		t.Errorf("%+v", again)
	}
	locks, err := driver(mem, w).ListLocks(context.Background(), "workspace/")
	if err != nil || len(locks) != 1 || locks[0].Holders[0].ID != c.ID {
		t.Errorf("%v, %v", locks, err)
	}
}

type cancelAfterUpdate struct {
	*memory
	cancel context.CancelFunc
}

func (s cancelAfterUpdate) Update(ctx context.Context, fn func(store.Tx) error) error {
	defer s.cancel()
	return s.memory.Update(ctx, fn)
}

// C5, C10: creating ends without an answer.
func TestUnknownCreate(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		create  string
		resolve int // so often nothing can be learned
		state   claims.State
		creates int
	}{
		"it came":                       {"reply lost", 0, claims.Allocated, 1},
		"it came, nobody could tell":    {"reply lost", 1, claims.Unknown, 1},
		"the request was lost":          {"lost", 0, claims.Allocated, 2},
		"it is on its way":              {"late", 0, claims.Unknown, 1},
		"it is certainly not to be had": {"invalid", 0, claims.Released, 1},
	}
	for name, tt := range tests {
		mem, w := newMemory(), newFakeProvider()
		d := driver(mem, w)
		w.fails("create", tt.create, 1)
		w.fails("resolve", "unseen", tt.resolve)
		c, err := d.Allocate(context.Background(), request("a"))
		stored, gerr := d.Get(context.Background(), c.ID)
		if gerr != nil || c.State != tt.state || stored.State != tt.state {
			t.Errorf("%s: %s, stored %s, %v", name, c.State, stored.State, err)
		}
		if n := len(slices.DeleteFunc(slices.Clone(w.calls), func(s string) bool { return !strings.HasPrefix(s, "create") })); n != tt.creates {
			t.Errorf("%s: creating was asked for %d times, want %d", name, n, tt.creates)
		}
		switch tt.state {
		case claims.Allocated:
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case claims.Unknown:
			wantFailure(t, err, failure.OutcomeUnknown, "laufwerk resume r1")
			w.settle()
			again := allocate(t, driver(mem, w), "a")
			if present, _ := w.of(again.ID); present != 1 {
				t.Errorf("%s: %d resources after a second try", name, present)
			}
		default:
			wantFailure(t, err, failure.NotReady, "no such image")
		}
	}
}

func TestAllocateAgain(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	mem, w := newMemory(), newFakeProvider()
	d := driver(mem, w)
	c := allocate(t, d, "a")
	if again := allocate(t, d, "a"); again.Intent.Resource != c.Intent.Resource {
		t.Errorf("another resource: %s, %s", c.Intent.Resource, again.Intent.Resource)
	}
	other := request("b")
	other.ID = c.ID
	_, err := d.Allocate(ctx, other)
	wantFailure(t, err, failure.Internal)
	if _, err := d.Release(ctx, c.ID); err != nil {
		t.Fatal(err)
	}
	_, err = d.Allocate(ctx, request("a"))
	wantFailure(t, err, failure.SessionLost, "released")
	workspace := request("w")
	workspace.Kind = claims.KindWorkspace
	if _, err := d.Allocate(ctx, workspace); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Release(ctx, workspace.ID); err != nil {
		t.Fatal(err)
	}
	_, err = d.Allocate(ctx, workspace)
	wantFailure(t, err, failure.WorkspaceLost)

	nobody := request("x")
	nobody.Provider = "nobody"
	_, err = d.Allocate(ctx, nobody)
	wantFailure(t, err, failure.Unsupported, "nobody")
}

// What could not be asked has to be there first; trying again alone would bring the same.
func TestWhatTheOtherSideNeedsIsSaidFirst(t *testing.T) {
	t.Parallel()
	mem, w := newMemory(), newFakeProvider()
	d := driver(mem, w)
	c := allocate(t, d, "a")
	w.fault = func(call string) string { return map[string]string{"delete": "lost", "observe": "down"}[call] }
	_, err := d.Release(context.Background(), c.ID)
	wantFailure(t, err, failure.Retained, "nothing listens there")
	if got, want := failure.As(err).Hint, "start it\n"+c.CleanupHint(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestStrangersAreNeverTouched(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	mem, w := newMemory(), newFakeProvider()
	d := driver(mem, w)

	// The name is taken before anything was made: refused, and released at once.
	stranger := w.add("lw-a", "")
	w.things[stranger.id] = stranger
	c, err := d.Allocate(ctx, request("a"))
	wantFailure(t, err, failure.AlreadyExists, "stranger")
	if c.State != claims.Released {
		t.Fatal(c.State)
	}

	// The name is taken after ours was removed behind our back: retained, and a person decides.
	b := allocate(t, d, "b")
	delete(w.things, b.Intent.Resource)
	second := w.add("lw-b", "")
	w.things[second.id] = second
	got, err := d.Release(ctx, b.ID)
	wantFailure(t, err, failure.Retained, "not laufwerk's", "laufwerk claims abandon "+b.ID)
	if got.State != claims.Deleting || len(w.touched) > 0 || len(w.things) != 2 {
		t.Fatalf("%s, touched %q", got.State, w.touched)
	}
	if got, err := d.Abandon(ctx, b.ID, "looked at it"); err != nil || got.State != claims.Abandoned || got.Reason != "looked at it" || got.Intent.Name != "lw-b" {
		t.Fatalf("%+v, %v", got, err)
	}
}

func TestAbandonNeedsATryAndAReason(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	mem, w := newMemory(), newFakeProvider()
	d := driver(mem, w)
	c := allocate(t, d, "a")
	_, err := d.Abandon(ctx, c.ID, " ")
	wantFailure(t, err, failure.Usage, "--reason")
	_, err = d.Abandon(ctx, c.ID, "no patience")
	wantFailure(t, err, failure.RunState, "never tried", "laufwerk cleanup r1")
	_, err = d.Abandon(ctx, "nothing", "x")
	wantFailure(t, err, failure.NotFound, "laufwerk claims list")
	if _, err := d.Release(ctx, c.ID); err != nil {
		t.Fatal(err)
	}
	_, err = d.Abandon(ctx, c.ID, "too late")
	wantFailure(t, err, failure.RunState, "released")
}

func TestResidueFreesTheWorkspaceAndIsObservedAgain(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	mem, w := newMemory(), newFakeProvider()
	d := driver(mem, w)
	c := allocate(t, d, "a")
	w.fails("delete", "residue", 1)
	got, err := d.Release(ctx, c.ID)
	wantFailure(t, err, failure.Retained, "still residue")
	if got.State != claims.Residue || !got.Outstanding() {
		t.Fatal(got.State)
	}
	if locks, err := d.ListLocks(ctx, ""); err != nil || len(locks) > 0 {
		t.Fatalf("holds %v, %v", locks, err)
	}
	w.settle()
	if got, err := d.Release(ctx, c.ID); err != nil || got.State != claims.Released {
		t.Fatalf("%s, %v", got.State, err)
	}
}

func TestKeptClaimIsNotReleased(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	mem, w := newMemory(), newFakeProvider()
	d := driver(mem, w)
	c := allocate(t, d, "a")
	if _, err := d.SetKeep(ctx, c.ID, "unwritten changes"); err != nil {
		t.Fatal(err)
	}
	_, err := d.Release(ctx, c.ID)
	wantFailure(t, err, failure.Retained, "unwritten changes", "--discard-changes")
	if len(w.things) != 1 {
		t.Fatal("it was deleted")
	}
	if _, err := d.SetKeep(ctx, c.ID, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Release(ctx, c.ID); err != nil {
		t.Fatal(err)
	}
}

func TestProviderThatThisVersionDoesNotKnow(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	mem, w := newMemory(), newFakeProvider()
	d := driver(mem, w)
	c := allocate(t, d, "a")
	blind := claims.NewDriver(claims.Options{Store: mem, Now: time.Now, Resources: func(claims.Kind, string) (resource.Manager, bool) { return nil, false }})
	got, err := blind.Release(ctx, c.ID)
	wantFailure(t, err, failure.Retained, `no provider "fake"`)
	if got.State != claims.Allocated {
		t.Fatal(got.State)
	}
}

func TestStoreThatFailsAfterTheCall(t *testing.T) {
	t.Parallel()
	mem, w := newMemory(), newFakeProvider()
	full := errors.New("disk full")
	broken := &failing{memory: mem, after: 1, err: failure.Wrap(full, failure.HomeInvalid, "commit")}
	d := claims.NewDriver(claims.Options{Store: broken, Now: time.Now, Owner: func(context.Context) (string, error) { return owner, nil },
		Resources: func(claims.Kind, string) (resource.Manager, bool) { return w, true }})
	_, err := d.Allocate(context.Background(), request("a"))
	wantFailure(t, err, failure.HomeInvalid, "was made, but that could not be recorded")
	c := allocate(t, driver(mem, w), "a") // the disk has space again
	if present, _ := w.of(c.ID); present != 1 {
		t.Fatalf("%d resources", present)
	}
}

type failing struct {
	*memory
	after int
	err   error
}

func (f *failing) Update(ctx context.Context, fn func(store.Tx) error) error {
	if f.after--; f.after < 0 {
		return f.err
	}
	return f.memory.Update(ctx, fn)
}

func TestEvidenceStaysBounded(t *testing.T) {
	t.Parallel()
	mem, w := newMemory(), newFakeProvider()
	d := driver(mem, w)
	c := allocate(t, d, "a")
	for i := range 200 {
		got, err := d.Readopt(context.Background(), c.ID, "", evidence("look %d", i)...)
		if err != nil {
			t.Fatal(err)
		}
		c = got
	}
	if n := len(c.Evidence); n != 32 || c.Evidence[0].What != "201 id1" || c.Evidence[31].What != "look 199" {
		t.Fatalf("%d pieces, first %v, last %v", n, c.Evidence[0], c.Evidence[n-1])
	}
}

func TestGetListByOperation(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	mem, w := newMemory(), newFakeProvider()
	d := driver(mem, w)
	a, b := allocate(t, d, "a"), allocate(t, d, "b")
	if _, err := d.Release(ctx, b.ID); err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{a.ID, a.ID[:6]} {
		if got, err := d.Get(ctx, prefix); err != nil || got.ID != a.ID {
			t.Errorf("%s: %s, %v", prefix, got.ID, err)
		}
	}
	_, err := d.Get(ctx, "c")
	wantFailure(t, err, failure.Usage, "2 claims begin with c")
	_, err = d.Get(ctx, "zz")
	wantFailure(t, err, failure.NotFound, "laufwerk claims list")
	_, err = d.Get(ctx, "")
	wantFailure(t, err, failure.Usage)
	if c, ok, err := d.ByOperation(ctx, "r1", "a"); err != nil || !ok || c.ID != a.ID {
		t.Errorf("%v %v", ok, err)
	}
	if _, ok, err := d.ByOperation(ctx, "r1", "z"); err != nil || ok {
		t.Errorf("%v %v", ok, err)
	}
	for _, tt := range []struct {
		f    claims.Filter
		want int
	}{
		{claims.Filter{}, 2}, {claims.Filter{Run: "r1"}, 2}, {claims.Filter{Run: "r2"}, 0}, {claims.Filter{Outstanding: true}, 1}, {claims.Filter{NoRun: true}, 0},
		{claims.Filter{Project: "p", States: []claims.State{claims.Released}}, 1}, {claims.Filter{Kind: claims.KindWorkspace}, 0},
	} {
		if list, err := d.List(ctx, tt.f); err != nil || len(list) != tt.want {
			t.Errorf("%+v: %d claims, %v", tt.f, len(list), err)
		}
	}
}

func TestIDs(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, run := range []string{"", "r", "r1", "r11"} {
		for _, op := range []string{"", "1", "11", "session:main"} {
			id := claims.ID(run, op)
			if len(id) != 16 || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567") != "" || id[0] != 'c' || id != claims.ID(run, op) {
				t.Errorf("id %q", id)
			}
			if other, ok := seen[id]; ok {
				t.Errorf("%q is of %s/%s and of %s", id, run, op, other)
			}
			seen[id] = fmt.Sprintf("%s/%s", run, op)
		}
	}
}
