// Package runs is the life of runs: start, resume, answer, cancel, list, show, prune. One worker at a time holds a run's
// lease; everybody else reads the store and the journal, or leaves a message in the inbox.
package runs

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/script"
	"github.com/laufwerk/laufwerk/internal/store"
	"github.com/laufwerk/laufwerk/internal/suggest"
	"github.com/laufwerk/laufwerk/internal/system/lock"
	"github.com/laufwerk/laufwerk/internal/targets"
	"github.com/laufwerk/laufwerk/internal/workflow"
	"github.com/laufwerk/laufwerk/internal/writeback"
)

// States of a run, as people see them. Running and interrupted differ by whether a worker holds the lease.
const (
	Running     = "running"
	Interrupted = "interrupted"
	Waiting     = "waiting"
	Succeeded   = "succeeded"
	Failed      = "failed"
	Cancelled   = "cancelled"
)

// Run is a run's record in the store. What happened in it is in its journal; this is what listings need.
type Run struct {
	ID        string               `json:"id"`
	Project   string               `json:"project"` // projectId
	Scope     string               `json:"scope"`   // projectId and root: what listings and keys are scoped by
	Root      string               `json:"root"`
	Workflow  string               `json:"workflow"`
	State     string               `json:"state"` // running stands for interrupted too, until somebody looks
	Reason    string               `json:"reason,omitempty"`
	Code      string               `json:"code,omitempty"` // of the failure
	Targets   []targets.Definition `json:"targets"`
	Bundle    string               `json:"bundle"` // digest
	Build     string               `json:"build"`
	Key       string               `json:"key,omitempty"` // the caller's own name for it
	CreatedAt time.Time            `json:"createdAt"`
	UpdatedAt time.Time            `json:"updatedAt"`
	EndedAt   time.Time            `json:"endedAt,omitzero"`
	Waiting   []workflow.Question  `json:"waiting,omitempty"`
}

// Terminal says whether the run is over.
func (r Run) Terminal() bool {
	return r.State == Succeeded || r.State == Failed || r.State == Cancelled
}

// Service is what all use cases need.
type Service struct {
	Home     *store.Home
	Store    *store.Store
	Driver   *claims.Driver
	Script   *script.Runner
	Provider func(kind string) (providers.Provider, bool)
	Programs agent.Programs
	HomeDir  string // of the user, for "~/"
	Now      func() time.Time
	Build    string
	Command  string            // how this process was called, for lock files
	HostVars map[string]string // the environment
	MaxFiles int               // of a write-back
	MaxBytes int64             // of a write-back
}

func (s *Service) now() time.Time { return s.Now().UTC() }

// Dir is a run's folder.
func (s *Service) Dir(id string) string { return s.Home.RunDir(id) }

// Journal is a run's journal.
func (s *Service) Journal(id string) *journal.Journal { return journal.Open(s.Dir(id)) }

func (s *Service) leasePath(id string) string { return s.Home.LockFile("run-" + id) }

// Lease takes the right to work on a run; a live worker is named.
func (s *Service) Lease(ctx context.Context, id string) (*lock.Lock, error) {
	l, err := lock.Acquire(ctx, s.leasePath(id), lock.Exclusive, 0, s.Command)
	if failure.Is(err, failure.LockBusy) {
		h := lock.Who(s.leasePath(id))
		return nil, failure.New(failure.LeaseBusy, "another worker process executes run %s: %s", id, h).WithField("holder", h).
			WithHint("laufwerk runs logs %s -f", id)
	}
	return l, err
}

// acquireRun takes the lease of a run and reads its record after that: what was read before may have been another worker's to change.
func (s *Service) acquireRun(ctx context.Context, id string) (Run, *lock.Lock, error) {
	r, err := s.Get(ctx, id)
	if err != nil {
		return r, nil, err
	}
	l, err := s.Lease(ctx, r.ID)
	if err != nil {
		return r, nil, err
	}
	now, found, err := s.findRun(ctx, r.ID)
	if err == nil && !found {
		err = failure.New(failure.NotFound, "run %s has just been pruned", r.ID).WithHint("laufwerk runs list --all")
	}
	if err != nil {
		l.Release()
		return r, nil, err
	}
	return now, l, nil
}

// Worker is the live worker of a run.
func (s *Service) Worker(id string) (lock.Holder, bool) {
	h, live, err := lock.Query(s.leasePath(id))
	return h, live && err == nil
}

// findRun is the record of exactly this run; false where there is none.
func (s *Service) findRun(ctx context.Context, id string) (r Run, ok bool, err error) {
	err = s.Store.View(ctx, func(tx store.Tx) error {
		ok, err = tx.Get(store.Runs, id, &r)
		return err
	})
	return r, ok, err
}

// Get finds a run by its id or by a unique beginning of it. The state is what it really is: interrupted where nobody works.
func (s *Service) Get(ctx context.Context, id string) (Run, error) {
	if id != "" {
		if r, ok, err := s.findRun(ctx, id); ok || err != nil {
			return s.observeState(r), err
		}
	}
	var found []Run
	var all []string
	err := s.Store.View(ctx, func(tx store.Tx) error {
		return tx.Each(store.Runs, "", func(key string, raw json.RawMessage) error {
			all = append(all, key)
			if id == "" || !strings.HasPrefix(key, id) {
				return nil
			}
			var r Run
			if err := json.Unmarshal(raw, &r); err != nil {
				return failure.Wrap(err, failure.StoreInvalid, "read the run %s", key)
			}
			found = append(found, r)
			return nil
		})
	})
	if err != nil {
		return Run{}, err
	}
	switch len(found) {
	case 1:
		return s.observeState(found[0]), nil
	case 0:
		e := failure.New(failure.NotFound, "there is no run %q", id)
		if near := suggest.Closest(id, all); near != "" {
			e.Message += "; did you mean " + near + "?"
		}
		return Run{}, e.WithHint("laufwerk runs list --all")
	default:
		e := failure.New(failure.Usage, "%q is the beginning of %d runs: type more of the id", id, len(found))
		return Run{}, e.WithHint("laufwerk runs list --all")
	}
}

// List returns the runs of a scope, all with "", newest first.
func (s *Service) List(ctx context.Context, scope string) ([]Run, error) {
	var out []Run
	err := s.Store.View(ctx, func(tx store.Tx) error {
		return tx.Each(store.Runs, "", func(key string, raw json.RawMessage) error {
			var r Run
			if err := json.Unmarshal(raw, &r); err != nil {
				return failure.Wrap(err, failure.StoreInvalid, "read the run %s", key)
			}
			if scope == "" || r.Scope == scope {
				out = append(out, r)
			}
			return nil
		})
	})
	for i := range out {
		out[i] = s.observeState(out[i])
	}
	slices.SortStableFunc(out, func(a, b Run) int { return b.CreatedAt.Compare(a.CreatedAt) }) // ids are in order of days only
	return out, err
}

// observeState tells running from interrupted.
func (s *Service) observeState(r Run) Run {
	if r.State == Running {
		if _, live := s.Worker(r.ID); !live {
			r.State = Interrupted
			if r.Reason == "" {
				r.Reason = "its worker is gone"
			}
		}
	}
	return r
}

func (s *Service) storeRun(ctx context.Context, r Run) error {
	r.UpdatedAt = s.now()
	return s.Store.Update(ctx, func(tx store.Tx) error { return tx.Put(store.Runs, r.ID, r) })
}

// HalfApplied is the folder of a write-back of this run that was begun and neither finished nor undone, "" if there is none.
func (s *Service) HalfApplied(id string) (string, error) {
	dirs, err := writeBackDirs(s.Dir(id))
	if err != nil {
		return "", err
	}
	for _, d := range dirs {
		p, err := writeback.Pending(d)
		if err != nil {
			return d, err
		}
		if p != nil {
			return d, nil
		}
	}
	return "", nil
}

func runFile(dir, name string) string { return filepath.Join(dir, name) }
