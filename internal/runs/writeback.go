package runs

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/workflow"
	"github.com/laufwerk/laufwerk/internal/workspace"
	"github.com/laufwerk/laufwerk/internal/writeback"
)

// Difference is what a run changed in one workspace.
type Difference struct {
	Workspace string                    `json:"workspace"`
	Source    string                    `json:"source"`
	Digest    string                    `json:"digest"`
	Question  string                    `json:"question,omitempty"` // the key of the question that waits for an answer about it
	Changes   []workspace.SurfaceChange `json:"changes"`
	Ignored   int                       `json:"ignored"`
	Text      string                    `json:"text"`
}

// Differences are those of all workspaces that the run still has. Nothing of the run is changed: what no question has frozen
// is frozen into a temporary folder that is gone when this returns.
func (s *Service) Differences(ctx context.Context, r Run) ([]Difference, error) {
	list, err := s.Driver.List(ctx, claims.Filter{Run: r.ID, Kind: claims.KindWorkspace, Outstanding: true})
	if err != nil {
		return nil, err
	}
	questions, err := s.Questions(r.ID)
	if err != nil {
		return nil, err
	}
	out := []Difference{}
	for _, c := range list {
		d := Difference{Workspace: c.ID}
		for _, q := range questions {
			if q.Workspace == c.ID {
				d.Digest, d.Question = q.Digest, q.Key
			}
		}
		show := func(f workspace.Freeze) error {
			var err error
			d.Digest, d.Source, d.Changes, d.Ignored = f.Digest, f.Source, workspace.PublicChanges(f.Changes), f.Ignored
			d.Text, err = workspace.Render(f)
			return err
		}
		if d.Digest != "" {
			f, err := workspace.LoadFreeze(workflow.FreezeDir(s.Dir(r.ID), d.Digest))
			if err == nil {
				err = show(f)
			}
			if err != nil {
				return nil, fillRunID(err, r.ID)
			}
		} else if err := workspace.FreezeTemporarily(ctx, s.Home.WorkspaceDir(c.ID), s.Now, show); err != nil {
			return nil, fillRunID(err, r.ID)
		}
		out = append(out, d)
	}
	return out, nil
}

// WriteBackEnd is how a half-applied write-back was ended.
type WriteBackEnd struct {
	Run      string          `json:"run"`
	State    string          `json:"state"`
	Restored []string        `json:"restored,omitempty"`
	Left     []UntouchedPath `json:"left,omitempty"`
	Rescued  []string        `json:"rescued,omitempty"` // files with what somebody wrote meanwhile, which are in no other place
}

// UntouchedPath is a path that was not touched, because somebody changed it since.
type UntouchedPath struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// WriteBackSteps lists what the half-applied write-back of a run is made of.
func (s *Service) WriteBackSteps(ctx context.Context, id string) ([]writeback.Step, error) {
	r, err := s.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	dir, err := s.pendingDir(r.ID)
	if err != nil {
		return nil, err
	}
	p, err := writeback.Pending(dir)
	if err != nil {
		return nil, err
	}
	return p.Steps(), nil
}

func (s *Service) pendingDir(id string) (string, error) {
	dir, err := s.HalfApplied(id)
	if err == nil && dir == "" {
		err = failure.New(failure.RunState, "run %s has no half-applied write-back", id).WithHint("laufwerk runs show %s", id)
	}
	return dir, err
}

// EndWriteBack finishes or undoes the half-applied write-back of a run, and frees the source. noExchange is writeback.Continue's.
func (s *Service) EndWriteBack(ctx context.Context, id string, abort, noExchange bool) (WriteBackEnd, error) {
	r, err := s.Get(ctx, id)
	if err != nil {
		return WriteBackEnd{}, err
	}
	e, err := s.endWriteBack(ctx, r, abort, noExchange)
	return e, fillRunID(err, r.ID)
}

func (s *Service) endWriteBack(ctx context.Context, r Run, abort, noExchange bool) (WriteBackEnd, error) {
	l, err := s.Lease(ctx, r.ID)
	if err != nil {
		return WriteBackEnd{}, err
	}
	defer l.Release()
	dir, err := s.pendingDir(r.ID)
	if err != nil {
		return WriteBackEnd{}, err
	}
	e := WriteBackEnd{Run: r.ID, State: "done"}
	if abort {
		var rep writeback.AbortReport
		e.State = "undone"
		rep, err = writeback.Abort(ctx, dir)
		e.Restored, e.Rescued = rep.Restored, rep.Rescued
		for _, left := range rep.Left {
			e.Left = append(e.Left, UntouchedPath(left))
		}
	} else {
		err = writeback.Continue(ctx, dir, noExchange)
	}
	if p, pendingErr := writeback.Pending(dir); p != nil || pendingErr != nil {
		return e, errors.Join(err, pendingErr)
	}
	if freed := s.releaseSource(ctx, r.ID, filepath.Base(dir)); err == nil {
		err = freed
	}
	return e, err
}

// releaseSource gives up what a run's write-back holds: the one whose plan is in the folder, or all of them with "".
func (s *Service) releaseSource(ctx context.Context, run, folder string) error {
	locks, err := s.Driver.ListLocks(ctx, "source/")
	if err != nil {
		return err
	}
	for _, h := range locks {
		for _, o := range h.Holders {
			if workflow.IsWriteBackLockHolder(o.ID, run, folder) {
				if err := s.Driver.DropLocks(context.WithoutCancel(ctx), o.ID); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
