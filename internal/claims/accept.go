package claims

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/store"
)

// Acceptance records that a person declared an endpoint to be the same under another identity.
type Acceptance struct {
	Old string         `json:"old"`
	New string         `json:"new"`
	At  time.Time      `json:"at"`
	Who journal.Sender `json:"who"`
}

// ReadAcceptance parses OLD=NEW and checks it: outstanding claims of the filter must record OLD, which must not answer any more, and
// NEW must answer now.
func (d *Driver) ReadAcceptance(ctx context.Context, f Filter, change string, by journal.Sender) (Acceptance, error) {
	f.Outstanding = true
	list, err := d.List(ctx, f)
	if err != nil {
		return Acceptance{}, err
	}
	a := Acceptance{Who: by}
	var of Claim
	var recorded []string
	for _, c := range list {
		if _, can := d.listingManager(c); !can || slices.Contains(recorded, c.Intent.Endpoint) {
			continue
		}
		recorded = append(recorded, c.Intent.Endpoint)
		if now, ok := strings.CutPrefix(change, c.Intent.Endpoint+"="); ok && now != "" && now != c.Intent.Endpoint { // identities may have a = in them
			a.Old, a.New, of = c.Intent.Endpoint, now, c
		}
	}
	refused := func(kind failure.Kind, format string, args ...any) error {
		return failure.New(kind, "no identity is accepted: "+format, args...).WithHint("laufwerk claims list")
	}
	switch {
	case len(recorded) == 0:
		return a, refused(failure.Usage, "no claim of a resource that may exist records the identity of an engine or a gateway")
	case a.Old == "" && !strings.Contains(change, "="):
		return a, refused(failure.Usage, "%q is not OLD=NEW", change)
	case a.Old == "":
		return a, refused(failure.Usage, "%q does not begin with an identity that claims record, followed by = and another one; recorded: %s", change, strings.Join(recorded, " and "))
	}
	r, _ := d.listingManager(of)
	if _, err := r.List(ctx, of.Intent); err == nil {
		return a, refused(failure.Usage, "the %s still answers, so nothing has changed", a.Old)
	}
	in := of.Intent
	in.Endpoint = a.New
	if _, err := r.List(ctx, in); err != nil {
		e := failure.New(failure.NotReady, "no identity is accepted: the %s is not what answers now", a.New).WithHint("laufwerk doctor")
		if f := failure.As(err); f != nil && f.Fields["answers"] != nil {
			e.Message += "; it is the " + f.Fields["answers"].(string)
		} else {
			e.Err = err
		}
		return a, e
	}
	return a, nil
}

// Accept changes the recorded identity of outstanding claims of the filter in one commit, and returns their number. The caller holds
// the lease of their run.
func (d *Driver) Accept(ctx context.Context, f Filter, a Acceptance) (n int, err error) {
	f.Outstanding = true
	err = d.o.Store.Update(ctx, func(tx store.Tx) error {
		list, err := ListTx(tx, f)
		if err != nil {
			return err
		}
		a.At = d.o.Now().UTC()
		n = 0
		for _, c := range list {
			if _, can := d.listingManager(c); !can || c.Intent.Endpoint != a.Old {
				continue
			}
			c.Intent.Endpoint = a.New
			c.Accepted = append(c.Accepted, a)
			d.withEvidence(c.Last, "", resource.Evidence{What: "accepted as the same endpoint: " + a.Old + " is now " + a.New})(&c)
			if err := tx.Put(store.Claims, c.ID, c); err != nil {
				return err
			}
			n++
		}
		return nil
	})
	return n, err
}
