package workflow

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/protocol"
	"github.com/laufwerk/laufwerk/internal/session"
	"github.com/laufwerk/laufwerk/internal/sha256hex"
)

// replay brings the workflow back to where it was, by the recorded completions alone. It executes nothing.
func (e *Engine) replay(ctx context.Context) error {
	if err := e.step(ctx, nil); err != nil {
		return err
	}
	for _, p := range e.past.completed {
		op := e.calls[p.id]
		if op == nil {
			return e.workflowChanged("%s is in the journal, and the workflow did not ask for it again", p.id)
		}
		c, err := e.load(p.completion)
		if err != nil {
			return err
		}
		if err := e.restoreCompletion(op, c); err != nil {
			return err
		}
		if e.end != nil { // it was cancelled because the workflow had ended, which does not wait for it
			continue
		}
		if err := e.deliver(ctx, op, c); err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(e.past.ops)) {
		p := e.past.ops[id]
		if p.completion == nil && p.attempt > 0 && !p.optional && e.calls[id] == nil {
			return e.workflowChanged("%s was started, and the workflow did not ask for it again", id)
		}
	}
	return nil
}

func (e *Engine) workflowChanged(format string, args ...any) error {
	run := "RUN"
	if len(e.Records) > 0 && e.Records[0].Run != "" {
		run = e.Records[0].Run
	}
	return failure.New(failure.WorkflowChanged, "the workflow changed: %s; nothing was executed. A workflow must request the same operations whenever it gets the same results",
		fmt.Sprintf(format, args...)).WithHint("laufwerk runs cancel %s && laufwerk cleanup %s", run, run)
}

// step sends one message to the child and handles its messages until it waits again.
func (e *Engine) step(ctx context.Context, m *protocol.Message) error {
	out, err := e.Program.Step(ctx, m)
	if err != nil {
		return err
	}
	for i := range out {
		switch m := out[i]; m.Type {
		case protocol.TypeCall:
			if err := e.registerCall(m); err != nil {
				return err
			}
		case protocol.TypeCancel:
			for _, id := range m.IDs {
				if op := e.byChild[id]; op != nil && !op.completed {
					op.cancelled = true
					if op.cancel != nil {
						op.cancel(session.ErrCancelled)
					}
				}
			}
		case protocol.TypeLog:
			var text string
			if json.Unmarshal(m.Value, &text) != nil {
				text = string(m.Value)
			}
			e.emit(journal.Event{Kind: "console", Text: text})
		case protocol.TypeDone, protocol.TypeError:
			e.end = &out[i]
		case protocol.TypeIdle:
		default:
			return failure.New(failure.Internal, "the isolate said %q, which this engine does not know", m.Type)
		}
	}
	return nil
}

// registerCall registers a call of the workflow. Where it has no completion, it is executed once the replay is over.
func (e *Engine) registerCall(m protocol.Message) error {
	if m.Call == nil || m.ID == "" {
		return failure.New(failure.Internal, "the isolate asked for nothing")
	}
	op := &Op{ID: journal.Identity(*m.Call), Call: *m.Call, child: m.ID, engine: e}
	op.digest = sha256hex.Of(m.Call.Args)
	if e.calls[op.ID] != nil {
		return failure.New(failure.Internal, "the isolate asked twice for %s", op.ID)
	}
	if p := e.past.ops[op.ID]; p != nil {
		if p.digest != op.digest {
			return e.workflowChanged("%s has other arguments than before (%s)", op.ID, difference(p.call, e.redactCall(op.Call).Args))
		}
		op.attempt, op.data, op.cut, op.journaled = p.attempt, p.data, p.cut, true
		op.completed = p.completion != nil
		if p.completion != nil && p.optional {
			op.kept = p
		}
	}
	e.calls[op.ID], e.byChild[m.ID] = op, op
	if !op.completed || op.kept != nil {
		e.queue = append(e.queue, op)
	}
	return nil
}

// difference is the name of the argument that changed. Both sides are as they are journaled, without secrets.
func difference(before *protocol.Call, now json.RawMessage) string {
	var a, b map[string]any
	if before == nil || json.Unmarshal(before.Args, &a) != nil || json.Unmarshal(now, &b) != nil {
		return "arguments"
	}
	all := maps.Clone(a)
	maps.Copy(all, b)
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if !reflect.DeepEqual(a[k], b[k]) {
			return k
		}
	}
	return "arguments"
}

// load is the completion in a record. A large value is read from its blob only now.
func (e *Engine) load(r *journal.Record) (Completion, error) {
	v, err := e.Journal.LoadValue(r.Value)
	return Completion{At: r.At, Value: v, Error: r.Error, Meta: r.Meta}, err
}

func (e *Engine) restoreCompletion(op *Op, c Completion) error {
	if h := e.Handlers[op.Call.Op]; h.Recall != nil {
		return h.Recall(op.Call, c)
	}
	return nil
}

// deliver gives the child a completion.
func (e *Engine) deliver(ctx context.Context, op *Op, c Completion) error {
	op.failed = c.Error
	e.order = append(e.order, op)
	m := &protocol.Message{Type: protocol.TypeResult, ID: op.child, Value: c.Value, Now: c.At.UnixMilli()}
	if c.Error != nil {
		m = &protocol.Message{Type: protocol.TypeError, ID: op.child, Error: c.Error, Now: c.At.UnixMilli()}
	}
	return e.step(ctx, m)
}
