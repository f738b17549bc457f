package claims

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"strings"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/store"
	"github.com/laufwerk/laufwerk/internal/system/crash"
)

// ID is the claim's id for an operation of a run: 16 lower-case letters and digits, the first one a letter. It is derived, so that a
// resume finds the same claim.
func ID(run, operation string) string {
	sum := sha256.Sum256([]byte(run + "\x00" + operation))
	return "c" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:15]
}

// Request asks for a resource.
type Request struct {
	ID          string // of ID(Run, Operation)
	Kind        Kind
	Provider    string
	Target      string
	Fingerprint string
	Run         string
	Operation   string
	Project     string
	Image       string          // the image that the resource must be made from, "" where there are none
	Intent      resource.Intent // Name, Endpoint and Spec; the driver fills in the rest
	Locks       []LockRequest   // taken together with the intent, all or nothing; an empty Holder is the claim
	Extra       json.RawMessage
}

// Allocate creates the resource of a request, or continues what an earlier process began for the same id. It returns an allocated
// claim, or a failure: that of a lock (nothing was begun); the provider's when certainly nothing was created (the claim is released);
// OutcomeUnknown when that is not known (a later Allocate or Release resolves it); SessionLost or WorkspaceLost when the resource is
// gone or being deleted.
func (d *Driver) Allocate(ctx context.Context, req Request) (Claim, error) {
	r, err := d.resources(Claim{ID: req.ID, Kind: req.Kind, Provider: req.Provider})
	if err != nil {
		return Claim{}, err
	}
	c, existed, err := d.recordIntent(ctx, req)
	if err != nil {
		return Claim{}, err
	}
	switch {
	case !existed:
		return d.create(ctx, c, r)
	case c.State == Intent, c.State == Unknown:
		return d.resolveForAllocation(ctx, c, r)
	default:
		return d.requireAllocated(ctx, c)
	}
}

// recordIntent commits the intent and its locks before any external call.
func (d *Driver) recordIntent(ctx context.Context, req Request) (c Claim, existed bool, err error) {
	owner, err := d.o.Owner(ctx)
	if err != nil {
		return Claim{}, false, err
	}
	crash.Point("claims/before-intent")
	err = d.o.Store.Update(ctx, func(tx store.Tx) error {
		c = Claim{}
		existed, err = tx.Get(store.Claims, req.ID, &c)
		if err != nil {
			return err
		}
		if existed {
			if c.Kind != req.Kind || c.Provider != req.Provider || c.Run != req.Run || c.Operation != req.Operation {
				return failure.New(failure.Internal, "the claim %s belongs to operation %q of run %q, not to %q of %q", c.ID, c.Operation, c.Run, req.Operation, req.Run)
			}
			if !c.wasNeverAllocated() {
				return nil
			}
			existed = false
		}
		now := d.o.Now().UTC()
		c = Claim{
			ID: req.ID, Kind: req.Kind, State: Intent, Provider: req.Provider, Target: req.Target, Fingerprint: req.Fingerprint,
			Run: req.Run, Operation: req.Operation, Project: req.Project, Image: req.Image, Intent: req.Intent,
			Attempts: c.Attempts + 1, IntentAt: now, Extra: req.Extra, Evidence: c.Evidence,
		}
		c.Intent.Claim, c.Intent.Owner, c.Intent.Run, c.Intent.At, c.Intent.Resource = req.ID, owner, req.Run, now, ""
		for _, h := range req.Locks {
			if h.Holder == "" {
				h.Holder = req.ID
			}
			if h.Run == "" {
				h.Run = req.Run
			}
			if err := d.TakeLockTx(tx, h); err != nil {
				return err
			}
			c.Locks = append(c.Locks, h.Key)
		}
		return tx.Put(store.Claims, c.ID, c)
	})
	crash.Point("claims/after-intent")
	return c, existed, err
}

// wasNeverAllocated says that the intent was released before it was allocated: the operation was interrupted, or its target was not
// ready. Such an operation may allocate again.
func (c Claim) wasNeverAllocated() bool {
	_, ok := Next(c.State, Reissued)
	return ok && c.AllocatedAt.IsZero() && c.DeletingAt.IsZero()
}

// create creates the resource. The intent is durable, and nothing of an earlier attempt exists.
func (d *Driver) create(ctx context.Context, c Claim, r resource.Manager) (Claim, error) {
	if err := ctx.Err(); err != nil {
		c, cerr := d.applyEvent(ctx, c.ID, Rejected, d.withEvidence("not requested: the operation was cancelled first", ""))
		return c, errors.Join(failure.Wrap(err, failure.Cancelled, "make the %s", c.name()), cerr)
	}
	crash.Point("claims/before-create")
	res := r.Create(ctx, c.Intent)
	crash.Point("claims/after-create")
	c, lost, err := d.recordOutcome(ctx, c, res)
	if lost {
		return d.resolveForAllocation(ctx, c, r)
	}
	return c, err
}

// recordOutcome records what came of a create. lost says that nobody knows it, which is recorded then, without a failure.
func (d *Driver) recordOutcome(ctx context.Context, c Claim, res resource.Result) (_ Claim, lost bool, err error) {
	switch res.Outcome {
	case resource.Done:
		c, err = d.recordAllocated(ctx, c, res)
	case resource.NotDone:
		c, err = d.recordRejection(ctx, c, res)
	default:
		c, err = d.applyEvent(ctx, c.ID, OutcomeLost, d.withEvidence("creating: "+describeOutcome(res.Outcome, res.Err), res.Resource, res.Evidence...))
		if err == nil {
			return c, true, nil
		}
		c, err = d.checkConcurrentChange(ctx, c, err)
	}
	return c, false, err
}

// resolveForAllocation resolves an earlier attempt, and creates the resource again where that attempt certainly created nothing.
func (d *Driver) resolveForAllocation(ctx context.Context, c Claim, r resource.Manager) (Claim, error) {
	res, err := d.resolveCreate(ctx, c, r)
	if err != nil {
		return c, unknownOutcomeError(c, err)
	}
	if res.Outcome == resource.NotDone {
		c, err = d.applyEvent(ctx, c.ID, Retried, func(c *Claim) {
			d.withEvidence("resolving: "+describeOutcome(res.Outcome, res.Err), "", res.Evidence...)(c)
			c.Attempts++
			c.Intent.Resource = "" // of an earlier attempt
		})
		if err != nil {
			return d.checkConcurrentChange(ctx, c, err)
		}
		if err := ctx.Err(); err != nil {
			return d.create(ctx, c, r) // which records the failure of ctx without a call
		}
		crash.Point("claims/before-create-again")
		res = r.Create(ctx, c.Intent)
		crash.Point("claims/after-create-again")
	}
	c, lost, err := d.recordOutcome(ctx, c, res)
	if lost {
		err = unknownOutcomeError(c, res.Err)
	}
	return c, err
}

// resolveCreate asks the provider for the outcome of a create.
func (d *Driver) resolveCreate(ctx context.Context, c Claim, r resource.Manager) (resource.Result, error) {
	if err := ctx.Err(); err != nil {
		return resource.Result{}, err
	}
	crash.Point("claims/before-resolve")
	res := r.Resolve(ctx, c.Intent)
	crash.Point("claims/after-resolve")
	return res, nil
}

func (d *Driver) recordAllocated(ctx context.Context, c Claim, res resource.Result) (Claim, error) {
	done, err := d.applyEvent(ctx, c.ID, Created, d.withEvidence("present", res.Resource, res.Evidence...))
	if err != nil {
		if isIllegalTransition(err) {
			return d.checkConcurrentChange(ctx, done, err)
		}
		return c, failure.Wrap(err, failure.OutcomeUnknown, "the %s was made, but that could not be recorded", c.name())
	}
	return d.requireAllocated(ctx, done)
}

func (d *Driver) recordRejection(ctx context.Context, c Claim, res resource.Result) (Claim, error) {
	cause := failure.Wrap(res.Err, failure.Failed, "make the %s", c.name())
	if cause == nil {
		cause = failure.New(failure.Failed, "the %s was not made, and its provider gives no reason", c.name())
	}
	done, err := d.applyEvent(ctx, c.ID, Rejected, d.withEvidence("creating: "+describeOutcome(res.Outcome, res.Err), "", res.Evidence...))
	if err != nil && !isIllegalTransition(err) {
		return c, errors.Join(cause, err)
	}
	return done, cause
}

// requireAllocated returns an allocated claim. Where it was released concurrently, the resource is deleted again.
func (d *Driver) requireAllocated(ctx context.Context, c Claim) (Claim, error) {
	if c.State == Allocated {
		return c, nil
	}
	lost := lostError(c)
	if c.State == Deleting && c.AllocatedAt.IsZero() {
		ended, err := d.Release(ctx, c.ID)
		return ended, errors.Join(lost, err)
	}
	return c, lost
}

func (d *Driver) checkConcurrentChange(ctx context.Context, c Claim, err error) (Claim, error) {
	if isIllegalTransition(err) {
		return d.requireAllocated(ctx, c)
	}
	return c, unknownOutcomeError(c, err)
}

func lostError(c Claim) error {
	kind := failure.SessionLost
	if c.Kind == KindWorkspace {
		kind = failure.WorkspaceLost
	}
	return failure.New(kind, "the %s is %s: it cannot be used any more", c.name(), c.State).
		WithHint("laufwerk claims show %s", c.ID).WithField("claim", c.ID).WithField("state", c.State)
}

func unknownOutcomeError(c Claim, err error) error {
	hint := resumeHint(c)
	if cause, ok := errors.AsType[*failure.Error](err); ok && cause.Hint != "" { // what is not seen now may never be
		hint += "\n" + cause.Hint
	}
	return failure.New(failure.OutcomeUnknown, "it is not known whether the %s was made", c.name()).
		WithHint("%s", hint).WithField("claim", c.ID).WithField("state", c.State).WithCause(err)
}

func resumeHint(c Claim) string {
	if c.Run == "" {
		return c.CleanupHint()
	}
	return "laufwerk resume " + c.Run
}
