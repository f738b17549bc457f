package claims

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/store"
)

// Filter chooses claims; its zero value chooses all.
type Filter struct {
	Run         string
	NoRun       bool // only claims of no run: preparation and probes
	Project     string
	Kind        Kind
	Outstanding bool
	States      []State
}

func (f Filter) matches(c Claim) bool {
	return (f.Run == "" || c.Run == f.Run) && (!f.NoRun || c.Run == "") && (f.Project == "" || c.Project == f.Project) &&
		(f.Kind == "" || c.Kind == f.Kind) && (!f.Outstanding || c.Outstanding()) && (len(f.States) == 0 || slices.Contains(f.States, c.State))
}

// List returns the claims that a filter chooses, oldest intent first.
func (d *Driver) List(ctx context.Context, f Filter) (list []Claim, err error) {
	err = d.o.Store.View(ctx, func(tx store.Tx) error {
		list, err = ListTx(tx, f)
		return err
	})
	return list, err
}

// ListTx is List in the caller's transaction.
func ListTx(tx store.Tx, f Filter) (list []Claim, err error) {
	err = tx.Each(store.Claims, "", func(_ string, raw json.RawMessage) error {
		var c Claim
		if err := decodeClaim(raw, &c); err != nil {
			return err
		}
		if f.matches(c) {
			list = append(list, c)
		}
		return nil
	})
	slices.SortStableFunc(list, func(a, b Claim) int {
		if n := a.IntentAt.Compare(b.IntentAt); n != 0 {
			return n
		}
		return strings.Compare(a.ID, b.ID)
	})
	return list, err
}

// Get returns the claim with an id or a unique prefix of one; NotFound, or Usage where several match.
func (d *Driver) Get(ctx context.Context, idOrPrefix string) (c Claim, err error) {
	if idOrPrefix == "" {
		return c, failure.New(failure.Usage, "the id of a claim is missing").WithHint("laufwerk claims list")
	}
	var ids []string
	err = d.o.Store.View(ctx, func(tx store.Tx) error {
		return tx.Each(store.Claims, idOrPrefix, func(id string, raw json.RawMessage) error {
			ids = append(ids, id)
			if len(ids) == 1 { // the exact one sorts first
				return decodeClaim(raw, &c)
			}
			return nil
		})
	})
	switch {
	case err != nil:
		return Claim{}, err
	case len(ids) == 0:
		return Claim{}, notFound(idOrPrefix)
	case len(ids) > 1 && ids[0] != idOrPrefix:
		return Claim{}, failure.New(failure.Usage, "%d claims begin with %s: %s", len(ids), idOrPrefix, strings.Join(ids[:min(len(ids), 5)], ", ")).
			WithHint("laufwerk claims show %s", ids[0])
	}
	return c, nil
}

// ByOperation returns the claim of a run's operation; false where it has none.
func (d *Driver) ByOperation(ctx context.Context, run, operation string) (c Claim, ok bool, err error) {
	err = d.o.Store.View(ctx, func(tx store.Tx) error {
		ok, err = tx.Get(store.Claims, ID(run, operation), &c)
		return err
	})
	return c, ok, err
}

// SetKeep sets the reason to keep a claim; "" removes it.
func (d *Driver) SetKeep(ctx context.Context, id, reason string) (c Claim, err error) {
	err = d.o.Store.Update(ctx, func(tx store.Tx) error {
		if err := loadClaim(tx, id, &c); err != nil {
			return err
		}
		c.Keep = reason
		return tx.Put(store.Claims, id, c)
	})
	return c, err
}

// Abandon gives up a claim whose absence can never be proved. It is refused where a release was never tried. The returned claim has
// the exact identity of what may be left behind.
func (d *Driver) Abandon(ctx context.Context, id, reason string) (Claim, error) {
	if strings.TrimSpace(reason) == "" {
		return Claim{}, failure.New(failure.Usage, "abandoning a claim needs a reason, which is recorded permanently").
			WithHint("laufwerk claims abandon %s --reason '...'", id)
	}
	c, err := d.readClaim(ctx, id)
	if err != nil {
		return c, err
	}
	if _, ok := Next(c.State, Abandon); ok {
		c, err = d.applyEvent(ctx, id, Abandon, func(c *Claim) { c.Reason = reason })
		if err == nil || !isIllegalTransition(err) {
			return c, err
		}
	}
	e := failure.New(failure.RunState, "the %s is %s: there is nothing to abandon", c.name(), c.State).WithHint("laufwerk claims show %s", id)
	if c.State == Allocated {
		e.Message = "the " + c.name() + " is allocated, and its removal was never tried"
		e.Hint = c.CleanupHint()
	}
	return c, e
}
