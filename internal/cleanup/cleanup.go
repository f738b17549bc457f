// Package cleanup gives up what runs allocated: it works from the store alone, from any directory, also when the project is
// gone. Nothing is reported as gone whose absence was not observed, and nothing that a person has not seen is thrown away.
package cleanup

import (
	"context"
	"slices"
	"sync"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/runs"
)

// Request says what to clean up.
type Request struct {
	Run     string // one run, or
	All     bool   // all runs that are over, and what belongs to no run
	Cancel  bool   // runs without a live worker that are not over are cancelled first
	DryRun  bool
	Discard bool // also workspaces with changes that were never written back
	Who     journal.Who
}

// Row is what became of one claim.
type Row struct {
	Claim   string       `json:"claim"`
	Run     string       `json:"run,omitempty"`
	Kind    claims.Kind  `json:"kind"`
	State   claims.State `json:"state"`
	Last    string       `json:"lastObservation,omitempty"`
	Next    string       `json:"next,omitempty"` // the command to type, where something is left
	Kept    string       `json:"kept,omitempty"` // why it was deliberately kept
	Planned bool         `json:"planned,omitempty"`
}

// Skipped is a run that was left alone, and why.
type Skipped struct {
	Run    string `json:"run"`
	State  string `json:"state"`
	Reason string `json:"reason"`
	Next   string `json:"next"`
}

// Report is what was done.
type Report struct {
	Released []Row     `json:"released"`
	Kept     []Row     `json:"kept"`
	Retained []Row     `json:"retained"`
	Skipped  []Skipped `json:"skipped"`
	Folders  []string  `json:"folders"` // of runs that never came to be
}

// parallel deletions.
const parallel = 4

// Clean does it. The report is complete also where it fails; the failure is Retained if anything could not be confirmed.
func Clean(ctx context.Context, s *runs.Service, q Request) (Report, error) {
	rep := Report{Released: []Row{}, Kept: []Row{}, Retained: []Row{}, Skipped: []Skipped{}, Folders: []string{}}
	if !q.All {
		r, err := s.Get(ctx, q.Run)
		if err != nil {
			return rep, err
		}
		if err := one(ctx, s, r, q, &rep); err != nil {
			return rep, err
		}
		return rep, verdict(rep)
	}
	list, err := s.List(ctx, "")
	if err != nil {
		return rep, err
	}
	var first error // that is no reason to leave a run alone: the others are cleaned up all the same
	for _, r := range list {
		err := one(ctx, s, r, q, &rep)
		if err == nil || failure.Is(err, failure.NotFound) { // pruned meanwhile
			continue
		}
		f := failure.As(err)
		if ctx.Err() != nil || f == nil {
			return rep, err
		}
		if first == nil && f.Kind != failure.RunState && f.Kind != failure.LeaseHeld && f.Kind != failure.HalfApplied {
			first = err
		}
		rep.Skipped = append(rep.Skipped, Skipped{Run: r.ID, State: r.State, Reason: err.Error(), Next: f.Hint})
	}
	loose, err := s.Driver.List(ctx, claims.Filter{NoRun: true, Outstanding: true})
	if err != nil {
		return rep, err
	}
	release(ctx, s, loose, q, &rep)
	if rep.Folders, err = s.SweepFolders(ctx, q.DryRun); err != nil {
		return rep, err
	}
	if err := verdict(rep); err != nil {
		return rep, err
	}
	return rep, first
}

func verdict(rep Report) error {
	if len(rep.Retained) == 0 {
		return nil
	}
	first := rep.Retained[0]
	e := failure.New(failure.Retained, "the end of %d resources could not be confirmed; the first is %s %s: %s", len(rep.Retained), first.Kind, first.Claim, first.Last)
	return e.WithHint("%s", first.Next)
}

func one(ctx context.Context, s *runs.Service, r runs.Run, q Request, rep *Report) error {
	if !r.Terminal() {
		if !q.Cancel {
			return unfinished(s, r)
		}
		if _, live := s.Worker(r.ID); live {
			return unfinished(s, r)
		}
		if !q.DryRun {
			var err error
			if r, err = s.Cancel(ctx, r.ID, "cleanup --cancel", false, q.Who); err != nil && !r.Terminal() {
				return err // a doubt keeps no run from its end, and is told of the claim below
			}
		}
	}
	l, err := s.Lease(ctx, r.ID)
	if err != nil {
		return err
	}
	defer l.Release()
	if err := s.NotHalfApplied(r.ID); err != nil {
		return err
	}
	list, err := s.Driver.List(ctx, claims.Filter{Run: r.ID, Outstanding: true})
	if err != nil {
		return err
	}
	// Sessions first: while one lives, its workspace may still change.
	var sessions, workspaces []claims.Claim
	for _, c := range list {
		if c.Kind == claims.KindWorkspace {
			workspaces = append(workspaces, c)
		} else {
			sessions = append(sessions, c)
		}
	}
	before := len(rep.Retained)
	release(ctx, s, sessions, q, rep)
	if slices.ContainsFunc(rep.Retained[before:], func(r Row) bool { return r.State != claims.Residue }) { // of which nothing can run
		for _, c := range workspaces {
			rep.Retained = append(rep.Retained, row(c, "a session over it may still write", c.CleanupHint()))
		}
		return nil
	}
	if len(sessions) == 0 && len(workspaces) == 0 {
		return s.DropHolds(ctx, r.ID, q.DryRun)
	}
	var free []claims.Claim
	for _, c := range workspaces {
		why, err := s.Unwritten(ctx, c)
		if err != nil && !q.Discard {
			rep.Retained = append(rep.Retained, row(c, err.Error(), c.CleanupHint()+" --discard-changes"))
			continue
		}
		if why != "" && !q.Discard {
			if c, err = keep(ctx, s, c, why, q.DryRun); err != nil {
				return err
			}
			k := row(c, c.Last, "laufwerk diff "+c.Run+"\n"+c.CleanupHint()+" --discard-changes")
			k.Kept = why
			rep.Kept = append(rep.Kept, k)
			continue
		}
		if c.Keep != "" {
			if c, err = keep(ctx, s, c, "", q.DryRun); err != nil {
				return err
			}
		}
		free = append(free, c)
	}
	release(ctx, s, free, q, rep)
	return s.DropHolds(ctx, r.ID, q.DryRun)
}

func keep(ctx context.Context, s *runs.Service, c claims.Claim, why string, dry bool) (claims.Claim, error) {
	if dry || c.Keep == why {
		c.Keep = why
		return c, nil
	}
	return s.Driver.SetKeep(ctx, c.ID, why)
}

func unfinished(s *runs.Service, r runs.Run) error {
	e := failure.New(failure.RunState, "run %s is %s and not over", r.ID, r.State)
	if w, live := s.Worker(r.ID); live {
		e.Message += "; its worker is " + w.String()
		return e.WithHint("laufwerk runs cancel %s && laufwerk cleanup %s", r.ID, r.ID)
	}
	return e.WithHint("laufwerk resume %s\nlaufwerk runs cancel %s && laufwerk cleanup %s", r.ID, r.ID, r.ID)
}

func row(c claims.Claim, last, next string) Row {
	return Row{Claim: c.ID, Run: c.Run, Kind: c.Kind, State: c.State, Last: last, Next: next}
}

const interrupted = "not tried: interrupted"

// release ends claims, a few at a time. It works on its own context: an interruption of the command leaves the one that
// is under way to its end, so that what was observed is recorded.
func release(ctx context.Context, s *runs.Service, list []claims.Claim, q Request, rep *Report) {
	if q.DryRun {
		for _, c := range list {
			r := row(c, c.Last, "")
			r.Planned = true
			rep.Released = append(rep.Released, r)
		}
		return
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for _, c := range list {
		slots <- struct{}{}
		if ctx.Err() != nil { // while it waited for its turn
			<-slots
			mu.Lock()
			rep.Retained = append(rep.Retained, row(c, interrupted, c.CleanupHint()))
			mu.Unlock()
			continue
		}
		wg.Go(func() {
			defer func() { <-slots }()
			after, err := s.Driver.Release(context.WithoutCancel(ctx), c.ID)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				rep.Released = append(rep.Released, row(after, after.Last, ""))
				return
			}
			next := c.CleanupHint()
			if f := failure.As(err); f != nil && f.Hint != "" {
				next = f.Hint
			}
			if after.ID == "" {
				after = c
			}
			rep.Retained = append(rep.Retained, row(after, err.Error(), next))
		})
	}
	wg.Wait()
}
