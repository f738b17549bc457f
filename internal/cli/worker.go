package cli

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/runs"
	"github.com/laufwerk/laufwerk/internal/session"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/workflow"
)

// OpenRuns makes the use cases of runs. create says whether the home may be made: commands that only look leave nothing behind.
type OpenRuns func(ctx context.Context, create bool) (*runs.Service, error)

// readWait bounds how long a command that only looks waits for the store.
const readWait = 2 * time.Second

// ToRead is OpenRuns for commands that only look: they would rather say who holds the store than wait for it.
func (o OpenRuns) ToRead(ctx context.Context) (*runs.Service, error) {
	s, err := o(ctx, false)
	if err == nil {
		s.Store.SetWait(readWait)
	}
	return s, err
}

// runDocument is what is printed about a run that a worker left.
type runDocument struct {
	Run      string             `json:"run"`
	Workflow string             `json:"workflow"`
	State    string             `json:"state"`
	Reason   string             `json:"reason,omitempty"`
	Output   json.RawMessage    `json:"output,omitempty"`
	Waiting  []workflow.Waiting `json:"waiting,omitempty"`
	Kept     []runs.Kept        `json:"kept,omitempty"`
}

// caughtSignals are the signals that have come since catchSignals. Release gives them back to the system. workOnRun never does: what it has to
// say at its end is said also to whoever is in a hurry.
type caughtSignals struct {
	ch      <-chan syscall.Signal
	Release func()
}

// catchSignals keeps signals for workOnRun, so that none ends the process between the making of a run and the work on it.
func catchSignals(ctx context.Context) *caughtSignals {
	watch, release := context.WithCancel(context.WithoutCancel(ctx))
	return &caughtSignals{ch: system.Signals(watch), Release: release}
}

// workOptions of a worker.
type workOptions struct {
	Signals    *caughtSignals // nil: those that come from now on
	NoExchange bool
	Ask        workflow.Asker      // instead of asking at the terminal
	Event      func(journal.Event) // is told everything too
	Silent     bool                // prints no document and no output at the end: the caller does
}

// RefuseInsideSession refuses to go on inside one of our own sessions: an agent must not answer for the person. It is a guard rail, no wall.
func RefuseInsideSession(what string) error {
	if _, inside := system.Ancestry(supervise.MarkVariable); inside {
		return failure.New(failure.InsideSession, "%s is refused inside a session of laufwerk: it is for the people outside", what)
	}
	return nil
}

// workOnRun executes a run until it ends, waits or is stopped, and prints how it was left.
func workOnRun(ctx context.Context, d *Deps, s *runs.Service, st runs.Started, o workOptions) error {
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	sig := &signalHandler{d: d, stop: stop, run: st.Run, first: make(chan syscall.Signal, 2)}
	if o.Signals == nil {
		o.Signals = catchSignals(ctx)
	}
	h := runs.Hooks{NoExchange: o.NoExchange, Ask: o.Ask}
	if h.Ask == nil && d.Interactive() {
		h.Ask = newTerminal(d, s, st.Run.ID).ask
	}
	follow := newProgressDisplay(d, st.Run.ID, h.Ask != nil)
	defer follow.stop()
	sig.clear = follow.stop
	if ask := h.Ask; ask != nil {
		h.Ask = func(ctx context.Context, q workflow.Waiting) (json.RawMessage, journal.Who, error) {
			defer follow.pause()()
			return ask(ctx, q)
		}
	}
	h.Event = func(ev journal.Event) {
		follow.show(ev)
		if o.Event != nil {
			o.Event(ev)
		}
	}
	go sig.watch(o.Signals.ch)
	res, err := s.Work(work, st, h)
	sig.over.Store(true)
	follow.stop()
	if err != nil {
		return Fail(withDefaultHint(err, continueHint(err, st.Run.ID)), runDocument{Run: st.Run.ID, Workflow: st.Run.Workflow, State: runs.Interrupted})
	}
	return reportRun(d, res, sig.received(), o.Silent)
}

func reportRun(d *Deps, res runs.Result, sig syscall.Signal, silent bool) error {
	r := res.Run
	doc := runDocument{Run: r.ID, Workflow: r.Workflow, State: r.State, Reason: r.Reason, Waiting: r.Waiting, Kept: res.Kept}
	if string(res.Value) != "null" {
		doc.Output = res.Value
	}
	err := res.Err
	if err == nil && r.State == runs.Interrupted {
		err = interruptionError(r, sig)
	}
	if err != nil {
		next := continueHint(err, r.ID)
		if r.Terminal() {
			next = "laufwerk runs show " + r.ID + "\nlaufwerk cleanup " + r.ID
		}
		return Fail(withDefaultHint(err, next), doc)
	}
	if len(doc.Output) > 0 && !silent {
		var text string
		if json.Unmarshal(doc.Output, &text) == nil {
			d.UI.Printf("%s\n", text)
		} else {
			d.UI.Printf("%s\n", string(doc.Output))
		}
	}
	d.UI.Talkf("run %s %s\n", r.ID, r.State)
	if silent {
		return nil
	}
	for _, k := range res.Kept {
		d.UI.Talkf("kept: workspace %s, %s\n", k.Claim, k.Why)
	}
	if len(res.Kept) > 0 {
		d.UI.Next("laufwerk diff " + r.ID + "\nlaufwerk cleanup " + r.ID + " --discard-changes")
	}
	return d.UI.Document(doc)
}

// continueHint is what to type next about a run that is not over: without its journal it can only be ended.
func continueHint(err error, run string) string {
	if failure.Is(err, failure.JournalInvalid) {
		return "laufwerk runs cancel " + run + " && laufwerk cleanup " + run
	}
	return "laufwerk resume " + run
}

// withDefaultHint is err with what to type next, where it does not say so itself.
func withDefaultHint(err error, next string) error {
	f := failure.As(err)
	if f == nil {
		return &failure.Error{Kind: failure.Failed, Err: err, Hint: next}
	}
	if f.Hint == "" {
		f.Hint = next
	}
	return err
}

func interruptionError(r runs.Run, sig syscall.Signal) error {
	kind := failure.Interrupted
	switch sig {
	case syscall.SIGTERM:
		kind = failure.Terminated
	case syscall.SIGHUP:
		kind = failure.HungUp
	}
	text := "run %s is interrupted; its workspace, conversation and history are kept"
	if sig == syscall.SIGHUP {
		text = "the terminal is gone; what runs in %s goes on under its supervisor"
	}
	return failure.New(kind, text, r.ID).WithHint("laufwerk resume %s", r.ID)
}

// signalHandler turns the first interruption into a graceful one, and the second into an immediate one.
type signalHandler struct {
	d     *Deps
	stop  context.CancelCauseFunc
	run   runs.Run
	first chan syscall.Signal
	clear func() // what is drawn on the terminal
	over  atomic.Bool
}

// reportTimeout is what is left for telling how the run was left, once a signal comes and nothing else is to be done.
const reportTimeout = time.Second

func (s *signalHandler) watch(ch <-chan syscall.Signal) {
	n := 0
	for sig := range ch {
		n++
		switch {
		case s.over.Load():
			time.AfterFunc(reportTimeout, func() { system.Exit(128 + int(sig)) })
		case sig == syscall.SIGHUP:
			n = 0
			s.record(sig)
			s.stop(session.ErrDetached)
		case n == 1:
			s.record(sig)
			s.d.UI.Talkf("stopping: what runs is asked to end; the run can be resumed (again: at once)\n")
			s.stop(session.ErrInterrupted)
		default:
			kind := failure.Interrupted
			if sig == syscall.SIGTERM {
				kind = failure.Terminated
			}
			s.clear()
			s.d.UI.Failure(Fail(failure.New(kind, "stopped at once; what run %s runs goes on under its supervisor", s.run.ID).
				WithHint("laufwerk resume %s", s.run.ID), runDocument{Run: s.run.ID, Workflow: s.run.Workflow, State: runs.Interrupted}))
			system.Exit(kind.Exit())
		}
	}
}

func (s *signalHandler) record(sig syscall.Signal) {
	select {
	case s.first <- sig:
	default:
	}
}

func (s *signalHandler) received() syscall.Signal {
	select {
	case sig := <-s.first:
		return sig
	default:
		return 0
	}
}

// reportSettledRun reports a run that nobody has to work on here: it is over, it waits, or somebody else is on it.
func reportSettledRun(d *Deps, s *runs.Service, r runs.Run) error {
	res, err := s.Left(r)
	if err != nil {
		return err
	}
	return reportRun(d, res, 0, false)
}
