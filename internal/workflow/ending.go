package workflow

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/protocol"
	"github.com/laufwerk/laufwerk/internal/session"
)

// handleEnd journals that the workflow returned or threw. An uncaught conflict of a write-back does not end the run: the write-back is
// reopened, and the next worker tries it again.
func (e *Engine) handleEnd(ctx context.Context) (Outcome, error) {
	if out, err := e.cancelInFlight(); err != nil {
		return Outcome{}, err
	} else if out != nil {
		return *out, nil
	}
	if e.end.Type == protocol.TypeDone {
		return e.finish(ctx, Succeeded, e.end.Value, nil)
	}
	w := e.end.Error
	if w == nil {
		return Outcome{}, failure.New(failure.Internal, "the isolate ended without a reason")
	}
	err := Failure(w)
	if failure.Is(err, failure.WriteBackConflict) || failure.Is(err, failure.HalfApplied) {
		if op := e.findUncaught(w); op != nil {
			if err := e.journal.Append(journal.Record{Type: journal.Reopened, At: e.now(), Op: op.ID}); err != nil {
				return Outcome{}, err
			}
			return Outcome{State: Interrupted, Err: err}, nil
		}
	}
	return e.finish(ctx, Failed, nil, err)
}

// findUncaught is the write-back whose failure ended the workflow: the last one that failed with the same error.
func (e *Engine) findUncaught(w *protocol.Error) *Op {
	for _, op := range slices.Backward(e.order) {
		if op.Call.Op == protocol.OpWorkspaceWriteBack && op.failed != nil && op.failed.Code == w.Code && op.failed.Message == w.Message {
			return op
		}
	}
	return nil
}

// endCancelled ends a run that was cancelled before this worker started.
func (e *Engine) endCancelled(ctx context.Context) (Outcome, error) {
	if out, err := e.cancelInFlight(); err != nil {
		return Outcome{}, err
	} else if out != nil {
		return *out, nil
	}
	return e.finish(ctx, Cancelled, nil, nil)
}

// endFailed ends the run where the workflow exceeded its limits, which is a failure of its own. Other errors are laufwerk's, and are
// returned.
func (e *Engine) endFailed(ctx context.Context, err error) (Outcome, error) {
	if !failure.Is(err, failure.LimitExceeded) {
		return Outcome{}, err
	}
	if e.cancel != nil {
		return e.endCancelled(ctx)
	}
	if out, err := e.cancelInFlight(); err != nil {
		return Outcome{}, err
	} else if out != nil {
		return *out, nil
	}
	return e.finish(ctx, Failed, nil, err)
}

// cancelInFlight ends the operations that are in progress when the workflow no longer waits for them: their processes are fenced, and they
// are journaled as cancelled. A non-nil outcome is that of Run: the worker had to leave before all had ended.
func (e *Engine) cancelInFlight() (*Outcome, error) {
	for op := range e.inFlight {
		op.cancelled = true
		op.cancel(session.ErrCancelled)
	}
	for _, op := range e.queue {
		op.cancelled = true
		if op.kept == nil {
			e.launch(op)
		}
	}
	e.queue = nil
	for len(e.inFlight) > 0 {
		select {
		case ev := <-e.events:
			if !ev.ended {
				continue
			}
			delete(e.inFlight, ev.op)
			if out := e.suspendedOutcome(ev); out != nil {
				return out, nil
			}
			if _, err := e.recordCompletion(ev); err != nil {
				return nil, err
			}
		case <-e.parent.Done():
			return e.stoppedOutcome(), nil
		}
	}
	return nil, nil
}

// finish journals the end of the run. No operation is in progress.
func (e *Engine) finish(ctx context.Context, state string, value json.RawMessage, err error) (Outcome, error) {
	out := Outcome{State: state, Value: value, Err: err}
	if state == Cancelled {
		out.Err = failure.New(failure.Cancelled, "the run was cancelled%s", cancelReason(e.cancel.Reason))
	}
	if e.Ending != nil {
		out.Ending = e.Ending(context.WithoutCancel(ctx), state)
	}
	r := journal.Record{Type: journal.End, At: e.now(), State: state}
	if value != nil {
		kept, kerr := e.Journal.StoreValue(value)
		if kerr != nil {
			return out, kerr
		}
		r.Value = kept
	}
	if out.Err != nil {
		r.Error = WireError(out.Err)
	}
	if err := e.journal.Append(r); err != nil {
		return out, err
	}
	e.endRecorded = true
	e.emptyInbox()
	return out, nil
}

// emptyInbox removes the messages that came too late.
func (e *Engine) emptyInbox() {
	if e.Inbox == nil {
		return
	}
	ms, _ := e.Inbox.Messages()
	for _, m := range ms {
		_ = e.Inbox.RemoveMessage(m)
	}
}

func cancelReason(s string) string {
	if s == "" {
		return ""
	}
	return ": " + s
}
