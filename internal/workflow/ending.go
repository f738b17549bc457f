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

// ended handles the end that the workflow itself came to.
func (e *Engine) ended(ctx context.Context) (Outcome, error) {
	if out, err := e.abandon(); err != nil {
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
		if op := e.uncaught(w); op != nil {
			if err := e.journal.Append(journal.Record{Type: journal.Reopened, At: e.now(), Op: op.ID}); err != nil {
				return Outcome{}, err
			}
			return Outcome{State: Interrupted, Err: err}, nil
		}
	}
	return e.finish(ctx, Failed, nil, err)
}

// uncaught is the write-back whose failure ended the workflow: the last one that failed like that.
func (e *Engine) uncaught(w *protocol.Error) *Op {
	for _, op := range slices.Backward(e.order) {
		if op.Call.Op == protocol.OpWorkspaceWriteBack && op.failed != nil && op.failed.Code == w.Code && op.failed.Message == w.Message {
			return op
		}
	}
	return nil
}

// cut ends a run that was cancelled before this worker came.
func (e *Engine) cut(ctx context.Context) (Outcome, error) {
	if out, err := e.abandon(); err != nil {
		return Outcome{}, err
	} else if out != nil {
		return *out, nil
	}
	return e.finish(ctx, Cancelled, nil, nil)
}

// failed tells a program that broke its limits, which is the workflow's own failure, from everything else.
func (e *Engine) failed(ctx context.Context, err error) (Outcome, error) {
	if !failure.Is(err, failure.LimitExceeded) {
		return Outcome{}, err
	}
	if e.cancel != nil {
		return e.cut(ctx)
	}
	if out, err := e.abandon(); err != nil {
		return Outcome{}, err
	} else if out != nil {
		return *out, nil
	}
	return e.finish(ctx, Failed, nil, err)
}

// abandon ends what is still under way although nobody will take its answer: what runs is fenced, and journaled as cancelled.
// A non-nil outcome ends the worker's part instead.
func (e *Engine) abandon() (*Outcome, error) {
	for op := range e.live {
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
	for len(e.live) > 0 {
		select {
		case ev := <-e.events:
			if !ev.ended {
				continue
			}
			delete(e.live, ev.op)
			if out := e.leftOpen(ev); out != nil {
				return out, nil
			}
			if _, err := e.record(ev); err != nil {
				return nil, err
			}
		case <-e.parent.Done():
			return e.stopped(), nil
		}
	}
	return nil, nil
}

// finish journals the end of the run. Nothing of it is under way any more.
func (e *Engine) finish(ctx context.Context, state string, value json.RawMessage, err error) (Outcome, error) {
	out := Outcome{State: state, Value: value, Err: err}
	if state == Cancelled {
		out.Err = failure.New(failure.Cancelled, "the run was cancelled%s", reason(e.cancel.Reason))
	}
	if e.Ending != nil {
		out.Ending = e.Ending(context.WithoutCancel(ctx), state)
	}
	r := journal.Record{Type: journal.End, At: e.now(), State: state}
	if value != nil {
		kept, kerr := e.Journal.Keep(value)
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
	e.over = true
	e.emptyInbox()
	return out, nil
}

// emptyInbox removes what nobody will take any more.
func (e *Engine) emptyInbox() {
	if e.Inbox == nil {
		return
	}
	ms, _ := e.Inbox.Messages()
	for _, m := range ms {
		_ = e.Inbox.Done(m)
	}
}

func reason(s string) string {
	if s == "" {
		return ""
	}
	return ": " + s
}
