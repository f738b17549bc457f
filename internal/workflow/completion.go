package workflow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/session"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// isMachineFailure says whether the machine failed and not the operation: the target is not ready, the store is locked or damaged, the disk
// is full or fails. The run is left for when that is repaired, and the workflow never sees the error.
func isMachineFailure(err error) bool {
	switch failure.KindOf(err) {
	case failure.NotReady, failure.LockBusy, failure.HomeInvalid, failure.StoreInvalid, failure.StoreNewer, failure.JournalInvalid:
		return true
	}
	return files.MachineFailed(err)
}

// recordCompletion makes a completion durable. The answers to a question are removed from the inbox after that.
func (e *Engine) recordCompletion(ev event) (Completion, error) {
	op := ev.op
	c := Completion{At: e.now(), Value: json.RawMessage("null")}
	value, err := encode(ev.value)
	if ev.err == nil {
		ev.err = err
	}
	if ev.err != nil {
		c.Error = WireError(e.failureOf(op, ev.err))
	} else {
		c.Value = value
	}
	r := journal.Record{Type: journal.Completed, Op: op.ID, Error: c.Error}
	if ev.meta != nil {
		if r.Meta, err = json.Marshal(ev.meta); err != nil {
			return c, err
		}
		c.Meta = r.Meta
	}
	if c.Error == nil {
		if r.Value, err = e.Journal.StoreValue(c.Value); err != nil {
			return c, err
		}
	}
	if err := op.appendAt(c.At, r); err != nil {
		return c, err
	}
	op.completed = true
	if err := e.removeAnswers(op); err != nil {
		return c, err
	}
	text := "done"
	if c.Error != nil {
		text = FailedWith + c.Error.Message
	}
	e.emit(journal.Event{Kind: "operation", Op: op.ID, Text: text, Data: measurementsOf(r.Meta)})
	return c, nil
}

// The texts of an operation's events: it begins, and is done, or has failed with an error that follows the text.
const (
	OperationBegan = "begins"
	FailedWith     = "failed: "
)

// NotReady begins the notice of an operation that suspends the run. The reason follows it.
const NotReady = "not ready: "

// Measurements is the data of the event that an operation has ended. What is not known of it is left out.
type Measurements struct {
	Millis   int64        `json:"millis,omitempty"` // of the command or turn itself
	Usage    *agent.Usage `json:"usage,omitempty"`
	ExitCode *int         `json:"exitCode,omitempty"`
}

func measurementsOf(meta json.RawMessage) json.RawMessage {
	var m Measurements
	if json.Unmarshal(meta, &m) != nil || m == (Measurements{}) {
		return nil
	}
	b, _ := json.Marshal(m)
	return b
}

// encode is an operation's value as JSON. What agents print may be invalid UTF-8, which becomes U+FFFD.
func encode(value any) (json.RawMessage, error) {
	b, err := json.Marshal(value)
	if err != nil {
		return nil, failure.New(failure.OutputInvalid, "the value has no JSON form: %v", err)
	}
	return bytes.ToValidUTF8(b, []byte("\uFFFD")), nil
}

// failureOf is the failure that an operation ends with. Errors that only follow from its cancellation become the failure Cancelled.
func (e *Engine) failureOf(op *Op, err error) error {
	early := errors.Is(err, session.ErrCancelled)
	if e.cancelled(op) {
		early = early || errors.Is(err, context.Canceled) || failure.Is(err, failure.Interrupted)
	}
	if early {
		return failure.New(failure.Cancelled, "%s was cancelled", op.ID)
	}
	return err
}
