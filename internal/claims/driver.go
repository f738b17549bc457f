package claims

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/store"
	"github.com/laufwerk/laufwerk/internal/system/crash"
)

// commitWait bounds the recording of an observation, which an ended context of the caller must not lose.
const commitWait = 30 * time.Second

// A claim keeps its first pieces of evidence and the latest.
const (
	firstEvidence = 8
	keptEvidence  = 32
)

// Store is what the driver needs of the store. Every function that it passes is run at most once per call.
type Store interface {
	Update(ctx context.Context, fn func(store.Tx) error) error
	View(ctx context.Context, fn func(store.Tx) error) error
}

// Options are what a driver works with.
type Options struct {
	Store     Store
	Now       func() time.Time
	Owner     func(ctx context.Context) (string, error) // the store's id
	Resources func(kind Kind, provider string) (resource.Manager, bool)
}

// Driver runs the protocol intent → call → commit for all kinds of resources. Its methods may be called concurrently for different
// claims; for one claim the caller holds the run's lease or knows that no worker does. Inside a store transaction only methods that
// take a store.Tx may be called.
type Driver struct{ o Options }

// NewDriver makes a driver.
func NewDriver(o Options) *Driver { return &Driver{o: o} }

// illegalTransition is an event that the table does not allow: the claim was changed concurrently.
type illegalTransition struct {
	state State
	event Event
}

func (e *illegalTransition) Error() string {
	return fmt.Sprintf("a claim that is %s cannot take the event %s", e.state, e.event)
}

func isIllegalTransition(err error) bool { return errors.As(err, new(*illegalTransition)) }

// applyEvent applies an event and its consequences to the stored claim in one commit. It returns the stored claim, also where the
// event was illegal.
func (d *Driver) applyEvent(ctx context.Context, id string, ev Event, edit func(*Claim)) (Claim, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitWait)
	defer cancel()
	var c Claim
	var no *illegalTransition
	crash.Point("claims/before-" + string(ev))
	err := d.o.Store.Update(ctx, func(tx store.Tx) error {
		if err := loadClaim(tx, id, &c); err != nil {
			return err
		}
		next, ok := Next(c.State, ev)
		if !ok {
			no = &illegalTransition{c.State, ev}
			return nil
		}
		now := d.o.Now().UTC()
		if next != c.State {
			c.recordTransition(next, now)
		}
		if edit != nil {
			edit(&c)
		}
		if next == Released || next == Residue || next == Abandoned {
			if err := dropLocks(tx, c.ID); err != nil {
				return err
			}
		}
		return tx.Put(store.Claims, c.ID, c)
	})
	crash.Point("claims/after-" + string(ev))
	if err != nil {
		return c, err
	}
	if no != nil {
		return c, no
	}
	return c, nil
}

func (c *Claim) recordTransition(s State, now time.Time) {
	c.State = s
	switch s {
	case Allocated:
		c.AllocatedAt = now
	case Deleting:
		c.DeletingAt, c.ReleasedAt = now, time.Time{}
	case Released:
		c.ReleasedAt = now
	}
}

func loadClaim(tx store.Tx, id string, c *Claim) error {
	*c = Claim{}
	ok, err := tx.Get(store.Claims, id, c)
	if err == nil && !ok {
		return notFound(id)
	}
	return err
}

func notFound(id string) error {
	return failure.New(failure.NotFound, "there is no claim %s", id).WithHint("laufwerk claims list")
}

func (d *Driver) readClaim(ctx context.Context, id string) (c Claim, err error) {
	err = d.o.Store.View(ctx, func(tx store.Tx) error { return loadClaim(tx, id, &c) })
	return c, err
}

func (d *Driver) resources(c Claim) (resource.Manager, error) {
	r, ok := d.o.Resources(c.Kind, c.Provider)
	if !ok {
		return nil, failure.New(failure.Unsupported, "this version of laufwerk cannot reach the %s %s: it has no provider %q", c.Kind, c.ID, c.Provider).
			WithHint("use the version that created it (laufwerk claims show %s shows when)", c.ID)
	}
	return r, nil
}

// withEvidence records the evidence of a call or an observation.
func (d *Driver) withEvidence(last, id string, evidence ...resource.Evidence) func(*Claim) {
	return func(c *Claim) {
		c.Last = last
		if id != "" {
			c.Intent.Resource = id
		}
		for _, e := range evidence {
			if e.At.IsZero() {
				e.At = d.o.Now()
			}
			e.At = e.At.UTC()
			if n := len(c.Evidence); n > 0 && c.Evidence[n-1].What == e.What {
				c.Evidence[n-1].At = e.At
				continue
			}
			c.Evidence = append(c.Evidence, e)
		}
		if n := len(c.Evidence); n > keptEvidence {
			c.Evidence = append(c.Evidence[:firstEvidence:firstEvidence], c.Evidence[n-(keptEvidence-firstEvidence):]...)
		}
	}
}

// describeOutcome describes an outcome in one sentence for a claim's last observation.
func describeOutcome(what fmt.Stringer, err error) string {
	if err == nil {
		return what.String()
	}
	return what.String() + ": " + err.Error()
}

// name is the claim in messages. A workspace has no name but its claim's id.
func (c Claim) name() string {
	if c.Kind == KindWorkspace && c.Intent.Name == c.ID {
		return string(c.Kind) + " " + c.ID
	}
	at := ""
	if c.Intent.Endpoint != "" {
		at = " at " + c.Intent.Endpoint
	}
	return fmt.Sprintf("%s %s (claim %s%s)", c.Kind, c.Intent.Name, c.ID, at)
}

// CleanupHint is the command that tries to release a claim again.
func (c Claim) CleanupHint() string {
	switch {
	case c.Run == "":
		return "laufwerk cleanup --all"
	case c.Keep != "":
		return "laufwerk diff " + c.Run + "\nlaufwerk cleanup " + c.Run + " --discard-changes"
	}
	return "laufwerk cleanup " + c.Run
}

func decodeClaim(raw json.RawMessage, c *Claim) error {
	*c = Claim{}
	if err := json.Unmarshal(raw, c); err != nil {
		return failure.Wrap(err, failure.StoreInvalid, "read a claim")
	}
	return nil
}
