package workflow

import (
	"encoding/json"
	"time"

	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/protocol"
)

// Completion is how an operation ended, as it was journaled.
type Completion struct {
	At    time.Time
	Value json.RawMessage
	Error *protocol.Error
	Meta  json.RawMessage
}

// past is what the journal knows of one operation.
type past struct {
	id       string
	call     *protocol.Call
	digest   string
	attempt  int             // of the last started record, 0 if it never started
	data     json.RawMessage // of that record
	cut      int             // the last attempt that was cut
	done     *Completion
	optional bool // completed after an operation that was taken back: delivered if it is asked for again
}

// history is the journal in the order in which things happened.
type history struct {
	ops       map[string]*past
	completed []*past // required completions, in recorded order
	end       *journal.Record
	resumes   int
}

func readHistory(j *journal.Journal, records []journal.Record) (*history, error) {
	h := &history{ops: map[string]*past{}}
	for _, r := range records {
		switch r.Type {
		case journal.Started, journal.Cut, journal.Completed:
			p := h.ops[r.Op]
			if p == nil {
				p = &past{id: r.Op}
				h.ops[r.Op] = p
			}
			if r.Call != nil {
				p.call, p.digest = r.Call, r.Digest
			}
			switch r.Type {
			case journal.Started:
				p.attempt, p.data = r.Attempt, r.Data
			case journal.Cut:
				p.cut = r.Attempt
			case journal.Completed:
				v, err := j.Load(r.Value)
				if err != nil {
					return nil, err
				}
				p.done, p.optional = &Completion{At: r.At, Value: v, Error: r.Error, Meta: r.Meta}, false
				h.completed = append(h.completed, p)
			}
		case journal.Reopened:
			h.reopen(r.Op)
		case journal.Resumed:
			h.resumes++
		case journal.End:
			h.end = &r
		}
	}
	return h, nil
}

// reopen takes a completion back. What completed after it is kept for the case that the workflow asks for it again; what
// was cancelled because of it is forgotten.
func (h *history) reopen(id string) {
	for i, p := range h.completed {
		if p.id != id {
			continue
		}
		p.done = nil
		for _, later := range h.completed[i+1:] {
			if later.done.Error != nil && later.done.Error.Class == "Cancelled" {
				later.done = nil
			} else {
				later.optional = true
			}
		}
		h.completed = h.completed[:i]
		return
	}
}
