package runs

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/store"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/workflow"
	"github.com/laufwerk/laufwerk/internal/workspace"
)

// KeptWorkspace is a workspace that stays although its run is over.
type KeptWorkspace struct {
	Claim string `json:"claim"`
	Why   string `json:"why"`
}

// releaseWorkspaces ends the workspaces of a run that succeeded with nothing unwritten; others are kept for clean-up.
func (s *Service) releaseWorkspaces(ctx context.Context, r Run) ([]KeptWorkspace, error) {
	list, err := s.Driver.List(ctx, claims.Filter{Run: r.ID, Kind: claims.KindWorkspace, Outstanding: true})
	if err != nil {
		return nil, err
	}
	var kept []KeptWorkspace
	var first error
	for _, c := range list {
		why, err := s.UnwrittenChanges(ctx, c)
		switch {
		case err != nil:
			why = err.Error()
		case why == "" && r.State != Succeeded:
			kept = append(kept, KeptWorkspace{Claim: c.ID, Why: "the run ended as " + r.State})
			continue
		}
		if why != "" {
			if _, err := s.Driver.SetKeep(ctx, c.ID, why); err != nil && first == nil {
				first = err
			}
			kept = append(kept, KeptWorkspace{Claim: c.ID, Why: why})
			continue
		}
		if _, err := s.Driver.Release(ctx, c.ID); err != nil && first == nil {
			first = err
		}
	}
	return kept, first
}

// UnwrittenChanges says what a workspace holds that was never written back, "" if nothing.
func (s *Service) UnwrittenChanges(ctx context.Context, c claims.Claim) (string, error) {
	return workspace.UnwrittenChanges(ctx, s.Home.WorkspaceDir(c.ID))
}

// Difference is the text of frozen content that a question of the run is bound to.
func (s *Service) Difference(_ context.Context, run, digest string) (string, error) {
	f, err := workspace.LoadFreeze(workflow.FreezeDir(s.Dir(run), digest))
	if err != nil {
		return "", err
	}
	return workspace.Render(f)
}

// RequireNotHalfApplied fails if the run has a write-back that was begun and neither finished nor undone.
func (s *Service) RequireNotHalfApplied(id string) error {
	pending, err := s.HalfApplied(id)
	if err == nil && pending != "" {
		return halfAppliedError(id)
	}
	return err
}

// DropLocks frees what a run that is over still holds itself. What its claims hold ends with them.
func (s *Service) DropLocks(ctx context.Context, run string, dry bool) error {
	if dry {
		return nil
	}
	return s.Store.Update(ctx, func(tx store.Tx) error {
		left, err := claims.ListTx(tx, claims.Filter{Run: run, Outstanding: true})
		if err != nil {
			return err
		}
		locks, err := claims.ListLocksTx(tx, "")
		if err != nil {
			return err
		}
		for _, h := range locks {
			for _, o := range h.Holders {
				if o.Run != run || slices.ContainsFunc(left, func(c claims.Claim) bool { return c.ID == o.ID && c.State != claims.Residue }) {
					continue
				}
				if err := s.Driver.DropLocksTx(tx, o.ID); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// SweepFolders removes folders of runs that never came to be: their start was killed before the store named them.
func (s *Service) SweepFolders(ctx context.Context, dry bool) ([]string, error) {
	names, err := files.Names(s.Home.RunsDir())
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	err = s.Store.View(ctx, func(tx store.Tx) error {
		return tx.Each(store.Runs, "", func(key string, _ json.RawMessage) error {
			known[key] = true
			return nil
		})
	})
	swept := []string{}
	for _, n := range names {
		if known[n] || err != nil {
			continue
		}
		l, leaseErr := s.Lease(ctx, n)
		if failure.Is(leaseErr, failure.LeaseBusy) {
			continue // it is being started
		}
		if leaseErr != nil {
			return swept, leaseErr
		}
		_, named, getErr := s.findRun(ctx, n) // since we read
		if err = getErr; err == nil && !named {
			swept = append(swept, n)
			if !dry {
				crash.Point("runs/before-sweep")
				err = s.removeFolder(ctx, n)
			}
		}
		l.Release()
	}
	return swept, err
}
