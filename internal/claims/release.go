package claims

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/system/crash"
)

// Release deletes a claim's resource in any state, and returns the claim, released once absence was observed. Everything else is the
// failure Retained with the state, the last observation and the next command, also for residue, which holds no lock any more. It may
// be repeated. A claim with a reason to keep it is refused. Foreign resources are never touched.
func (d *Driver) Release(ctx context.Context, id string) (Claim, error) {
	c, err := d.readClaim(ctx, id)
	if err != nil {
		return c, err
	}
	if !c.Outstanding() {
		return c, nil
	}
	if c.Keep != "" {
		return c, failure.New(failure.Retained, "the %s is kept: %s", c.name(), c.Keep).
			WithHint("%s", c.CleanupHint()).WithField("claim", c.ID).WithField("state", c.State).WithField("kept", c.Keep)
	}
	r, err := d.resources(c)
	if err != nil {
		return c, retainedError(c, err)
	}
	if c.State == Intent || c.State == Unknown {
		if c, err = d.resolveForRelease(ctx, c, r); err != nil {
			return c, err
		}
	}
	if c.State == Residue {
		if c, err = d.observe(ctx, c, r); err != nil {
			return c, err
		}
	}
	if c.State == Allocated {
		if c, err = d.advance(ctx, c, DeleteIntended, nil); err != nil {
			return c, err
		}
	}
	if c.State == Deleting {
		return d.requestDelete(ctx, c, r)
	}
	return d.releaseResult(c, nil)
}

// resolveForRelease finds out whether there is something to delete. An observation that finds nothing is no proof: then the provider
// resolves the create.
func (d *Driver) resolveForRelease(ctx context.Context, c Claim, r resource.Manager) (Claim, error) {
	crash.Point("claims/before-observe")
	if o := r.Observe(ctx, c.Intent); o.Presence == resource.Present || o.Presence == resource.Residue {
		return d.advance(ctx, c, Created, d.withEvidence(describeOutcome(o.Presence, o.Err), o.Resource, o.Evidence...))
	}
	res, err := d.resolveCreate(ctx, c, r)
	if err != nil {
		return c, retainedError(c, err)
	}
	note := d.withEvidence("resolving: "+describeOutcome(res.Outcome, res.Err), res.Resource, res.Evidence...)
	switch res.Outcome {
	case resource.Done:
		return d.advance(ctx, c, Created, note)
	case resource.NotDone:
		return d.advance(ctx, c, Rejected, note)
	default:
		if c, err = d.advance(ctx, c, OutcomeLost, note); err != nil {
			return c, err
		}
		return d.releaseResult(c, res.Err)
	}
}

// requestDelete records the intent to delete, deletes and observes.
func (d *Driver) requestDelete(ctx context.Context, c Claim, r resource.Manager) (Claim, error) {
	crash.Point("claims/before-delete")
	res := r.Delete(ctx, c.Intent)
	crash.Point("claims/after-delete")
	o := r.Observe(ctx, c.Intent)
	crash.Point("claims/after-observe")
	event := eventOf(o)
	c, err := d.advance(ctx, c, event, d.withEvidence(describeOutcome(o.Presence, o.Err), o.Resource, append(res.Evidence, o.Evidence...)...))
	if err != nil {
		return c, err
	}
	cause := cmp.Or(o.Err, res.Err)
	if res.Err != nil && failure.As(o.Err) == nil { // it says more than that something is still there
		cause = res.Err
	}
	return d.releaseResult(c, cause)
}

// observe observes a claim and records the result. Its error is that of recording.
func (d *Driver) observe(ctx context.Context, c Claim, r resource.Manager) (Claim, error) {
	crash.Point("claims/before-observe")
	o := r.Observe(ctx, c.Intent)
	crash.Point("claims/after-observe")
	event := eventOf(o)
	return d.advance(ctx, c, event, d.withEvidence(describeOutcome(o.Presence, o.Err), o.Resource, o.Evidence...))
}

func eventOf(o resource.Observation) Event {
	switch o.Presence {
	case resource.Present:
		return Created
	case resource.Absent:
		return Absent
	case resource.Residue:
		return ListedOnly
	default:
		return Inconclusive
	}
}

// advance is applyEvent where the claim may have been changed concurrently: then the stored state counts.
func (d *Driver) advance(ctx context.Context, c Claim, ev Event, edit func(*Claim)) (Claim, error) {
	next, err := d.applyEvent(ctx, c.ID, ev, edit)
	if err == nil || isIllegalTransition(err) {
		return next, nil
	}
	return c, failure.Wrap(err, failure.Retained, "record the event %s of the %s", ev, c.name())
}

func (d *Driver) releaseResult(c Claim, cause error) (Claim, error) {
	if !c.Outstanding() {
		return c, nil
	}
	return c, retainedError(c, cause)
}

// retainedError keeps the cause in its chain, whose kind says whether the endpoint did not answer or did not delete.
func retainedError(c Claim, cause error) error {
	last := c.Last
	if last == "" {
		last = "none yet"
	}
	e := failure.New(failure.Retained, "the %s is still %s; last observation: ", c.name(), c.State).
		WithHint("%s", c.CleanupHint()).WithField("claim", c.ID).WithField("state", c.State).WithField("lastObservation", last)
	e.Conditions = []failure.Condition{{ID: c.ID, Message: fmt.Sprintf("%s: %s", c.State, last)}}
	if strings.HasPrefix(last, resource.Foreign.String()) {
		e.Message = fmt.Sprintf("something that is not laufwerk's has the name of the %s, and was not touched: ", c.name())
		e.Hint = fmt.Sprintf("laufwerk claims show %[1]s\nlaufwerk claims abandon %[1]s --reason '...'   # after you have checked it yourself", c.ID)
	}
	f := failure.As(cause)
	if f != nil && f.Kind == failure.NotReady && f.Hint != "" && e.Hint == c.CleanupHint() { // before that the other side has to be there
		e.Hint = f.Hint + "\n" + c.CleanupHint()
	}
	if f != nil && f.Fields["answers"] != nil { // an endpoint of another identity
		e.Hint = fmt.Sprintf("%s   # when the recorded one answers again\n%s --accept-identity %s   # if it is the same one, moved or set up again",
			c.CleanupHint(), c.CleanupHint(), failure.Quote(fmt.Sprintf("%s=%v", c.Intent.Endpoint, f.Fields["answers"])))
	}
	e.Message += last
	if cause != nil {
		e.Err = cause
		e.Message = strings.TrimSuffix(e.Message, ": "+cause.Error())
	}
	return e
}
