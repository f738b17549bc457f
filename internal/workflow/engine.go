// Package workflow is the durable engine: it drives the isolate's child, performs the operations that the workflow asks
// for, journals how they end, and after a kill brings the workflow back to the point where it was.
//
// Replay: recorded completions are delivered in recorded order, each followed by running the child until it can do nothing
// more. Calls without a completion are queued meanwhile. When all that is recorded was asked for again, with the same
// arguments, the queue is released; otherwise nothing is executed.
package workflow

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/protocol"
	"github.com/laufwerk/laufwerk/internal/session"
)

// Program is the child that runs the workflow: script.Child.
type Program interface {
	Step(ctx context.Context, m *protocol.Message) ([]protocol.Message, error)
}

// Log is where records go: journal.Writer.
type Log interface {
	Append(journal.Record) error
}

// Inbox is how other processes speak to the worker.
type Inbox interface {
	Messages() ([]journal.Message, error)
	Done(journal.Message) error
}

// Config is what an engine needs. Changed delivers a value whenever something may have come into the inbox.
type Config struct {
	Journal  *journal.Journal
	Log      Log
	Records  []journal.Record
	Program  Program
	Handlers map[string]Handler
	Inbox    Inbox
	Changed  <-chan struct{}
	Now      func() time.Time
	Events   func(journal.Event)
	// Stay keeps the worker although every operation waits for a person: somebody is asking at a terminal.
	Stay bool
	// Ending is called once the workflow itself has ended, before that is journaled: sessions that are still open are closed.
	Ending func(ctx context.Context, state string) error
}

// States in which Run leaves a run.
const (
	Succeeded   = "succeeded"
	Failed      = "failed"
	Cancelled   = "cancelled"
	Waits       = "waiting"
	Interrupted = "interrupted"
)

// Outcome is how a worker left the run.
type Outcome struct {
	State   string
	Value   json.RawMessage // of a run that succeeded
	Err     error           // why it failed, or was interrupted where it was not a person who did it
	Ending  error           // what Ending could not do: resources that are retained
	Waiting []Waiting
}

// Engine executes one run once.
type Engine struct {
	Config
	journal Log
	past    *history
	asked   map[string]*Op // by identity
	byChild map[string]*Op
	queue   []*Op // asked for, and neither recorded nor begun
	live    map[*Op]bool
	events  chan event
	wg      sync.WaitGroup
	parent  context.Context
	stop    context.CancelCauseFunc
	end     *protocol.Message // done or error
	answers map[string]chan journal.Message
	seen    map[string]bool // messages that were handed on
	given   map[string]bool // questions whose answer is on its way
	amu     sync.Mutex
	cancel  *journal.Message
}

type event struct {
	op      *Op
	waiting *Waiting
	refused bool // an answer that was given did not fit
	nobody  bool // who was asked at the terminal went away
	value   any
	meta    any
	err     error
	ended   bool
}

// New prepares an engine.
func New(c Config) (*Engine, error) {
	h, err := readHistory(c.Journal, c.Records)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		Config: c, journal: c.Log, past: h, asked: map[string]*Op{}, byChild: map[string]*Op{}, live: map[*Op]bool{},
		events: make(chan event, 64), answers: map[string]chan journal.Message{},
		seen: map[string]bool{}, given: map[string]bool{},
	}
	e.parent, e.stop = context.WithCancelCause(context.Background())
	return e, nil
}

// Stop ends the worker's part; cause is session.ErrInterrupted or session.ErrDetached.
func (e *Engine) Stop(cause error) { e.stop(cause) }

func (e *Engine) now() time.Time { return e.Now().UTC() }

func (e *Engine) post(ev event) {
	select {
	case e.events <- ev:
	case <-e.parent.Done():
		if ev.ended {
			e.events <- ev // the channel is drained until every operation has ended
		}
	}
}

func (e *Engine) emit(ev journal.Event) {
	if e.Events != nil {
		ev.At = e.now()
		e.Events(ev)
	}
}

// Run executes until the workflow ends, waits for a person, or the worker is stopped. An error means that laufwerk itself
// could not go on (the journal is full, the workflow changed): the run stays as it is, and can be resumed.
func (e *Engine) Run(ctx context.Context) (Outcome, error) {
	defer e.drain()
	unhook := context.AfterFunc(ctx, func() { e.stop(context.Cause(ctx)) })
	defer unhook()
	ctx = context.WithoutCancel(ctx) // a step of the child is short, and is never left half done

	if err := e.replay(ctx); err != nil {
		return e.failed(err)
	}
	for _, op := range e.queue {
		e.launch(op)
	}
	e.queue = nil
	for e.end == nil {
		if err := e.takeMessages(); err != nil {
			return Outcome{}, err
		}
		if w := e.allWaiting(); w != nil && !e.Stay && e.cancel == nil {
			return Outcome{State: Waits, Waiting: w}, nil
		}
		select {
		case ev := <-e.events:
			out, err := e.handle(ctx, ev)
			if err != nil {
				return e.failed(err)
			}
			if out != nil {
				return *out, nil
			}
		case <-e.Changed:
		case <-e.parent.Done():
			return Outcome{State: Interrupted, Err: e.stopped()}, nil
		}
		if e.cancel != nil && len(e.live) == 0 {
			return e.finish(ctx, Cancelled, nil, nil)
		}
	}
	return e.ended(ctx)
}

// failed tells a program that broke its limits, which is the workflow's own failure, from everything else.
func (e *Engine) failed(err error) (Outcome, error) {
	if failure.Is(err, failure.LimitExceeded) {
		e.drain()
		return e.finish(context.Background(), Failed, nil, err)
	}
	return Outcome{}, err
}

func (e *Engine) stopped() error {
	if cause := context.Cause(e.parent); !leaves(cause) {
		return cause
	}
	return nil
}

// drain waits until no operation is under way, so that none of them acts behind the back of whoever comes next.
func (e *Engine) drain() {
	e.stop(session.ErrDetached)
	done := make(chan struct{})
	go func() { e.wg.Wait(); close(done) }()
	for {
		select {
		case ev := <-e.events:
			if ev.ended && ev.err == nil {
				_, _ = e.record(ev)
			}
		case <-done:
			for {
				select {
				case ev := <-e.events:
					if ev.ended && ev.err == nil {
						_, _ = e.record(ev)
					}
				default:
					return
				}
			}
		}
	}
}

func (e *Engine) replay(ctx context.Context) error {
	if err := e.step(ctx, nil); err != nil {
		return err
	}
	for _, p := range e.past.completed {
		op := e.asked[p.id]
		if op == nil {
			return changed("%s is in the journal, and the workflow did not ask for it again", p.id)
		}
		if err := e.recall(op, *p.done); err != nil {
			return err
		}
		if err := e.deliver(ctx, op, *p.done); err != nil {
			return err
		}
	}
	for id, p := range e.past.ops {
		if p.done == nil && p.attempt > 0 && e.asked[id] == nil {
			return changed("%s was started, and the workflow did not ask for it again", id)
		}
	}
	return nil
}

func changed(format string, args ...any) error {
	e := failure.New(failure.WorkflowChanged, "the workflow changed: "+format+"; nothing was executed. A workflow must ask for the same operations whenever it is given the same answers", args...)
	return e.WithHint("laufwerk runs cancel RUN")
}

// step sends one message to the child and takes what it says until it is quiet again.
func (e *Engine) step(ctx context.Context, m *protocol.Message) error {
	out, err := e.Program.Step(ctx, m)
	if err != nil {
		return err
	}
	for i := range out {
		switch m := out[i]; m.Type {
		case protocol.TypeCall:
			if err := e.take(m); err != nil {
				return err
			}
		case protocol.TypeCancel:
			for _, id := range m.IDs {
				if op := e.byChild[id]; op != nil && op.done == nil {
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

// take registers a call; it runs once the replay is over.
func (e *Engine) take(m protocol.Message) error {
	if m.Call == nil || m.ID == "" {
		return failure.New(failure.Internal, "the isolate asked for nothing")
	}
	op := &Op{ID: journal.Identity(*m.Call), Call: *m.Call, child: m.ID, engine: e}
	sum := sha256.Sum256(m.Call.Args)
	op.digest = hex.EncodeToString(sum[:])
	if e.asked[op.ID] != nil {
		return failure.New(failure.Internal, "the isolate asked twice for %s", op.ID)
	}
	if p := e.past.ops[op.ID]; p != nil {
		if p.digest != op.digest {
			return changed("%s has other arguments than before (%s)", op.ID, difference(p.call, op.Call.Args))
		}
		op.attempt, op.data, op.cut, op.journaled = p.attempt, p.data, p.cut, p.call != nil
		op.done = p.done
	}
	e.asked[op.ID], e.byChild[m.ID] = op, op
	if op.done == nil || e.past.ops[op.ID].optional {
		e.queue = append(e.queue, op)
	}
	return nil
}

// difference names the argument that changed, without showing values.
func difference(before *protocol.Call, now json.RawMessage) string {
	var a, b map[string]json.RawMessage
	if before == nil || json.Unmarshal(before.Args, &a) != nil || json.Unmarshal(now, &b) != nil {
		return "arguments"
	}
	for k := range b {
		if string(a[k]) != string(b[k]) {
			return k
		}
	}
	for k := range a {
		if _, ok := b[k]; !ok {
			return k
		}
	}
	return "arguments"
}

func (e *Engine) recall(op *Op, c Completion) error {
	if h := e.Handlers[op.Call.Op]; h.Recall != nil {
		return h.Recall(op.Call, c)
	}
	return nil
}

func (e *Engine) deliver(ctx context.Context, op *Op, c Completion) error {
	op.done = &c
	m := &protocol.Message{Type: protocol.TypeResult, ID: op.child, Value: c.Value, Now: c.At.UnixMilli()}
	if c.Error != nil {
		m = &protocol.Message{Type: protocol.TypeError, ID: op.child, Error: c.Error, Now: c.At.UnixMilli()}
	}
	return e.step(ctx, m)
}

func (e *Engine) launch(op *Op) {
	e.live[op] = true
	ctx, cancel := context.WithCancelCause(e.parent)
	op.cancel = cancel
	e.wg.Add(1)
	cancelled := op.cancelled || e.cancel != nil
	go func() {
		defer e.wg.Done()
		defer cancel(nil)
		if op.done != nil { // it completed before something earlier was taken back
			e.post(event{op: op, ended: true, err: e.recall(op, *op.done)})
			return
		}
		if cancelled && op.attempt == 0 {
			e.post(event{op: op, ended: true, err: session.ErrCancelled})
			return
		}
		if cancelled {
			cancel(session.ErrCancelled)
		}
		h, ok := e.Handlers[op.Call.Op]
		if !ok {
			e.post(event{op: op, ended: true, err: failure.New(failure.Unsupported, "%s is not part of this version of laufwerk", op.Call.Op)})
			return
		}
		e.emit(journal.Event{Kind: "operation", Op: op.ID, Text: "begins"})
		value, meta, err := h.Do(ctx, op)
		e.post(event{op: op, ended: true, value: value, meta: meta, err: session.Ended(ctx, err)})
	}()
}

// handle takes an operation's event. A non-nil outcome ends the worker's part.
func (e *Engine) handle(ctx context.Context, ev event) (*Outcome, error) {
	if ev.refused {
		delete(e.given, ev.op.Call.Key)
		return nil, nil
	}
	if ev.nobody {
		e.Stay = false
		return nil, nil
	}
	if ev.waiting != nil {
		ev.op.waiting = ev.waiting
		data, _ := json.Marshal(ev.waiting)
		e.emit(journal.Event{Kind: "question", Op: ev.op.ID, Text: ev.waiting.Title, Data: data})
		return nil, nil
	}
	delete(e.live, ev.op)
	if leaves(ev.err) {
		e.stop(ev.err)
		return &Outcome{State: Interrupted, Err: e.stopped()}, nil
	}
	if failure.Is(ev.err, failure.NotReady) {
		e.emit(journal.Event{Kind: "notice", Op: ev.op.ID, Text: "not ready: " + ev.err.Error()})
		return &Outcome{State: Interrupted, Err: ev.err}, nil
	}
	if errors.Is(ev.err, session.ErrCancelled) {
		ev.err = failure.New(failure.Cancelled, "%s was cancelled", ev.op.ID)
	}
	c, err := e.record(ev)
	if err != nil {
		return nil, err
	}
	if e.cancel != nil {
		return nil, nil
	}
	if err := e.deliver(ctx, ev.op, *c); err != nil {
		return nil, err
	}
	for _, op := range e.queue {
		e.launch(op)
	}
	e.queue = nil
	return nil, nil
}

// leaves says whether a handler left its operation open for the next worker.
func leaves(err error) bool {
	return errors.Is(err, session.ErrInterrupted) || errors.Is(err, session.ErrDetached)
}

// record makes a completion durable. The answers that it took from the inbox are removed after that.
func (e *Engine) record(ev event) (*Completion, error) {
	op := ev.op
	if op.done != nil {
		return op.done, nil
	}
	at := e.now()
	r := journal.Record{Type: journal.Completed, At: at, Op: op.ID}
	if ev.meta != nil {
		meta, err := json.Marshal(ev.meta)
		if err != nil {
			return nil, err
		}
		r.Meta = meta
	}
	c := &Completion{At: at, Meta: r.Meta, Value: json.RawMessage("null")}
	if ev.err != nil {
		c.Error = WireError(ev.err)
		r.Error = c.Error
	} else {
		value, err := json.Marshal(ev.value)
		if err != nil {
			return nil, err
		}
		c.Value = value
		if r.Value, err = e.Journal.Keep(value); err != nil {
			return nil, err
		}
	}
	if err := op.append(r); err != nil {
		return nil, err
	}
	op.done = c
	if err := e.settled(op); err != nil {
		return nil, err
	}
	text := "done"
	if c.Error != nil {
		text = "failed: " + c.Error.Message
	}
	e.emit(journal.Event{Kind: "operation", Op: op.ID, Text: text})
	return c, nil
}

// WireError is a failure as the workflow catches it.
func WireError(err error) *protocol.Error {
	kind := failure.KindOf(err)
	out := &protocol.Error{Class: kind.Class(), Code: string(kind), Message: err.Error()}
	if f := failure.As(err); f != nil {
		out.Hint = f.Hint
		for k, v := range f.Fields {
			if out.Fields == nil {
				out.Fields = map[string]any{}
			}
			out.Fields[k] = v
		}
		if len(f.Paths) > 0 || len(f.Conditions) > 0 {
			if out.Fields == nil {
				out.Fields = map[string]any{}
			}
		}
		if len(f.Paths) > 0 {
			out.Fields["paths"] = f.Paths
		}
		if len(f.Conditions) > 0 {
			out.Fields["conditions"] = f.Conditions
		}
	}
	return out
}

// Failure is the way back: what a workflow did not catch, as a failure of the command.
func Failure(w *protocol.Error) error {
	f := failure.New(failure.Kind(w.Code), "%s", w.Message)
	known := false
	for _, r := range failure.Table() {
		known = known || r.Kind == f.Kind
	}
	if !known || f.Kind.Exit() == failure.ExitFailed || f.Kind == failure.Usage {
		f.Kind = failure.WorkflowFailed
	}
	if w.Class != "" && !known {
		f.Message = w.Class + ": " + w.Message
	}
	f.Hint = w.Hint
	for k, v := range w.Fields {
		switch {
		case k == "paths" && again(v, &f.Paths):
		case k == "conditions" && again(v, &f.Conditions):
		default:
			_ = f.WithField(k, v)
		}
	}
	for _, frame := range w.Frames {
		f.Message += "\n    at " + frame
	}
	return f
}

// again reads a field that went through JSON, or that is on its way there.
func again(v, into any) bool {
	b, err := json.Marshal(v)
	return err == nil && json.Unmarshal(b, into) == nil
}

func (e *Engine) allWaiting() []Waiting {
	if len(e.live) == 0 {
		return nil
	}
	var out []Waiting
	for op := range e.live {
		if op.waiting == nil || e.given[op.waiting.Key] {
			return nil
		}
		out = append(out, *op.waiting)
	}
	return out
}

// ended handles the end that the workflow itself came to.
func (e *Engine) ended(ctx context.Context) (Outcome, error) {
	if e.end.Type == protocol.TypeDone {
		return e.finish(ctx, Succeeded, e.end.Value, nil)
	}
	w := e.end.Error
	if w == nil {
		return Outcome{}, failure.New(failure.Internal, "the isolate ended without a reason")
	}
	err := Failure(w)
	if failure.Is(err, failure.WriteBackConflict) || failure.Is(err, failure.HalfApplied) {
		if op := e.conflicted(failure.KindOf(err)); op != nil {
			if err := e.journal.Append(journal.Record{Type: journal.Reopened, At: e.now(), Op: op.ID}); err != nil {
				return Outcome{}, err
			}
			return Outcome{State: Interrupted, Err: err}, nil
		}
	}
	return e.finish(ctx, Failed, nil, err)
}

// conflicted is the write-back whose failure nobody caught.
func (e *Engine) conflicted(kind failure.Kind) *Op {
	for _, op := range e.asked {
		if op.Call.Op == protocol.OpWorkspaceWriteBack && op.done != nil && op.done.Error != nil && op.done.Error.Code == string(kind) {
			return op
		}
	}
	return nil
}

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
	if e.cancel != nil && e.Inbox != nil {
		_ = e.Inbox.Done(*e.cancel)
	}
	return out, nil
}

func reason(s string) string {
	if s == "" {
		return ""
	}
	return ": " + s
}

func (e *Engine) private(c protocol.Call) (protocol.Call, error) {
	if h := e.Handlers[c.Op]; h.Private != nil {
		args, err := h.Private(c.Args)
		if err != nil {
			return c, err
		}
		c.Args = args
	}
	return c, nil
}
