package runs

import (
	"context"
	"encoding/json"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/project"
	"github.com/laufwerk/laufwerk/internal/protocol"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// ListResumable are the runs that a reboot or a timer would take up: those that nobody works on and that can go on. With due
// only those whose durable sleep has ended and that wait for nothing else. Runs that wait for a person are among them once an
// answer was left; runs with a half-applied write-back always.
func (s *Service) ListResumable(ctx context.Context, due bool) ([]Run, error) {
	list, err := s.List(ctx, "")
	if err != nil {
		return nil, err
	}
	var out []Run
	for _, r := range list {
		if r.Terminal() || r.State == Running {
			continue
		}
		if _, live := s.Worker(r.ID); live {
			continue
		}
		ready, err := s.isResumable(r, due)
		if err != nil {
			return nil, err
		}
		if ready {
			out = append(out, r)
		}
	}
	return out, nil
}

func (s *Service) isResumable(r Run, due bool) (bool, error) {
	j := s.Journal(r.ID)
	messages, err := j.Messages()
	if err != nil {
		return false, err
	}
	if len(messages) > 0 && !due {
		return true, nil
	}
	if !due {
		return r.State == Interrupted, nil
	}
	records, err := j.Read()
	if err != nil {
		return false, err
	}
	sleeps, others := s.countOpen(records)
	return sleeps > 0 && others == 0, nil
}

// countOpen counts what is open in a journal: sleeps that have ended, and everything else. A sleep that still lasts is
// neither: another one may be due.
func (s *Service) countOpen(records []journal.Record) (ended, others int) {
	type open struct {
		sleep bool
		wake  int64
	}
	ops := map[string]open{}
	sleeps := map[string]bool{}
	for _, rec := range records {
		if rec.Call != nil {
			sleeps[rec.Op] = rec.Call.Op == protocol.OpClockSleep
		}
		switch rec.Type {
		case journal.Started:
			o := open{sleep: sleeps[rec.Op]}
			var at struct {
				Wake int64 `json:"wake"`
			}
			if json.Unmarshal(rec.Data, &at) == nil {
				o.wake = at.Wake
			}
			ops[rec.Op] = o
		case journal.Completed:
			delete(ops, rec.Op)
		}
	}
	for _, o := range ops {
		switch {
		case !o.sleep:
			others++
		case o.wake <= s.now().UnixMilli():
			ended++
		}
	}
	return ended, others
}

// CurrentResult is how a run stands, as the worker that left it would have said.
func (s *Service) CurrentResult(r Run) (Result, error) {
	res := Result{Run: r}
	switch {
	case r.State == Waiting:
		res.Err = waitingError(r)
	case r.Terminal():
		j := s.Journal(r.ID)
		records, err := j.Read()
		if err != nil {
			return res, err
		}
		if end := endRecord(records); end != nil {
			if res.Value, err = j.LoadValue(end.Value); err != nil {
				return res, err
			}
			res.Err = recordedError(end.Error)
		}
	}
	return res, nil
}

// Resume takes up a run where it was left. The lease is taken first, so two never work on one run.
func (s *Service) Resume(ctx context.Context, id string) (StartedRun, error) {
	r, l, err := s.acquireRun(ctx, id)
	if err != nil {
		return StartedRun{}, err
	}
	st := StartedRun{Run: r, Lease: l}
	if st.Targets, st.Drift, err = s.resumable(ctx, r); err != nil {
		l.Release()
		return StartedRun{}, err
	}
	return st, nil
}

func (s *Service) describeDrift(ctx context.Context, r Run) string {
	var pinned protocol.Bundle
	if files.ReadJSON(runFile(s.Dir(r.ID), "bundle.json"), &pinned) != nil {
		return "" // execute says it
	}
	return project.Drift(ctx, s.Script, r.Root, r.Workflow, pinned.Code)
}

func (s *Service) resumable(ctx context.Context, r Run) (targets []targets.Definition, drift string, err error) {
	if r.Terminal() {
		return nil, "", failure.New(failure.RunState, "run %s has ended: %s", r.ID, r.State).WithHint("laufwerk runs show %s", r.ID)
	}
	if records, err := s.Journal(r.ID).Read(); err != nil {
		return nil, "", err
	} else if endRecord(records) != nil {
		return nil, "", nil // only the store does not know yet: that needs no project
	}
	p, err := project.Load(ctx, s.Script, r.Root)
	if err != nil {
		return nil, "", failure.Wrap(err, failure.ProjectInvalid, "read the project of run %s", r.ID)
	}
	now, err := withoutValues(p.Targets)
	if err == nil {
		err = sameTargets(r, now)
	}
	if err != nil {
		return nil, "", err
	}
	return p.Targets, s.describeDrift(ctx, r), nil
}

// sameTargets compares the definitions that the run started with and those of the config as it is now.
func sameTargets(r Run, now []targets.Definition) error {
	byID := map[string]targets.Definition{}
	for _, d := range now {
		byID[d.ID] = d
	}
	for _, was := range r.Targets {
		current, ok := byID[was.ID]
		var what string
		switch {
		case !ok:
			what = "is not registered any more"
		case current.Fingerprint == was.Fingerprint:
			continue
		case current.Kind != was.Kind:
			what = "was " + was.Kind + " and is " + current.Kind
		default:
			what = "has another definition: " + changedOption(was.Options, current.Options)
		}
		return failure.New(failure.DefinitionChanged,
			"the target %q of run %s %s; nothing was allocated. Restore it in laufwerk/laufwerk.config.ts and resume the run, or end the run", was.ID, r.ID, what).
			WithHint("laufwerk resume %s\nlaufwerk runs cancel %s && laufwerk cleanup %s", r.ID, r.ID, r.ID)
	}
	return nil
}

func changedOption(previous, current json.RawMessage) string {
	var a, b map[string]json.RawMessage
	if json.Unmarshal(previous, &a) != nil || json.Unmarshal(current, &b) != nil {
		return "its options changed"
	}
	for k := range b {
		if _, ok := a[k]; !ok {
			return k + " was added"
		}
		if string(a[k]) != string(b[k]) {
			return k + " changed"
		}
	}
	for k := range a {
		if _, ok := b[k]; !ok {
			return k + " was removed"
		}
	}
	return "its options changed"
}
