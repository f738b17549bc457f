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
	// Do executes an operation. It returns the value for the workflow (anything with a JSON form) and what the journal keeps for
	// Recall. A failure that the workflow may catch is a *failure.Error. When ctx ends with ErrInterrupted or ErrDetached, Do
	// returns that error: the operation is not completed, and the next worker goes on with it.
	Do func(ctx context.Context, op *Op) (value, meta any, err error)
	// Instant says that Do has no effect and waits for nothing: it is called by the engine's own goroutine.
	Instant bool
	// Recall restores what a recorded completion means for later operations. It is called in recorded order, before any new
	// operation. It may be nil.
	Recall func(call protocol.Call, c Completion) error
	// Forget releases what an earlier worker may have allocated for an operation that is now cancelled and of which nothing is
	// journaled. It may be nil.
	Forget func(ctx context.Context, op *Op) error
	// Private returns the arguments as they may be journaled: without secrets. It may be nil.
	Private func(args json.RawMessage) (json.RawMessage, error)
}

// Op is one operation that the workflow asked for.
type Op struct {
	ID   string // the journal's identity
	Call protocol.Call

	attempt   int             // how many attempts were started, by any worker
	data      json.RawMessage // of the last attempt, see Start; nil where there is none to join
	cut       int             // the number of the last attempt that is recorded as cut
	child     string          // the id that the child calls it by
	digest    string
	journaled bool              // the call is in the journal already
	kept      *operationHistory // has a completion from before a write-back was reopened, to be delivered once more
	completed bool              // its completion is journaled
	failed    *protocol.Error
	cancel    context.CancelCauseFunc
	cancelled bool
	waiting   *Question
	engine    *Engine
}

// Question is a question that an operation waits for a person to answer.
type Question struct {
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

// Attempts is the number of attempts that any worker started, and the data of the last one; nil where there is none to join.
func (o *Op) Attempts() (int, json.RawMessage) { return o.attempt, o.data }

func (o *Op) hasAttempt() bool { return len(o.data) > 0 }

// Start makes the intent of one more attempt durable, before its effect. With data, a later worker finds the effect.
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

// Advance replaces the data of the current attempt: it makes durable how far that has come.
func (o *Op) Advance(data any) error {
	b, err := json.Marshal(data)
	if err != nil {
		return err
	}
	o.data = b
	return o.append(journal.Record{Type: journal.Started, Op: o.ID, Attempt: o.attempt, Data: b})
}

// RecordCut records that the processes of the last attempt were ended before they finished; nothing where that is recorded already.
func (o *Op) RecordCut(reason string) error {
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
		call := o.engine.redactCall(o.Call)
		r.Call, r.Digest = &call, o.digest
	}
	if err := o.engine.journal.Append(r); err != nil {
		return err
	}
	o.journaled = true
	return nil
}

// redactCall is a call as it may be journaled. Arguments that this version does not understand are left out; their digest is kept.
func (e *Engine) redactCall(c protocol.Call) protocol.Call {
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

// WaitForPerson says that this operation waits for a person; the worker may leave when every operation does.
func (o *Op) WaitForPerson(w Question) { o.engine.postEvent(event{op: o, waiting: &w}) }

// Event adds to the run's event log.
func (o *Op) Event(ev journal.Event) {
	ev.Op = o.ID
	o.engine.emit(ev)
}

func noticef(format string, args ...any) journal.Event {
	return journal.Event{Kind: "notice", Text: fmt.Sprintf(format, args...)}
}
