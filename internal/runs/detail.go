package runs

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/protocol"
	"github.com/laufwerk/laufwerk/internal/system/lock"
	"github.com/laufwerk/laufwerk/internal/workflow"
)

// States of an operation.
const (
	OpOpen   = "open"
	OpDone   = "done"
	OpFailed = "failed"
)

// Operation is one operation of a run, as its journal knows it.
type Operation struct {
	ID        string       `json:"id"`
	Depth     int          `json:"depth"`             // of its branch: 0 is the workflow itself
	Branch    string       `json:"branch,omitempty"`  // "0" is the workflow itself, "0.1.2" the third of its second `all`
	Session   string       `json:"session,omitempty"` // the key of the session that it opens or is of
	State     string       `json:"state"`
	Attempts  int          `json:"attempts,omitempty"`
	Cuts      int          `json:"cuts,omitempty"`
	StartedAt time.Time    `json:"startedAt,omitzero"`
	EndedAt   time.Time    `json:"endedAt,omitzero"`
	Millis    int64        `json:"millis,omitempty"` // of the command or turn itself
	Usage     *agent.Usage `json:"usage,omitempty"`
	ExitCode  *int         `json:"exitCode,omitempty"`
	Approved  *bool        `json:"approved,omitempty"` // of a write-back
	Error     string       `json:"error,omitempty"`
}

// Detail is everything about a run.
type Detail struct {
	Run         Run             `json:"run"`
	Output      json.RawMessage `json:"output,omitempty"` // what the workflow returned
	Worker      *lock.Holder    `json:"worker,omitempty"`
	Resumes     int             `json:"resumes"`
	HalfApplied bool            `json:"halfApplied,omitempty"`
	Operations  []Operation     `json:"operations"`
	Claims      []claims.Claim  `json:"claims"`
}

// Detail reads a run's record, journal and claims.
func (s *Service) Detail(ctx context.Context, id string) (Detail, error) {
	r, err := s.Get(ctx, id)
	if err != nil {
		return Detail{}, err
	}
	j := s.Journal(r.ID)
	records, err := j.Read()
	if err != nil {
		return Detail{}, err
	}
	d := Detail{Run: r, Operations: operations(records)}
	for _, rec := range records {
		if rec.Type == journal.Resumed {
			d.Resumes++
		}
	}
	if w, live := s.Worker(r.ID); live {
		d.Worker = &w
		if r.State == Running { // it asks somebody, who may be elsewhere
			d.Run.Waiting = workflow.OpenQuestions(records)
		}
	}
	if end := endRecord(records); end != nil && end.Value != nil {
		d.Output = loadValue(j, end.Value)
	}
	pending, err := s.HalfApplied(r.ID)
	if err != nil {
		return d, err
	}
	d.HalfApplied = pending != ""
	list, err := s.Driver.List(ctx, claims.Filter{Run: r.ID, Outstanding: true})
	d.Claims = append([]claims.Claim{}, list...)
	return d, err
}

func operations(records []journal.Record) []Operation {
	out := []Operation{}
	at := map[string]int{}
	for _, r := range records {
		if r.Op == "" {
			continue
		}
		i, ok := at[r.Op]
		if !ok {
			i = len(out)
			at[r.Op] = i
			out = append(out, Operation{ID: r.Op, State: OpOpen})
		}
		o := &out[i]
		if r.Call != nil {
			o.Branch = r.Call.Branch
			o.Depth = strings.Count(r.Call.Branch, ".") / 2
			o.Session = r.Call.Scope
			if r.Call.Op == protocol.OpSessionOpen {
				o.Session = r.Call.Key
			}
		}
		switch r.Type {
		case journal.Started:
			o.Attempts = r.Attempt
			o.State, o.Error, o.EndedAt = OpOpen, "", time.Time{} // also one that was cancelled and is made anew
			if o.StartedAt.IsZero() {
				o.StartedAt = r.At
			}
		case journal.Cut:
			o.Cuts++
		case journal.Reopened:
			o.State, o.Error, o.EndedAt = OpOpen, "", time.Time{}
		case journal.Completed:
			o.State, o.EndedAt = OpDone, r.At
			if r.Error != nil {
				o.State, o.Error = OpFailed, r.Error.Message
			}
			var m struct {
				Millis   int64        `json:"millis"`
				Usage    *agent.Usage `json:"usage"`
				ExitCode *int         `json:"exitCode"`
				Approved *bool        `json:"approved"`
			}
			if json.Unmarshal(r.Meta, &m) == nil {
				o.Millis, o.Usage, o.ExitCode, o.Approved = m.Millis, m.Usage, m.ExitCode, m.Approved
			}
		}
	}
	return out
}
