// Package cleanup releases what runs allocated. It needs the store alone, not the project. It reports as gone only what was observed
// to be absent, and discards no changes that a person has not agreed to.
package cleanup

import (
	"context"
	"encoding/json"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/runs"
	"github.com/laufwerk/laufwerk/internal/system/lock"
)

// Request says what to clean up.
type Request struct {
	Run     string // one run, or
	All     bool   // all runs that are over, and what belongs to no run
	Cancel  bool   // runs without a live worker that are not over are cancelled first
	DryRun  bool
	Discard bool   // also workspaces with changes that were never written back
	Accept  string // "OLD=NEW": the identity that claims record of an engine, and the one that it has now
	Who     journal.Sender
}

// ClaimResult is the result for one claim.
type ClaimResult struct {
	Claim   string       `json:"claim"`
	Run     string       `json:"run,omitempty"`
	Kind    claims.Kind  `json:"kind"`
	State   claims.State `json:"state"`
	Last    string       `json:"lastObservation,omitempty"`
	Hint    string       `json:"hint,omitempty"` // the command to type, if something is left
	Kept    string       `json:"kept,omitempty"` // why it was deliberately kept
	Planned bool         `json:"planned,omitempty"`

	DeprecatedNext string `json:"next,omitempty"` // Hint, for one release
}

// SkippedRun is a run that was skipped, and why.
type SkippedRun struct {
	Run    string `json:"run"`
	State  string `json:"state"`
	Reason string `json:"reason"`
	Hint   string `json:"hint"`

	DeprecatedNext string `json:"next"` // Hint, for one release
}

// Report is the result of a clean-up.
type Report struct {
	Released []ClaimResult `json:"released"`
	Kept     []ClaimResult `json:"kept"`
	Retained []ClaimResult `json:"retained"`
	Skipped  []SkippedRun  `json:"skipped"`
	Folders  []string      `json:"folders"`            // of runs that never came to be
	Accepted int           `json:"accepted,omitempty"` // claims whose endpoint has another identity now
}

const parallel = 4

// Run cleans up. The report is complete also after an error, which is Retained where an absence could not be confirmed.
func Run(ctx context.Context, s *runs.Service, q Request) (Report, error) {
	c := cleaner{s: s, q: q, rep: Report{Released: []ClaimResult{}, Kept: []ClaimResult{}, Retained: []ClaimResult{}, Skipped: []SkippedRun{}, Folders: []string{}}}
	err := c.clean(ctx)
	return c.rep, err
}

type cleaner struct {
	s     *runs.Service
	q     Request
	sweep *claims.Sweep
	rep   Report
}

func (c *cleaner) clean(ctx context.Context) (err error) {
	if !c.q.All {
		r, err := c.s.Get(ctx, c.q.Run)
		if err != nil {
			return err
		}
		if err := c.requireOver(r); err != nil {
			return err
		}
		if err := c.acceptIdentity(ctx, claims.Filter{Run: r.ID}, []runs.Run{r}); err != nil {
			return err
		}
		if c.sweep, err = c.s.Driver.Sweep(ctx, claims.Filter{Run: r.ID}); err != nil {
			return err
		}
		w, err := c.leaseRun(ctx, r)
		if err != nil {
			return err
		}
		if err := c.cleanLeased(ctx, []*leasedRun{w}, nil); err != nil {
			return err
		}
		return retainedError(c.rep)
	}
	list, err := c.s.List(ctx, "")
	if err != nil {
		return err
	}
	if err := c.acceptIdentity(ctx, claims.Filter{}, list); err != nil {
		return err
	}
	if c.sweep, err = c.s.Driver.Sweep(ctx, claims.Filter{}); err != nil {
		return err
	}
	first, err := c.cleanRuns(ctx, list)
	if err != nil {
		return err
	}
	if c.rep.Folders, err = c.s.SweepFolders(ctx, c.q.DryRun); err != nil {
		return err
	}
	if err := retainedError(c.rep); err != nil {
		return err
	}
	return first
}

// acceptIdentity records the new identity of an engine that a person declared to be the same. Runs with a live worker are skipped.
func (c *cleaner) acceptIdentity(ctx context.Context, f claims.Filter, list []runs.Run) error {
	if c.q.Accept == "" {
		return nil
	}
	a, err := c.s.Driver.ReadAcceptance(ctx, f, c.q.Accept, c.q.Who)
	if err != nil || c.q.DryRun {
		return err
	}
	for _, r := range list {
		l, err := c.s.Lease(ctx, r.ID)
		if failure.Is(err, failure.LeaseBusy) && c.q.All {
			continue
		}
		if err != nil {
			return err
		}
		n, err := c.s.Driver.Accept(ctx, claims.Filter{Run: r.ID}, a)
		l.Release()
		if err != nil {
			return err
		}
		c.rep.Accepted += n
	}
	if c.q.All {
		n, err := c.s.Driver.Accept(ctx, claims.Filter{NoRun: true}, a)
		if err != nil {
			return err
		}
		c.rep.Accepted += n
	}
	return nil
}

// batchSize is how many runs are cleaned up at a time: their leases are held meanwhile.
const batchSize = 256

// cleanRuns cleans up runs that are over, and claims of no run. first is a failure after which the other runs were cleaned up all the
// same.
func (c *cleaner) cleanRuns(ctx context.Context, list []runs.Run) (first, err error) {
	known := map[string]bool{}
	var begun []*leasedRun
	defer func() {
		for _, w := range begun {
			w.lease.Release()
		}
	}()
	for _, r := range list {
		known[r.ID] = true
		w, err := c.leaseRun(ctx, r)
		if err == nil {
			if begun = append(begun, w); len(begun) == batchSize {
				err = c.cleanLeased(ctx, begun, nil)
				begun = nil
			}
			if err != nil {
				return nil, err
			}
			continue
		}
		if failure.Is(err, failure.NotFound) { // pruned meanwhile
			continue
		}
		f := failure.As(err)
		if ctx.Err() != nil || f == nil {
			return nil, err
		}
		if first == nil && f.Kind != failure.RunState && f.Kind != failure.LeaseBusy && f.Kind != failure.HalfApplied {
			first = err
		}
		c.rep.Skipped = append(c.rep.Skipped, SkippedRun{Run: r.ID, State: r.State, Reason: err.Error(), Hint: f.Hint, DeprecatedNext: f.Hint})
	}
	loose, err := c.s.Driver.List(ctx, claims.Filter{NoRun: true, Outstanding: true})
	if err != nil {
		return nil, err
	}
	late, err := c.lateClaims(ctx, func(one claims.Claim) bool { return !known[one.Run] }) // also of runs that were pruned
	if err != nil {
		return nil, err
	}
	last := begun
	begun = nil
	return first, c.cleanLeased(ctx, last, append(c.unusedClaims(loose), late...))
}

// unusedClaims are claims of no run that are not in use: a running preparation holds the lock that its claim names.
func (c *cleaner) unusedClaims(list []claims.Claim) (out []claims.Claim) {
	for _, one := range list {
		var named struct {
			Lock string `json:"lock"`
		}
		if json.Unmarshal(one.Extra, &named) == nil && named.Lock != "" {
			if h, locked, err := lock.Query(named.Lock); locked && err == nil {
				k := claimResult(one, one.Last, one.CleanupHint())
				k.Kept = "in use by " + h.String()
				c.rep.Kept = append(c.rep.Kept, k)
				continue
			}
		}
		out = append(out, one)
	}
	return out
}

// lateClaims readopts claims whose resources arrived after their release. With DryRun it only lists them.
func (c *cleaner) lateClaims(ctx context.Context, wanted func(claims.Claim) bool) ([]claims.Claim, error) {
	if !c.q.DryRun {
		return c.sweep.ReadoptLate(ctx, wanted)
	}
	var out []claims.Claim
	for _, one := range c.sweep.LateArrivals() {
		if wanted(one) {
			one.Last = "arrived late"
			out = append(out, one)
		}
	}
	return out, nil
}

func retainedError(rep Report) error {
	if len(rep.Retained) == 0 {
		return nil
	}
	first := rep.Retained[0]
	e := failure.New(failure.Retained, "the removal of %d resources could not be confirmed; the first is %s %s: %s", len(rep.Retained), first.Kind, first.Claim, first.Last)
	return e.WithHint("%s", first.Hint)
}

// leasedRun is one run under its lease.
type leasedRun struct {
	run                  runs.Run
	lease                *lock.Lock
	sessions, workspaces []claims.Claim
}

// leaseRun takes a run's lease and finds its claims.
func (c *cleaner) leaseRun(ctx context.Context, r runs.Run) (w *leasedRun, err error) {
	if err := c.requireOver(r); err != nil {
		return nil, err
	}
	if !r.Terminal() && !c.q.DryRun {
		if r, err = c.s.Cancel(ctx, r.ID, "cleanup --cancel", false, c.q.Who); err != nil && !r.Terminal() {
			return nil, err // a doubt keeps no run from its end, and is told of the claim below
		}
	}
	w = &leasedRun{run: r}
	if w.lease, err = c.s.Lease(ctx, r.ID); err != nil {
		return nil, err
	}
	if err := c.find(ctx, w); err != nil {
		w.lease.Release()
		return nil, err
	}
	return w, nil
}

// requireOver fails for a run that is not over and will not be cancelled.
func (c *cleaner) requireOver(r runs.Run) error {
	if r.Terminal() {
		return nil
	}
	if _, live := c.s.Worker(r.ID); live || !c.q.Cancel {
		return requireFinished(c.s, r)
	}
	return nil
}

func (c *cleaner) find(ctx context.Context, w *leasedRun) error {
	if err := c.s.RequireNotHalfApplied(w.run.ID); err != nil {
		return err
	}
	late, err := c.lateClaims(ctx, func(one claims.Claim) bool { return one.Run == w.run.ID })
	if err != nil {
		return err
	}
	list, err := c.s.Driver.List(ctx, claims.Filter{Run: w.run.ID, Outstanding: true})
	if err != nil {
		return err
	}
	if c.q.DryRun {
		list = append(list, late...)
	}
	// Sessions first: while one lives, its workspace may still change.
	for _, one := range list {
		if one.Kind == claims.KindWorkspace {
			w.workspaces = append(w.workspaces, one)
		} else {
			w.sessions = append(w.sessions, one)
		}
	}
	return nil
}

// cleanLeased cleans up leased runs and claims of no run, and releases the leases.
func (c *cleaner) cleanLeased(ctx context.Context, list []*leasedRun, loose []claims.Claim) error {
	defer func() {
		for _, w := range list {
			w.lease.Release()
		}
	}()
	before := len(c.rep.Retained)
	sessions := loose
	for _, w := range list {
		sessions = append(sessions, w.sessions...)
	}
	c.release(ctx, sessions)
	living := map[string]bool{}
	for _, r := range c.rep.Retained[before:] {
		living[r.Run] = living[r.Run] || r.State != claims.Residue // of which nothing can run
	}
	var releasable []claims.Claim
	for _, w := range list {
		if living[w.run.ID] {
			for _, one := range w.workspaces {
				c.rep.Retained = append(c.rep.Retained, claimResult(one, "a session on it may still write", one.CleanupHint()))
			}
			continue
		}
		some, err := c.releasableWorkspaces(ctx, w)
		if err != nil {
			return err
		}
		releasable = append(releasable, some...)
	}
	c.release(ctx, releasable)
	for _, w := range list {
		if living[w.run.ID] {
			continue
		}
		if err := c.s.DropLocks(ctx, w.run.ID, c.q.DryRun); err != nil {
			return err
		}
	}
	return nil
}

// releasableWorkspaces are the workspaces of a run that need not be kept. It reports why the others are.
func (c *cleaner) releasableWorkspaces(ctx context.Context, w *leasedRun) (releasable []claims.Claim, err error) {
	for _, one := range w.workspaces {
		why, err := c.s.UnwrittenChanges(ctx, one)
		if err != nil && !c.q.Discard {
			c.rep.Retained = append(c.rep.Retained, claimResult(one, err.Error(), one.CleanupHint()+" --discard-changes"))
			continue
		}
		if why != "" && !c.q.Discard {
			if one, err = keepWorkspace(ctx, c.s, one, why, c.q.DryRun); err != nil {
				return nil, err
			}
			k := claimResult(one, one.Last, one.CleanupHint())
			k.Kept = why
			c.rep.Kept = append(c.rep.Kept, k)
			continue
		}
		if one.Keep != "" {
			if one, err = keepWorkspace(ctx, c.s, one, "", c.q.DryRun); err != nil {
				return nil, err
			}
		}
		releasable = append(releasable, one)
	}
	return releasable, nil
}

func keepWorkspace(ctx context.Context, s *runs.Service, c claims.Claim, why string, dry bool) (claims.Claim, error) {
	if dry || c.Keep == why {
		c.Keep = why
		return c, nil
	}
	return s.Driver.SetKeep(ctx, c.ID, why)
}

func requireFinished(s *runs.Service, r runs.Run) error {
	e := failure.New(failure.RunState, "run %s is %s and has not ended", r.ID, r.State)
	if w, live := s.Worker(r.ID); live {
		e.Message += "; its worker is " + w.String()
		return e.WithHint("laufwerk runs cancel %s && laufwerk cleanup %s", r.ID, r.ID)
	}
	return e.WithHint("laufwerk resume %s\nlaufwerk runs cancel %s && laufwerk cleanup %s", r.ID, r.ID, r.ID)
}

func claimResult(c claims.Claim, last, next string) ClaimResult {
	return ClaimResult{Claim: c.ID, Run: c.Run, Kind: c.Kind, State: c.State, Last: last, Hint: next, DeprecatedNext: next}
}

// release releases claims, a few at a time. When ctx ends, releases under way are completed and recorded.
func (c *cleaner) release(ctx context.Context, list []claims.Claim) {
	if c.q.DryRun {
		for _, one := range list {
			r := claimResult(one, one.Last, "")
			r.Planned = true
			c.rep.Released = append(c.rep.Released, r)
		}
		return
	}
	c.sweep.Release(ctx, list, parallel, func(after claims.Claim, err error) {
		if err == nil {
			c.rep.Released = append(c.rep.Released, claimResult(after, after.Last, ""))
			return
		}
		next := after.CleanupHint()
		if f := failure.As(err); f != nil && f.Hint != "" {
			next = f.Hint
		}
		c.rep.Retained = append(c.rep.Retained, claimResult(after, err.Error(), next))
	})
}
