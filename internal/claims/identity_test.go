package claims_test

import (
	"context"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/store"
)

// Labels are inherited by images and copied with homes: every one must fit, and the time too.
func TestMatches(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
	c := claims.Claim{ID: "c1", Image: "sha256:1", IntentAt: at}
	c.Intent.Name, c.Intent.Owner = "lw-1", owner
	type seen struct {
		name, owner, claim, image string
		created                   time.Time
	}
	ours := seen{"lw-1", owner, "c1", "sha256:1", at.Add(time.Second)}
	tests := map[string]struct {
		change func(s *seen)
		want   bool
	}{
		"ours":                       {func(*seen) {}, true},
		"in the second of intent":    {func(s *seen) { s.created = at.Truncate(time.Second) }, true},
		"another name":               {func(s *seen) { s.name = "lw-2" }, false},
		"no name":                    {func(s *seen) { s.name = "" }, false},
		"a copied home":              {func(s *seen) { s.owner = "other" }, false},
		"no owner label":             {func(s *seen) { s.owner = "" }, false},
		"another claim":              {func(s *seen) { s.claim = "c2" }, false},
		"an image made from ours":    {func(s *seen) { s.image = "sha256:2" }, false},
		"made before it was thought": {func(s *seen) { s.created = at.Add(-time.Second) }, false},
	}
	for name, tt := range tests {
		s := ours
		tt.change(&s)
		if got := c.Matches(s.name, s.owner, s.claim, s.image, s.created); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	var zero claims.Claim
	if zero.Matches("", "", "", "", time.Time{}) {
		t.Error("nothing matches nothing")
	}
}

func TestSightings(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	mem, w := newMemory(), newFakeProvider()
	d := driver(mem, w)
	live, gone, given := allocate(t, d, "live"), allocate(t, d, "gone"), allocate(t, d, "given")
	if _, err := d.Release(ctx, gone.ID); err != nil {
		t.Fatal(err)
	}
	w.fails("delete", "forgotten", 1)
	if _, err := d.Release(ctx, given.ID); err == nil {
		t.Fatal("given was released")
	}
	if _, err := d.Abandon(ctx, given.ID, "x"); err != nil {
		t.Fatal(err)
	}
	labels := func(c claims.Claim, id string) resource.Summary {
		return resource.Summary{Resource: id, Name: c.Intent.Name, Owner: owner, Claim: c.ID, Created: c.IntentAt.Add(time.Second)}
	}
	tests := map[string]struct {
		found resource.Summary
		claim string
		late  bool
	}{
		"ours by its id":               {resource.Summary{Resource: live.Intent.Resource, Name: "whatever"}, live.ID, false},
		"our labels with another id":   {labels(live, "stranger"), "", false},
		"a late arrival":               {labels(gone, "id99"), gone.ID, true},
		"one that a person took over":  {labels(given, given.Intent.Resource), "", false},
		"a stranger's without labels":  {resource.Summary{Resource: "x", Name: live.Intent.Name}, "", false},
		"labels older than the intent": {resource.Summary{Resource: "y", Name: gone.Intent.Name, Owner: owner, Claim: gone.ID, Created: gone.IntentAt.Add(-time.Hour)}, "", false},
	}
	for name, tt := range tests {
		got, err := d.Identify(ctx, []resource.Summary{tt.found})
		if err != nil || len(got) != 1 || got[0].Claim.ID != tt.claim || got[0].Late != tt.late || got[0].HasClaim() != (tt.claim != "") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// A released claim whose resource comes after all is taken up again, and ended.
func TestLateArrival(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	mem, w := newMemory(), newFakeProvider()
	d := driver(mem, w)
	w.fails("create", "invalid", 1)
	c, err := d.Allocate(ctx, request("a"))
	if err == nil || c.State != claims.Released {
		t.Fatal(c.State, err)
	}
	late := w.add("lw-a", c.ID)
	w.things[late.id] = late
	c, err = d.Readopt(ctx, c.ID, late.id, evidence("seen by a sweep")...)
	if err != nil || c.State != claims.Deleting || c.Intent.Resource != late.id || !c.Outstanding() {
		t.Fatalf("%+v, %v", c, err)
	}
	if c, err = d.Release(ctx, c.ID); err != nil || c.State != claims.Released || len(w.things) > 0 {
		t.Fatalf("%s, %v", c.State, err)
	}
}

// The claim was released by someone else while its resource was being made: it is ended again at once.
func TestMadeAfterItWasGivenUp(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	mem, w := newMemory(), newFakeProvider()
	w.during = func(call string) {
		if call != "create" {
			return
		}
		err := mem.Update(ctx, func(tx store.Tx) error {
			var c claims.Claim
			if _, err := tx.Get(store.Claims, request("a").ID, &c); err != nil {
				return err
			}
			c.State = claims.Released
			return tx.Put(store.Claims, c.ID, c)
		})
		if err != nil {
			t.Error(err)
		}
	}
	c, err := driver(mem, w).Allocate(ctx, request("a"))
	if err == nil || c.State != claims.Released || len(w.things) > 0 {
		t.Fatalf("%s, %v, %d things", c.State, err, len(w.things))
	}
}

// C15: a resource whose claim is written after the listing began is not a stranger's.
func TestSweepReadsClaimsAfterListing(t *testing.T) {
	t.Parallel()
	mem, w := newMemory(), newFakeProvider()
	d := driver(mem, w)
	c := request("a")
	listed := []resource.Summary{{Resource: "id1", Name: "lw-a", Owner: owner, Claim: c.ID, Created: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)}}
	allocate(t, d, "a") // between the two reads
	got, err := d.Identify(context.Background(), listed)
	if err != nil || !got[0].HasClaim() || got[0].Late {
		t.Fatalf("%+v, %v", got, err)
	}
}
