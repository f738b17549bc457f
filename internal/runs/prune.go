package runs

import (
	"context"
	"path/filepath"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/redact"
	"github.com/laufwerk/laufwerk/internal/script"
	"github.com/laufwerk/laufwerk/internal/store"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/safefs"
)

// Prune removes a run that is over and of which nothing is outstanding: its folder, its journal, its record, and with the last
// run of a project what is remembered of the project's code.
func (s *Service) Prune(ctx context.Context, id string) error {
	r, err := s.Get(ctx, id)
	if err != nil {
		return err
	}
	if !r.Terminal() {
		return failure.New(failure.RunState, "run %s is %s, and only a run that has ended can be pruned", r.ID, r.State).
			WithHint("laufwerk runs cancel %s && laufwerk cleanup %s", r.ID, r.ID)
	}
	r, l, err := s.acquireRun(ctx, r.ID)
	if err != nil {
		return err
	}
	defer l.Release()
	if err := s.RequireNotHalfApplied(r.ID); err != nil {
		return err
	}
	list, err := s.Driver.List(ctx, claims.Filter{Run: r.ID, Outstanding: true})
	if err != nil {
		return err
	}
	if len(list) > 0 {
		return failure.New(failure.Retained, "run %s still has %s", r.ID, describeAll(list)).WithHint("%s", list[0].CleanupHint())
	}
	if err := s.forgetProjects(ctx, r.ID); err != nil {
		return err
	}
	// The record goes before the folder: a folder without a record is swept, a record without a folder would be a lie.
	crash.Point("runs/before-prune")
	if err := s.Store.Update(ctx, func(tx store.Tx) error {
		if err := dropKeys(tx, r.ID); err != nil {
			return err
		}
		return tx.Delete(store.Runs, r.ID)
	}); err != nil {
		return err
	}
	crash.Point("runs/after-prune")
	return s.removeFolder(ctx, filepath.Base(s.Dir(r.ID)))
}

// forgetProjects removes the bundles of projects of which no run but this one is left.
func (s *Service) forgetProjects(ctx context.Context, pruned string) error {
	list, err := s.List(ctx, "")
	if err != nil {
		return err
	}
	var roots []string
	for _, r := range list {
		if r.ID != pruned {
			roots = append(roots, r.Root)
		}
	}
	return failure.Wrap(script.ForgetOtherBundles(s.Home.BundlesDir(), roots), failure.Retained, "remove the remembered bundles of run %s", pruned)
}

// removeFolder removes a run's folder. An agent may have written in it, and what a claim was abandoned for may be there still:
// no link is followed and no mount is crossed.
func (s *Service) removeFolder(ctx context.Context, name string) error {
	root, err := safefs.OpenRoot(s.Home.RunsDir())
	if err != nil {
		return failure.Wrap(err, failure.HomeInvalid, "open the folder of runs")
	}
	defer root.Close()
	refused, err := root.RemoveAll(ctx, name)
	if err == nil && len(refused) > 0 {
		err = failure.New(failure.Retained, "%s cannot be removed: %s; correct that, then repeat the command", redact.Line(filepath.Join(s.Home.RunsDir(), refused[0].Path)), refused[0].Why).
			WithHint("laufwerk cleanup --all")
	}
	return failure.Wrap(err, failure.Retained, "remove the folder of run %s", name)
}

func describeAll(list []claims.Claim) string {
	out := ""
	for i, c := range list {
		if i > 0 {
			out += ", "
		}
		out += string(c.Kind) + " " + c.ID + " (" + string(c.State) + ")"
	}
	return out
}

type claimLine struct {
	Run   string       `json:"run"`
	State claims.State `json:"state"`
	Keep  string       `json:"keep"`
}

func (c claimLine) isOutstanding() bool {
	return claims.Claim{State: c.State}.Outstanding()
}
