package workflow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/protocol"
	"github.com/laufwerk/laufwerk/internal/session"
	"github.com/laufwerk/laufwerk/internal/workflow"
)

// hang is how long a test waits for something that must happen.
const hang = 30 * time.Second

// runFixture is what outlives workers: the journal, the inbox, the effects of operations.
type runFixture struct {
	t       testing.TB
	dir     *journal.Journal
	records []journal.Record
	inbox   *inbox

	mu      sync.Mutex
	effects map[string]int // of each operation
	results map[string]any // what an attempt came to, as a supervisor's exit record says it
	log     []string       // what happened, in order
	gates   map[string]chan struct{}
	now     time.Time
	kills   int // the append that fails, and all after it; 0 is none
	full    error
}

func newRunFixture(t testing.TB) *runFixture {
	w := &runFixture{
		t: t, dir: journal.Open(t.TempDir()), inbox: &inbox{changed: make(chan struct{}, 1)}, effects: map[string]int{}, results: map[string]any{},
		gates: map[string]chan struct{}{}, now: time.UnixMilli(1_700_000_000_000),
	}
	w.records = []journal.Record{{Type: journal.Begin, Version: journal.Version, Run: "260101-abcdefgh"}}
	return w
}

// inbox is the messages in memory.
type inbox struct {
	mu      sync.Mutex
	changed chan struct{}
	dir     *journal.Journal
	fails   error
}

// log appends to the journal, until the worker is killed.
type log struct {
	w        *runFixture
	appended int
}

var errKilled = errors.New("killed")

func (l *log) Append(r journal.Record) error {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if l.w.kills > 0 && l.appended+1 >= l.w.kills {
		if l.w.full != nil {
			return l.w.full
		}
		return errKilled
	}
	l.appended++
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	var kept journal.Record
	if err := json.Unmarshal(b, &kept); err != nil {
		return err
	}
	l.w.records = append(l.w.records, kept)
	return nil
}

// note adds a line to the log.
func (w *runFixture) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

// gate is closed by open; an operation that is to wait waits for it.
func (w *runFixture) gate(name string) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gates[name] == nil {
		w.gates[name] = make(chan struct{})
	}
	return w.gates[name]
}

func (w *runFixture) open(name string) { close(w.gate(name)) }

func (w *runFixture) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(time.Millisecond)
	return w.now
}

// doArgs are the arguments of "test.do".
type doArgs struct {
	Value any    `json:"value,omitempty"`
	Fail  string `json:"fail,omitempty"`  // a failure.Kind
	Wait  string `json:"wait,omitempty"`  // a gate to wait for, in the middle
	Times int    `json:"times,omitempty"` // how often it fails; 0 is always
}

// do is an operation with an effect that outlives its worker: what an attempt has come to is found by the next one.
func (w *runFixture) do(ctx context.Context, op *workflow.Op) (any, any, error) {
	var a doArgs
	if err := json.Unmarshal(op.Call.Args, &a); err != nil {
		return nil, nil, err
	}
	attempts, data := op.Attempts()
	if len(data) > 0 {
		w.mu.Lock()
		got, ended := w.results[fmt.Sprint(op.ID, attempts)]
		w.mu.Unlock()
		if ended {
			w.note("joins %s", op.ID)
			return w.come(got)
		}
		if errors.Is(context.Cause(ctx), session.ErrCancelled) {
			w.note("fences %s", op.ID)
			return nil, nil, session.ErrCancelled
		}
		if err := op.RecordCut("the attempt was lost"); err != nil {
			return nil, nil, err
		}
	}
	if err := op.Start(map[string]string{"place": op.ID}); err != nil {
		return nil, nil, err
	}
	if a.Wait != "" {
		w.note("waits %s", op.ID)
		select {
		case <-w.gate(a.Wait):
		case <-ctx.Done():
			w.note("%v %s", context.Cause(ctx), op.ID)
			return nil, nil, context.Cause(ctx)
		}
	}
	w.mu.Lock()
	w.effects[op.ID]++
	got := a.Value
	if a.Fail != "" && (a.Times == 0 || w.effects[op.ID] <= a.Times) {
		got = failure.New(failure.Kind(a.Fail), "%s fails", op.ID)
	}
	attempts, _ = op.Attempts()
	if _, failed := got.(*failure.Error); !failed || op.Call.Op != protocol.OpWorkspaceWriteBack { // which is tried again
		w.results[fmt.Sprint(op.ID, attempts)] = got
	}
	w.log = append(w.log, "executes "+op.ID)
	w.mu.Unlock()
	return w.come(got)
}

func (w *runFixture) come(got any) (any, any, error) {
	if f, ok := got.(*failure.Error); ok {
		return nil, nil, f
	}
	return got, map[string]bool{"remembered": true}, nil
}

// worker is one process on the run.
type worker struct {
	w        *runFixture
	fake     *fake
	engine   *workflow.Engine
	handlers map[string]workflow.Handler
	ended    []string // states that Ending was called with
	ask      workflow.Asker
	stay     bool
	recalled []string
	mu       sync.Mutex
	events   []journal.Event
	hook     func() // after every event
}

func (w *runFixture) worker(p program) *worker {
	return &worker{w: w, fake: newFake(p), handlers: map[string]workflow.Handler{}}
}

// start makes the engine.
func (k *worker) start() *worker {
	k.w.t.Helper()
	handlers := workflow.NewOperations(workflow.OperationsConfig{Run: "260101-abcdefgh", Now: k.w.clock, Ask: k.ask}).Handlers()
	tested := workflow.Handler{
		Do: k.w.do,
		Recall: func(call protocol.Call, c workflow.Completion) error {
			what := string(c.Value)
			if c.Error != nil {
				what = c.Error.Code
			}
			k.recalled = append(k.recalled, call.Key+"="+what)
			return nil
		},
	}
	handlers["test.do"], handlers[protocol.OpWorkspaceWriteBack] = tested, tested
	maps.Copy(handlers, k.handlers)
	e, err := workflow.New(workflow.Config{
		Journal: k.w.dir, Log: &log{w: k.w}, Records: slices.Clone(k.w.records), Program: k.fake, Handlers: handlers,
		Inbox: k.w.inbox, Changed: k.w.inbox.changed, Now: k.w.clock, Stay: k.stay,
		Events: k.event,
		Ending: func(_ context.Context, state string) error { k.ended = append(k.ended, state); return nil },
	})
	if err != nil {
		k.w.t.Fatal(err)
	}
	k.engine = e
	return k
}

func (k *worker) event(ev journal.Event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.events = append(k.events, ev)
	if k.hook != nil {
		k.hook()
	}
}

// run works until the worker leaves.
func (k *worker) run(ctx context.Context) (workflow.Outcome, error) {
	k.w.t.Helper()
	defer k.fake.close()
	if k.engine == nil {
		k.start()
	}
	type result struct {
		out workflow.Outcome
		err error
	}
	done := make(chan result, 1)
	go func() {
		out, err := k.engine.Run(ctx)
		done <- result{out, err}
	}()
	select {
	case r := <-done:
		return r.out, r.err
	case <-time.After(hang):
		k.w.t.Fatal("the worker does not come to an end")
		panic("unreachable")
	}
}

// leaves runs and checks the state.
func (k *worker) leaves(state string) workflow.Outcome {
	k.w.t.Helper()
	out, err := k.run(k.w.t.Context())
	if err != nil {
		k.w.t.Fatalf("the worker failed: %v", err)
	}
	if out.State != state {
		k.w.t.Fatalf("left as %s (%v), want %s", out.State, out.Err, state)
	}
	return out
}

// waitForEvent waits for an event with a text.
func (k *worker) waitForEvent(kind, text string) {
	k.w.t.Helper()
	k.w.until(func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return slices.ContainsFunc(k.events, func(ev journal.Event) bool { return ev.Kind == kind && (text == "" || ev.Text == text) })
	})
}

func (w *runFixture) until(fn func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(hang); !fn(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("it never came to that; the log: %q", w.log)
		}
	}
}

func (w *runFixture) has(line string) func() bool {
	return func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.Contains(w.log, line)
	}
}

// types are the journal's records as "type operation".
func (w *runFixture) types() []string {
	var out []string
	for _, r := range w.records[1:] {
		s := string(r.Type)
		if r.Op != "" {
			s += " " + r.Op
		}
		if r.Error != nil {
			s += " " + r.Error.Code
		}
		if r.State != "" {
			s += " " + r.State
		}
		out = append(out, s)
	}
	return out
}

func (i *inbox) Messages() ([]journal.Message, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.dir == nil {
		return nil, i.fails
	}
	return i.dir.Messages()
}

func (i *inbox) RemoveMessage(m journal.Message) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.dir.RemoveMessage(m)
}

// send leaves a message, as another process does.
func (w *runFixture) send(m journal.Message) {
	w.t.Helper()
	w.inbox.mu.Lock()
	if w.inbox.dir == nil {
		w.inbox.dir = journal.Open(w.t.TempDir())
	}
	m.At = time.Now()
	err := w.inbox.dir.Send(m)
	w.inbox.mu.Unlock()
	if err != nil {
		w.t.Fatal(err)
	}
	select {
	case w.inbox.changed <- struct{}{}:
	default:
	}
}

func (w *runFixture) answer(key, value, digest string) {
	w.t.Helper()
	w.send(journal.Message{Kind: journal.Answer, Key: key, Value: json.RawMessage(value), Digest: digest, Who: journal.Sender{UID: 7}})
}

func (w *runFixture) messages() int {
	w.t.Helper()
	ms, err := w.inbox.Messages()
	if err != nil {
		w.t.Fatal(err)
	}
	return len(ms)
}
