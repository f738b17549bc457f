package claims

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/store"
	"github.com/laufwerk/laufwerk/internal/system/crash"
)

// Sweep is one listing of everything with this store's label on the endpoints of its claims. It finds late arrivals, and deletes many
// resources with few calls.
type Sweep struct {
	d            *Driver
	had          map[string]Claim           // recorded before the listing, by id
	listings     map[string]endpointListing // by endpoint, those that can be listed
	lateArrivals []Identification
}

// endpointListing is the listing of one endpoint, or its error.
type endpointListing struct {
	found []resource.Summary
	err   error
}

// Sweep lists. Endpoints that do not answer are no failure: Release retains their claims with the reason.
func (d *Driver) Sweep(ctx context.Context, f Filter) (*Sweep, error) {
	recorded, err := d.List(ctx, f)
	if err != nil {
		return nil, err
	}
	s := &Sweep{d: d, had: map[string]Claim{}, listings: map[string]endpointListing{}}
	for _, c := range recorded {
		s.had[c.ID] = c
		r, ok := d.listingManager(c)
		if _, looked := s.listings[c.Intent.Endpoint]; looked || !ok || c.State == Abandoned {
			continue
		}
		found, err := r.List(ctx, c.Intent)
		s.listings[c.Intent.Endpoint] = endpointListing{found, err}
		if err != nil {
			continue
		}
		sightings, err := d.Identify(ctx, found)
		if err != nil {
			return nil, err
		}
		for _, one := range sightings {
			if one.Late && one.Claim.Intent.Endpoint == c.Intent.Endpoint {
				s.lateArrivals = append(s.lateArrivals, one)
			}
		}
	}
	return s, nil
}

func (d *Driver) listingManager(c Claim) (resource.Lister, bool) {
	r, ok := d.o.Resources(c.Kind, c.Provider)
	if !ok {
		return nil, false
	}
	l := r.Lister()
	return l, l != nil
}

// LateArrivals are the claims whose resources arrived after they were released.
func (s *Sweep) LateArrivals() []Claim {
	out := make([]Claim, 0, len(s.lateArrivals))
	for _, one := range s.lateArrivals {
		out = append(out, one.Claim)
	}
	return out
}

// IsAbsent says whether a claim, read after the listing, had the same resource before it and its endpoint does not list that.
func (s *Sweep) IsAbsent(c Claim) bool {
	listing, listed := s.listings[c.Intent.Endpoint]
	_, can := s.d.listingManager(c)
	return can && listed && listing.err == nil && c.Intent.Resource != "" && s.had[c.ID].Intent.Resource == c.Intent.Resource &&
		!slices.ContainsFunc(listing.found, func(f resource.Summary) bool { return f.Resource == c.Intent.Resource })
}

// ReadoptLate readopts wanted late arrivals, which are deleting then. The caller holds the leases of their runs.
func (s *Sweep) ReadoptLate(ctx context.Context, wanted func(Claim) bool) ([]Claim, error) {
	var out []Claim
	for _, one := range s.lateArrivals {
		if !wanted(one.Claim) {
			continue
		}
		c, err := s.d.Readopt(ctx, one.Claim.ID, one.Found.Resource)
		if err != nil {
			return out, err
		}
		out = append(out, c)
	}
	return out, nil
}

// ErrInterrupted is why a claim was not tried.
var ErrInterrupted = errors.New("not tried: interrupted")

// Release releases claims, a few at a time or in bulk, and calls tell with what Driver.Release would return of each, one at a time.
// When the context ends, releases under way are completed and recorded; the failure of the others is ErrInterrupted.
func (s *Sweep) Release(ctx context.Context, list []Claim, parallel int, tell func(Claim, error)) {
	var mu sync.Mutex
	report := func(c Claim, err error) {
		mu.Lock()
		defer mu.Unlock()
		tell(c, err)
	}
	var single []Claim
	type group struct {
		kind               Kind
		provider, endpoint string
	}
	together := map[group][]Claim{}
	var order []group
	for _, c := range s.reload(ctx, list) {
		listing, listed := s.listings[c.Intent.Endpoint]
		_, can := s.d.listingManager(c)
		switch {
		case !c.Outstanding() || c.Keep != "" || !listed || !can:
			single = append(single, c)
		case failure.Is(listing.err, failure.NotReady), failure.Is(listing.err, failure.Unsupported): // asked once, and not once for every claim
			report(s.d.recordUnreachable(ctx, c, listing.err))
		case listing.err == nil && c.Intent.Resource != "" && (c.State == Allocated || c.State == Deleting):
			g := group{c.Kind, c.Provider, c.Intent.Endpoint}
			if together[g] == nil {
				order = append(order, g)
			}
			together[g] = append(together[g], c)
		default:
			single = append(single, c)
		}
	}
	for _, g := range order {
		s.d.releaseAll(ctx, together[g], s.listings[g.endpoint].found, parallel, report)
	}
	forEachParallel(len(single), parallel, func(i int) {
		if ctx.Err() != nil { // while it waited for its turn
			report(single[i], ErrInterrupted)
			return
		}
		report(s.d.Release(context.WithoutCancel(ctx), single[i].ID))
	})
}

// forEachParallel runs at most parallel calls at a time; with 1 it uses the caller's goroutine.
func forEachParallel(n, parallel int, do func(i int)) {
	var g errgroup.Group
	g.SetLimit(parallel)
	for i := range n {
		if parallel == 1 {
			do(i)
			continue
		}
		g.Go(func() error { do(i); return nil })
	}
	_ = g.Wait()
}

// reload reads claims again, and keeps those that cannot be read.
func (s *Sweep) reload(ctx context.Context, list []Claim) []Claim {
	out := slices.Clone(list)
	_ = s.d.o.Store.View(ctx, func(tx store.Tx) error { // Release will fail the same way, and say so
		for i := range out {
			var c Claim
			if loadClaim(tx, out[i].ID, &c) == nil {
				out[i] = c
			}
		}
		return nil
	})
	return out
}

// recordUnreachable records that the endpoint of a claim to delete did not answer.
func (d *Driver) recordUnreachable(ctx context.Context, c Claim, why error) (Claim, error) {
	var err error
	if c.State == Allocated {
		if c, err = d.advance(ctx, c, DeleteIntended, nil); err != nil {
			return c, err
		}
	}
	if c, err = d.advance(ctx, c, Inconclusive, d.withEvidence(describeOutcome(resource.Unobserved, why), "")); err != nil {
		return c, err
	}
	return d.releaseResult(c, why)
}

// releaseAll is Release for allocated and deleting claims of one endpoint.
func (d *Driver) releaseAll(ctx context.Context, list []Claim, there []resource.Summary, parallel int, tell func(Claim, error)) {
	r, _ := d.listingManager(list[0])
	var requested []Claim
	var intents []resource.Intent
	for _, c := range list {
		if ctx.Err() != nil {
			tell(c, ErrInterrupted)
			continue
		}
		if c.State == Allocated {
			var err error
			if c, err = d.advance(ctx, c, DeleteIntended, nil); err != nil || c.State != Deleting {
				tell(c, err)
				continue
			}
		}
		requested, intents = append(requested, c), append(intents, c.Intent)
	}
	if len(requested) == 0 {
		return
	}
	crash.Point("claims/before-delete-all")
	ended := r.DeleteAll(ctx, intents, there, parallel)
	crash.Point("claims/after-delete-all")
	for i, c := range requested {
		if i >= len(ended) {
			ended = append(ended, resource.Deletion{Observation: resource.Observation{Err: fmt.Errorf("the provider %s reports nothing about it", c.Provider)}})
		}
		o := ended[i].Observation
		c, err := d.advance(ctx, c, eventOf(o), d.withEvidence(describeOutcome(o.Presence, o.Err), o.Resource, append(ended[i].Result.Evidence, o.Evidence...)...))
		if err == nil {
			c, err = d.releaseResult(c, cmp.Or(o.Err, ended[i].Result.Err))
		}
		tell(c, err)
	}
}
