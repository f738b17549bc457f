package workflow

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/protocol"
)

// Handler performs the operations of one kind.
type Handler struct {
	// Do performs an operation and returns its value (anything that JSON can carry) and what the engine is to remember.
	// A failure that the workflow may catch is a *failure.Error. When ctx ends with ErrInterrupted or ErrDetached the
	// handler returns that error, and the operation stays open for the next worker.
	Do func(ctx context.Context, op *Op) (value, meta any, err error)
	// Instant: Do has no effect and waits for nothing, so that it is done at once, in the engine's own loop.
	Instant bool
	// Recall tells of a completion that is in the journal, in recorded order, before anything new is done. It may be nil.
	Recall func(call protocol.Call, c Completion) error
	// Forget ends what an earlier worker may have left of an operation that is cancelled before anything of it was journaled.
	// It may be nil.
	Forget func(ctx context.Context, op *Op) error
	// Private returns the arguments as they may be journaled: without secrets. It may be nil.
	Private func(args json.RawMessage) (json.RawMessage, error)
}

// Op is one operation on its way.
type Op struct {
	ID   string // the journal's identity
	Call protocol.Call

	attempt   int             // attempts that were started so far, by any worker
	data      json.RawMessage // what the last attempt left for us: see Start
	cut       int             // the last attempt that was recorded as cut
	child     string          // the id that the child calls it by
	digest    string
	journaled bool  // the call is in the journal already
	kept      *past // its completion is to be delivered once more
	completed bool  // its completion is journaled
	failed    *protocol.Error
	cancel    context.CancelCauseFunc
	cancelled bool
	waiting   *Waiting
	engine    *Engine
}

// Waiting is a question that an operation waits for a person to answer.
type Waiting struct {
	Key         string   `json:"key"`
	Type        string   `json:"type"` // confirm, text, select
	Title       string   `json:"title"`
	Description string   `json:"description,omitempty"`
	Placeholder string   `json:"placeholder,omitempty"`
	Options     []Option `json:"options,omitempty"`
	Workspace   string   `json:"workspace,omitempty"`
	Digest      string   `json:"digest,omitempty"` // of the frozen content that the answer is bound to
	Since       int64    `json:"since"`            // ms since 1970
}

// Option is one answer of a select.
type Option struct {
	Value       string `json:"value"`
	Label       string `json:"label"`
	Description string `json:"description,omitempty"`
}

// Name is the operation's identity within its run.
func (o *Op) Name() string { return o.ID }

// Attempts is how often it was started, by any worker, and what the last start left; nil where nothing of it is to be joined.
func (o *Op) Attempts() (int, json.RawMessage) { return o.attempt, o.data }

// begun says that there may be something that an attempt has left under way.
func (o *Op) begun() bool { return len(o.data) > 0 }

// Start makes the intent of one more attempt durable, before its effect. data is what a later worker needs to find the effect.
func (o *Op) Start(data any) error {
	b, err := json.Marshal(data)
	if err != nil {
		return err
	}
	o.attempt++
	o.data = b
	r := journal.Record{Type: journal.Started, Op: o.ID, Attempt: o.attempt, Data: b}
	return o.append(r)
}

// Advance makes durable how far the present attempt has come, in place of what its start left.
func (o *Op) Advance(data any) error {
	b, err := json.Marshal(data)
	if err != nil {
		return err
	}
	o.data = b
	return o.append(journal.Record{Type: journal.Started, Op: o.ID, Attempt: o.attempt, Data: b})
}

// Cut records that what the last attempt ran was ended before it finished. A worker that comes back to an attempt that was
// cut already records nothing.
func (o *Op) Cut(reason string) error {
	if o.cut == o.attempt {
		return nil
	}
	o.cut = o.attempt
	return o.append(journal.Record{Type: journal.Cut, Op: o.ID, Attempt: o.attempt, Reason: reason})
}

func (o *Op) append(r journal.Record) error { return o.appendAt(o.engine.now(), r) }

func (o *Op) appendAt(at time.Time, r journal.Record) error {
	r.At = at
	if !o.journaled {
		call := o.engine.private(o.Call)
		r.Call, r.Digest = &call, o.digest
	}
	if err := o.engine.journal.Append(r); err != nil {
		return err
	}
	o.journaled = true
	return nil
}

// private is a call as it may be journaled. Of one whose arguments are not understood nothing but their digest is.
func (e *Engine) private(c protocol.Call) protocol.Call {
	h, known := e.Handlers[c.Op]
	if known && h.Private == nil {
		return c
	}
	args := json.RawMessage("null")
	if known {
		if private, err := h.Private(c.Args); err == nil {
			args = private
		}
	}
	c.Args = args
	return c
}

// Wait says that this operation waits for a person; the worker may leave when every operation does.
func (o *Op) Wait(w Waiting) { o.engine.post(event{op: o, waiting: &w}) }

// Event tells those who follow the run.
func (o *Op) Event(ev journal.Event) {
	ev.Op = o.ID
	o.engine.emit(ev)
}

func noticef(format string, args ...any) journal.Event {
	return journal.Event{Kind: "notice", Text: fmt.Sprintf(format, args...)}
}
