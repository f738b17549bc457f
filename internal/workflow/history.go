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
	data     json.RawMessage // of that record; nil if nothing of it is to be joined
	cut      int             // the last attempt that was cut
	done     *journal.Record // its completion, and the place of that
	place    int
	optional bool // after an operation that was taken back: it may be asked for again, or not
}

// history is the journal in the order in which things happened.
type history struct {
	ops       map[string]*past
	completed []*past // required completions, in recorded order
}

func readHistory(records []journal.Record) *history {
	h := &history{ops: map[string]*past{}}
	for i := range records {
		r := &records[i]
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
				p.attempt, p.data, p.optional = r.Attempt, r.Data, false
			case journal.Cut:
				p.cut = r.Attempt
			case journal.Completed:
				p.done, p.place, p.optional = r, i, false
				h.completed = append(h.completed, p)
			}
		case journal.Reopened:
			h.reopen(r.Op)
		}
	}
	return h
}

// reopen takes a completion back. What completed after it is kept for the case that the workflow asks for it again; what
// was cancelled, because of it perhaps, is forgotten, and made anew if it is asked for.
func (h *history) reopen(id string) {
	w := h.ops[id]
	if w == nil || w.done == nil {
		return
	}
	w.done = nil
	for _, p := range h.ops {
		if p.done == nil || p.place < w.place {
			continue
		}
		p.optional = true
		if p.done.Error != nil && p.done.Error.Class == "Cancelled" {
			p.done, p.data = nil, nil
		}
	}
	for i, p := range h.completed {
		if p == w {
			h.completed = h.completed[:i]
			return
		}
	}
}
