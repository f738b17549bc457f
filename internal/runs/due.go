package runs

import (
	"context"
	"encoding/json"

	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/protocol"
)

// Resumable are the runs that a reboot or a timer would take up: those that nobody works on and that can go on. With due
// only those whose durable sleep has ended and that wait for nothing else. Runs that wait for a person are among them once an
// answer was left; runs with a half-applied write-back always.
func (s *Service) Resumable(ctx context.Context, due bool) ([]Run, error) {
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

// Standing is how a run stands, as the worker that left it would have said.
func (s *Service) Standing(r Run) (Result, error) {
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
