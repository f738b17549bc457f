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

type operationHistory struct {
	id         string
	call       *protocol.Call
	digest     string
	attempt    int             // of the last started record, 0 if it never started
	data       json.RawMessage // of that record; nil if there is no attempt to join
	cut        int             // the number of the last attempt that was cut
	completion *journal.Record // its completion
	index      int             // the index of that record in the journal
	optional   bool            // recorded after a completion that was reopened: the workflow need not ask for it again
}

type history struct {
	ops       map[string]*operationHistory
	completed []*operationHistory // required completions, in recorded order
}

func readHistory(records []journal.Record) *history {
	h := &history{ops: map[string]*operationHistory{}}
	for i := range records {
		r := &records[i]
		switch r.Type {
		case journal.Started, journal.Cut, journal.Completed:
			p := h.ops[r.Op]
			if p == nil {
				p = &operationHistory{id: r.Op}
				h.ops[r.Op] = p
			}
			if r.Call != nil {
				p.call, p.digest = r.Call, r.Digest
			}
			switch r.Type {
			case journal.Started:
				p.attempt, p.data, p.optional = r.Attempt, r.Data, false
			case journal.Cut:
				p.cut = r.Attempt
			case journal.Completed:
				p.completion, p.index, p.optional = r, i, false
				h.completed = append(h.completed, p)
			}
		case journal.Reopened:
			h.reopen(r.Op)
		}
	}
	return h
}

// reopen revokes a completion: the operation is executed again, and the workflow may go on differently. The later completions are
// kept in case the workflow asks for the same operations again. Those that were cancelled, perhaps because of it, are dropped:
// they are executed if the workflow asks for them.
func (h *history) reopen(id string) {
	w := h.ops[id]
	if w == nil || w.completion == nil {
		return
	}
	w.completion = nil
	for _, p := range h.ops {
		if p.completion == nil || p.index < w.index {
			continue
		}
		p.optional = true
		if p.completion.Error != nil && p.completion.Error.Class == "Cancelled" {
			p.completion, p.data = nil, nil
		}
	}
	for i, p := range h.completed {
		if p == w {
			h.completed = h.completed[:i]
			return
		}
	}
}
