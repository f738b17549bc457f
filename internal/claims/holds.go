package claims

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/store"
)

// HoldMode says whether a hold leaves room for others.
type HoldMode string

// The modes: one exclusive holder, or any number of shared ones.
const (
	Exclusive HoldMode = "exclusive"
	Shared    HoldMode = "shared"
)

// Holder is who has a hold.
type Holder struct {
	ID    string    `json:"id"` // a claim's or a run's
	Run   string    `json:"run,omitempty"`
	What  string    `json:"what,omitempty"` // for people: "session main", "write-back"
	Since time.Time `json:"since"`
}

func (h Holder) String() string {
	s := h.What
	if s == "" {
		s = h.ID
	}
	if h.Run != "" {
		s += " of run " + h.Run
	}
	return s
}

// Hold is a durable right to something that only one, or only readers, may use. It outlives processes: what ends it is the
// release of the claim that holds it, or DropHolds.
type Hold struct {
	Key     string   `json:"key"`
	Mode    HoldMode `json:"mode"`
	Holders []Holder `json:"holders"`
}

// HoldRequest asks for a hold.
type HoldRequest struct {
	Key    string // "workspace/<id>", "source/<dev>:<ino>", "slot/<project>/<run>"
	Mode   HoldMode
	Holder string // whose it is; asking again for what one has changes nothing, except shared to exclusive for the only holder
	Run    string
	What   string
	Busy   failure.Kind // the kind of the failure when it cannot be had; WorkspaceBusy where empty
}

// TakeHold takes a hold, or fails at once with the request's kind, naming the holder in the message and the field `holder`.
func (d *Driver) TakeHold(ctx context.Context, req HoldRequest) error {
	return d.o.Store.Update(ctx, func(tx store.Tx) error { return d.TakeHoldTx(tx, req) })
}

// TakeHoldTx is TakeHold inside a transaction of the caller's, which must fail when this fails.
func (d *Driver) TakeHoldTx(tx store.Tx, req HoldRequest) error {
	if req.Key == "" || req.Holder == "" || (req.Mode != Exclusive && req.Mode != Shared) {
		return failure.New(failure.Internal, "a hold needs key, holder and mode: %+v", req)
	}
	var h Hold
	if _, err := tx.Get(store.Holds, req.Key, &h); err != nil {
		return err
	}
	mine := slices.IndexFunc(h.Holders, func(o Holder) bool { return o.ID == req.Holder })
	other := slices.IndexFunc(h.Holders, func(o Holder) bool { return o.ID != req.Holder })
	if other >= 0 && (req.Mode == Exclusive || h.Mode == Exclusive) {
		return holdConflict(req, h.Holders[other], d.o.Now())
	}
	if mine < 0 {
		h.Holders = append(h.Holders, Holder{ID: req.Holder, Run: req.Run, What: req.What, Since: d.o.Now().UTC()})
		h.Mode = req.Mode
	} else if req.Mode == Exclusive {
		h.Mode = Exclusive
	}
	h.Key = req.Key
	return tx.Put(store.Holds, req.Key, h)
}

func holdConflict(req HoldRequest, holder Holder, now time.Time) error {
	kind := req.Busy
	if kind == "" {
		kind = failure.WorkspaceBusy
	}
	e := failure.New(kind, "%s is in use by %s, for %s", req.Key, holder, max(0, now.Sub(holder.Since)).Round(time.Second)).
		WithField("holder", holder.String()) // the class WorkspaceBusy has a text
	if holder.Run != "" && holder.Run != req.Run {
		e.Hint = fmt.Sprintf("laufwerk runs show %s", holder.Run)
	}
	return e
}

// DropHolds gives up everything that a holder has. Holding nothing is no error.
func (d *Driver) DropHolds(ctx context.Context, holder string) error {
	return d.o.Store.Update(ctx, func(tx store.Tx) error { return dropHolds(tx, holder) })
}

// DropHoldsTx is DropHolds inside a transaction of the caller's.
func (d *Driver) DropHoldsTx(tx store.Tx, holder string) error { return dropHolds(tx, holder) }

func dropHolds(tx store.Tx, holder string) error {
	return tx.Each(store.Holds, "", func(key string, raw json.RawMessage) error {
		var h Hold
		if err := json.Unmarshal(raw, &h); err != nil {
			return failure.Wrap(err, failure.StoreInvalid, "read the hold %s", key)
		}
		left := slices.DeleteFunc(slices.Clone(h.Holders), func(o Holder) bool { return o.ID == holder })
		switch {
		case len(left) == len(h.Holders):
			return nil
		case len(left) == 0:
			return tx.Delete(store.Holds, key)
		default:
			h.Holders = left
			return tx.Put(store.Holds, key, h)
		}
	})
}

// ListHolds are the holds whose key starts with prefix, in the order of their keys.
func (d *Driver) ListHolds(ctx context.Context, prefix string) (holds []Hold, err error) {
	err = d.o.Store.View(ctx, func(tx store.Tx) error {
		holds, err = ListHoldsTx(tx, prefix)
		return err
	})
	return holds, err
}

// ListHoldsTx is ListHolds inside a transaction of the caller's.
func ListHoldsTx(tx store.Tx, prefix string) (holds []Hold, err error) {
	err = tx.Each(store.Holds, prefix, func(key string, raw json.RawMessage) error {
		var h Hold
		if err := json.Unmarshal(raw, &h); err != nil {
			return failure.Wrap(err, failure.StoreInvalid, "read the hold %s", key)
		}
		holds = append(holds, h)
		return nil
	})
	return holds, err
}
