// Package workflow is the durable engine: it drives the isolate's child, performs the operations that the workflow asks
// for, journals how they end, and after a kill brings the workflow back to the point where it was.
//
// Replay delivers the recorded completions to the child in recorded order, and after each lets it run until it waits. Calls that
// have no completion are queued. Once the workflow has asked again for every recorded operation, with the same arguments, the
// queued ones are executed; where it has not, it was changed, and nothing is executed.
//
// The goroutine that calls Run speaks with the child, decides, and journals completions. Each operation in progress has a goroutine
// of its own, which reports to it by events.
package workflow

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
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
	RemoveMessage(journal.Message) error
}

// Config is what an engine needs. Changed delivers a value whenever the inbox may have a new message. Events is called by several
// goroutines.
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
	// Stay keeps the worker while every operation waits for a person: the questions are asked at a terminal.
	Stay bool
	// Ending closes what the workflow left open. It is called when the workflow has ended, before that is journaled.
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
	Err     error           // why it failed; or why it was interrupted, where no person did that
	Ending  error           // what Ending could not release
	Waiting []Question
}

// Engine executes one run once.
type Engine struct {
	Config
	journal      Log
	past         *history
	calls        map[string]*Op // all that the workflow asked for, by identity
	byChild      map[string]*Op // the same, by the child's ids
	order        []*Op          // whose completions the child has, in that order
	queue        []*Op          // asked for, and not launched yet
	inFlight     map[*Op]bool   // launched, and not ended yet
	events       chan event
	wg           sync.WaitGroup
	parent       context.Context
	stop         context.CancelCauseFunc
	end          *protocol.Message // done or error
	endRecorded  bool              // the end is journaled: no record may follow it
	answers      map[string]chan journal.Message
	received     map[string]bool   // the ids of messages that a question has received
	ready        []event           // of instant operations, to be handled in order
	inboxChanged bool              // the inbox may have a new message
	checking     map[string]string // by the question's key: the id of the answer that it is checking
	amu          sync.Mutex        // guards answers
	cancel       *journal.Message  // the request to cancel the run
}

// event is what an operation reports to the engine.
type event struct {
	op      *Op
	waiting *Question // it waits for a person
	refused string    // the id of a message whose answer did not fit
	nobody  bool      // the person at the terminal has left
	value   any
	meta    any
	err     error
	ended   bool
}

// New prepares an engine.
func New(c Config) (*Engine, error) {
	e := &Engine{
		Config: c, journal: c.Log, past: readHistory(c.Records), calls: map[string]*Op{}, byChild: map[string]*Op{}, inFlight: map[*Op]bool{},
		events: make(chan event, 64), answers: map[string]chan journal.Message{},
		received: map[string]bool{}, checking: map[string]string{},
	}
	e.parent, e.stop = context.WithCancelCause(context.Background())
	return e, nil
}

// Stop makes Run return; cause is session.ErrInterrupted or session.ErrDetached.
func (e *Engine) Stop(cause error) { e.stop(cause) }

func (e *Engine) now() time.Time { return e.Now().UTC() }

func (e *Engine) postEvent(ev event) {
	select {
	case e.events <- ev:
	case <-e.parent.Done():
		if ev.ended {
			e.events <- ev // drain reads until every operation has ended
		}
	}
}

func (e *Engine) emit(ev journal.Event) {
	if e.Events != nil {
		ev.At = e.now()
		e.Events(ev)
	}
}

// Run executes until the workflow ends, or waits for a person, or the worker is stopped. An error means that laufwerk could not go
// on (the disk is full, the workflow changed): the run is left as it is, and can be resumed.
func (e *Engine) Run(ctx context.Context) (Outcome, error) {
	defer e.drain()
	worker := ctx
	unhook := context.AfterFunc(worker, func() { e.stop(context.Cause(worker)) })
	defer unhook()
	ctx = context.WithoutCancel(worker) // a step of the child is short, and always finished

	err := e.takeMessages() // a cancellation counts from the start, also if an earlier worker was killed while it cancelled
	if err == nil {
		err = e.replay(ctx)
	}
	if err == nil && e.cancel != nil {
		return e.endCancelled(ctx)
	}
	for err == nil && e.end == nil {
		var out *Outcome
		if out, err = e.runOnce(ctx); out != nil && err == nil {
			return *out, nil
		}
	}
	if err != nil {
		return e.endFailed(ctx, err)
	}
	return e.handleEnd(ctx)
}

// runOnce launches what is queued and handles one event. A non-nil outcome is that of Run.
func (e *Engine) runOnce(ctx context.Context) (*Outcome, error) {
	// The inbox is read when it may have a new message, and always before the worker leaves because all operations wait.
	if e.inboxChanged || e.pendingQuestions() != nil {
		e.inboxChanged = false
		if err := e.takeMessages(); err != nil {
			return nil, err
		}
	}
	if e.parent.Err() != nil {
		return e.stoppedOutcome(), nil //nolint:nilerr // the outcome says why
	}
	if err := e.startQueued(ctx); err != nil || e.end != nil {
		return nil, err
	}
	switch waiting := e.pendingQuestions(); {
	case len(e.inFlight) == 0 && e.cancel != nil:
		out, err := e.finish(ctx, Cancelled, nil, nil)
		return &out, err
	case len(e.inFlight) == 0:
		err := failure.New(failure.WorkflowFailed, "the workflow waits for something that is not an operation, and no operation is in progress that could end the wait")
		out, ferr := e.finish(ctx, Failed, nil, err)
		return &out, ferr
	case waiting != nil && !e.Stay && e.cancel == nil:
		return &Outcome{State: Waits, Waiting: waiting}, nil
	}
	if len(e.ready) > 0 {
		select {
		case ev := <-e.events: // first, so that a workflow which asks for the time again and again does not starve the others
			return e.handle(ctx, ev)
		case <-e.Changed:
			e.inboxChanged = true
			return nil, nil
		default:
			ev := e.ready[0]
			e.ready = e.ready[1:]
			return e.handle(ctx, ev)
		}
	}
	select {
	case ev := <-e.events:
		return e.handle(ctx, ev)
	case <-e.Changed:
		e.inboxChanged = true
	case <-e.parent.Done():
	}
	return nil, nil
}

// startQueued launches the queued operations. Those with a completion from before a write-back was reopened are not executed again:
// their completions are delivered first, in recorded order, and journaled a second time, where they now stand in the order of all
// completions.
func (e *Engine) startQueued(ctx context.Context) error {
	for e.cancel == nil {
		var next *Op
		for _, op := range e.queue {
			if op.kept != nil && (next == nil || op.kept.index < next.kept.index) {
				next = op
			}
		}
		if next == nil {
			break
		}
		if err := e.replayCompletion(ctx, next); err != nil || e.end != nil {
			return err
		}
	}
	for _, op := range e.queue {
		e.launch(op)
	}
	e.queue = nil
	return nil
}

// replayCompletion takes an operation with a kept completion from the queue, and journals and delivers that completion.
func (e *Engine) replayCompletion(ctx context.Context, op *Op) error {
	for i, o := range e.queue {
		if o == op {
			e.queue = append(e.queue[:i:i], e.queue[i+1:]...)
			break
		}
	}
	r := op.kept.completion
	c, err := e.load(r)
	if err != nil {
		return err
	}
	if err := e.restoreCompletion(op, c); err != nil {
		return err
	}
	if err := e.journal.Append(journal.Record{Type: journal.Completed, At: r.At, Op: op.ID, Value: r.Value, Error: r.Error, Meta: r.Meta}); err != nil {
		return err
	}
	op.completed = true
	return e.deliver(ctx, op, c)
}

// launch executes an operation in a goroutine of its own, or at once where it is instant. A cancelled operation that has no attempt
// in progress is not executed, only what an earlier worker left of it is ended.
func (e *Engine) launch(op *Op) {
	e.inFlight[op] = true
	ctx, cancel := context.WithCancelCause(e.parent)
	op.cancel = cancel
	cancelled := e.cancelled(op)
	if cancelled {
		cancel(session.ErrCancelled)
	}
	h, ok := e.Handlers[op.Call.Op]
	if h.Instant && !cancelled {
		value, meta, err := h.Do(ctx, op)
		cancel(nil)
		e.ready = append(e.ready, event{op: op, ended: true, value: value, meta: meta, err: err})
		return
	}
	e.wg.Go(func() {
		defer cancel(nil)
		if cancelled && !op.hasAttempt() {
			var err error
			if h.Forget != nil {
				err = h.Forget(context.WithoutCancel(ctx), op)
			}
			if err == nil {
				err = session.ErrCancelled
			}
			e.postEvent(event{op: op, ended: true, err: err})
			return
		}
		if !ok {
			e.postEvent(event{op: op, ended: true, err: failure.New(failure.Unsupported, "%s is not part of this version of laufwerk", op.Call.Op)})
			return
		}
		e.emit(journal.Event{Kind: "operation", Op: op.ID, Text: OperationBegan})
		value, meta, err := h.Do(ctx, op)
		e.postEvent(event{op: op, ended: true, value: value, meta: meta, err: session.InterpretError(ctx, err)})
	})
}

// cancelled says whether an operation is to end because its strand or the run was cancelled.
func (e *Engine) cancelled(op *Op) bool { return op.cancelled || e.cancel != nil }

// handle acts on an operation's event. A non-nil outcome is that of Run.
func (e *Engine) handle(ctx context.Context, ev event) (*Outcome, error) {
	switch {
	case ev.refused != "":
		e.inboxChanged = true // a second answer may have been left in the inbox behind this one
		if e.checking[ev.op.Call.Key] == ev.refused {
			delete(e.checking, ev.op.Call.Key)
		}
	case ev.nobody:
		e.Stay = false
	case ev.waiting != nil:
		ev.op.waiting = ev.waiting
		data, _ := json.Marshal(ev.waiting)
		e.emit(journal.Event{Kind: "question", Op: ev.op.ID, Text: ev.waiting.Title, Data: data})
	}
	if !ev.ended {
		return nil, nil
	}
	delete(e.inFlight, ev.op)
	if out := e.suspendedOutcome(ev); out != nil {
		return out, nil
	}
	c, err := e.recordCompletion(ev)
	if err != nil || e.cancel != nil {
		return nil, err
	}
	return nil, e.deliver(ctx, ev.op, c)
}

// suspendedOutcome is the outcome of Run where an operation returned without having ended, because the worker leaves or the machine is not
// ready; nil where it has ended. No completion is journaled, and the next worker goes on with the operation.
func (e *Engine) suspendedOutcome(ev event) *Outcome {
	switch {
	case ev.err == nil:
		return nil
	case e.parent.Err() != nil:
		return e.stoppedOutcome()
	case isSuspension(ev.err):
		e.stop(ev.err)
		return e.stoppedOutcome()
	case !isMachineFailure(ev.err):
		return nil
	}
	err := ev.err
	if !failure.Is(err, failure.NotReady) && failure.As(err) == nil {
		err = failure.Wrap(err, failure.NotReady, "%s", ev.op.ID)
	}
	e.emit(journal.Event{Kind: "notice", Op: ev.op.ID, Text: NotReady + err.Error()})
	return &Outcome{State: Interrupted, Err: err}
}

// isSuspension says whether a handler left its operation to the next worker.
func isSuspension(err error) bool {
	return errors.Is(err, session.ErrInterrupted) || errors.Is(err, session.ErrDetached)
}

func (e *Engine) stoppedOutcome() *Outcome {
	out := &Outcome{State: Interrupted}
	if cause := context.Cause(e.parent); !isSuspension(cause) {
		out.Err = cause
	}
	return out
}

// drain waits until every operation has returned, so that none acts while the next worker does. The completions of those that
// succeed meanwhile are journaled.
func (e *Engine) drain() {
	e.stop(session.ErrDetached)
	done := make(chan struct{})
	go func() { e.wg.Wait(); close(done) }()
	keep := func(ev event) {
		if ev.ended && ev.err == nil && !e.endRecorded {
			_, _ = e.recordCompletion(ev)
		}
	}
	for {
		select {
		case ev := <-e.events:
			keep(ev)
		case <-done:
			for {
				select {
				case ev := <-e.events:
					keep(ev)
				default:
					return
				}
			}
		}
	}
}

// pendingQuestions are the questions where every operation in progress waits for a person and none has an answer to check; nil otherwise.
func (e *Engine) pendingQuestions() []Question {
	if len(e.inFlight) == 0 {
		return nil
	}
	var out []Question
	for op := range e.inFlight {
		if op.waiting == nil || e.checking[op.waiting.Key] != "" || e.cancelled(op) {
			return nil
		}
		out = append(out, *op.waiting)
	}
	slices.SortFunc(out, func(a, b Question) int {
		return cmp.Or(cmp.Compare(a.Since, b.Since), cmp.Compare(a.Key, b.Key))
	})
	return out
}
