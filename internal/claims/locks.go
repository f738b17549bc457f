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

// LockMode is how many holders a lock can have.
type LockMode string

// The modes: one exclusive holder, or any number of shared ones.
const (
	Exclusive LockMode = "exclusive"
	Shared    LockMode = "shared"
)

// Holder is who has a lock.
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

// Lock is a durable right that outlives processes: it ends with the release of the claim that holds it, or with DropLocks.
type Lock struct {
	Key     string   `json:"key"`
	Mode    LockMode `json:"mode"`
	Holders []Holder `json:"holders"`
}

// LockRequest asks for a lock.
type LockRequest struct {
	Key    string // "workspace/<id>", "source/<dev>:<ino>", "slot/<project>/<run>"
	Mode   LockMode
	Holder string // taking a lock again changes nothing, except that the only holder can make it exclusive
	Run    string
	What   string
	Busy   failure.Kind // the kind of the failure when it cannot be had; WorkspaceBusy where empty
}

// TakeLock takes a lock, or fails at once with the kind req.Busy and the holder in the field `holder`.
func (d *Driver) TakeLock(ctx context.Context, req LockRequest) error {
	return d.o.Store.Update(ctx, func(tx store.Tx) error { return d.TakeLockTx(tx, req) })
}

// TakeLockTx is TakeLock in the caller's transaction, which must fail when this fails.
func (d *Driver) TakeLockTx(tx store.Tx, req LockRequest) error {
	if req.Key == "" || req.Holder == "" || (req.Mode != Exclusive && req.Mode != Shared) {
		return failure.New(failure.Internal, "a lock needs key, holder and mode: %+v", req)
	}
	var h Lock
	if _, err := tx.Get(store.Locks, req.Key, &h); err != nil {
		return err
	}
	mine := slices.IndexFunc(h.Holders, func(o Holder) bool { return o.ID == req.Holder })
	other := slices.IndexFunc(h.Holders, func(o Holder) bool { return o.ID != req.Holder })
	if other >= 0 && (req.Mode == Exclusive || h.Mode == Exclusive) {
		return lockConflict(req, h.Holders[other], d.o.Now())
	}
	if mine < 0 {
		h.Holders = append(h.Holders, Holder{ID: req.Holder, Run: req.Run, What: req.What, Since: d.o.Now().UTC()})
		h.Mode = req.Mode
	} else if req.Mode == Exclusive {
		h.Mode = Exclusive
	}
	h.Key = req.Key
	return tx.Put(store.Locks, req.Key, h)
}

func lockConflict(req LockRequest, holder Holder, now time.Time) error {
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

// DropLocks drops all locks of a holder.
func (d *Driver) DropLocks(ctx context.Context, holder string) error {
	return d.o.Store.Update(ctx, func(tx store.Tx) error { return dropLocks(tx, holder) })
}

// DropLocksTx is DropLocks in the caller's transaction.
func (d *Driver) DropLocksTx(tx store.Tx, holder string) error { return dropLocks(tx, holder) }

func dropLocks(tx store.Tx, holder string) error {
	return tx.Each(store.Locks, "", func(key string, raw json.RawMessage) error {
		var h Lock
		if err := json.Unmarshal(raw, &h); err != nil {
			return failure.Wrap(err, failure.StoreInvalid, "read the lock %s", key)
		}
		left := slices.DeleteFunc(slices.Clone(h.Holders), func(o Holder) bool { return o.ID == holder })
		switch {
		case len(left) == len(h.Holders):
			return nil
		case len(left) == 0:
			return tx.Delete(store.Locks, key)
		default:
			h.Holders = left
			return tx.Put(store.Locks, key, h)
		}
	})
}

// ListLocks are the locks whose key starts with prefix, in the order of their keys.
func (d *Driver) ListLocks(ctx context.Context, prefix string) (locks []Lock, err error) {
	err = d.o.Store.View(ctx, func(tx store.Tx) error {
		locks, err = ListLocksTx(tx, prefix)
		return err
	})
	return locks, err
}

// ListLocksTx is ListLocks in the caller's transaction.
func ListLocksTx(tx store.Tx, prefix string) (locks []Lock, err error) {
	err = tx.Each(store.Locks, prefix, func(key string, raw json.RawMessage) error {
		var h Lock
		if err := json.Unmarshal(raw, &h); err != nil {
			return failure.Wrap(err, failure.StoreInvalid, "read the lock %s", key)
		}
		locks = append(locks, h)
		return nil
	})
	return locks, err
}
