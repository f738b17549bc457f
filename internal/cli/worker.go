package cli

import (
	"context"
	"encoding/json"
	"errors"
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

// OpenRuns opens the store and returns the use cases of runs. create says whether $LAUFWERK_HOME may be created; commands that only
// read must not.
type OpenRuns func(ctx context.Context, create bool) (*runs.Service, error)

// readWait bounds how long a command that only reads waits for the store.
const readWait = 2 * time.Second

// OpenToRead is OpenRuns for commands that only read: they report soon which process has the store, instead of waiting for it.
func (o OpenRuns) OpenToRead(ctx context.Context) (*runs.Service, error) {
	s, err := o(ctx, false)
	if err == nil {
		s.Store.SetWait(readWait)
	}
	return s, err
}

// runDocument describes a run after this process has executed or changed it.
type runDocument struct {
	Run      string               `json:"run"`
	Workflow string               `json:"workflow"`
	State    string               `json:"state"`
	Reason   string               `json:"reason,omitempty"`
	Output   json.RawMessage      `json:"output,omitempty"`
	Waiting  []workflow.Question  `json:"waiting,omitempty"`
	Kept     []runs.KeptWorkspace `json:"kept,omitempty"`
}

// caughtSignals are the signals since catchSignals. Release restores their default effect. runWorker never does, so that its final
// report is printed even if signals arrive meanwhile.
type caughtSignals struct {
	ch      <-chan syscall.Signal
	Release func()
}

// catchSignals keeps signals for runWorker, so that none ends the process between the creation of a run and its execution.
func catchSignals(ctx context.Context) *caughtSignals {
	watch, release := context.WithCancel(context.WithoutCancel(ctx))
	return &caughtSignals{ch: system.Signals(watch), Release: release}
}

type workOptions struct {
	Signals    *caughtSignals // nil: those that come from now on
	NoExchange bool
	Ask        workflow.Asker      // instead of asking at the terminal
	Event      func(journal.Event) // also called with every event
	Silent     bool                // print no document and no output at the end
}

// refuseInsideSession fails inside a session of laufwerk: an agent must not answer for a person. It prevents accidents, not attacks.
func refuseInsideSession(what string) error {
	if _, inside := system.Ancestry(supervise.MarkVariable); inside {
		return failure.New(failure.InsideSession, "%s is refused inside a session of laufwerk: only a person outside of it may do that", what)
	}
	return nil
}

// openToChange opens the store for a command that an agent must not give.
func (d *Deps) openToChange(ctx context.Context, command string) (*runs.Service, error) {
	if err := refuseInsideSession(command); err != nil {
		return nil, err
	}
	return d.Open(ctx, false)
}

// runWorker executes a run until it ends, waits or is stopped, and prints its state then.
func runWorker(ctx context.Context, d *Deps, s *runs.Service, st runs.StartedRun, o workOptions) error {
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
		h.Ask = func(ctx context.Context, q workflow.Question) (json.RawMessage, journal.Sender, error) {
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
	res, err := s.RunWorker(work, st, h)
	sig.over.Store(true)
	follow.stop()
	if err != nil {
		return failWithDocument(withDefaultHint(err, continueHint(err, st.Run.ID)), runDocument{Run: st.Run.ID, Workflow: st.Run.Workflow, State: runs.Interrupted})
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
		return failWithDocument(withDefaultHint(err, next), doc)
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

// continueHint is the next command for a run that has not ended. Without a valid journal it can only be cancelled.
func continueHint(err error, run string) string {
	if failure.Is(err, failure.JournalInvalid) {
		return "laufwerk runs cancel " + run + " && laufwerk cleanup " + run
	}
	return "laufwerk resume " + run
}

func withDefaultHint(err error, hint string) error {
	f := failure.As(err)
	if f == nil {
		return &failure.Error{Kind: failure.Failed, Err: err, Hint: hint}
	}
	if f.Hint == "" {
		f.Hint = hint
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
		text = "the terminal was closed; the processes of run %s continue under their supervisors"
	}
	return failure.New(kind, text, r.ID).WithHint("laufwerk resume %s", r.ID)
}

// signalHandler stops a run gracefully at the first interrupt, and the process at once at the second.
type signalHandler struct {
	d     *Deps
	stop  context.CancelCauseFunc
	run   runs.Run
	first chan syscall.Signal
	clear func() // what is drawn on the terminal
	over  atomic.Bool
}

// reportTimeout bounds how long the final report may take after a signal that arrives while it is printed.
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
			s.d.UI.Talkf("stopping: running operations are asked to end, and the run can be resumed (interrupt again to stop at once)\n")
			s.stop(session.ErrInterrupted)
		default:
			kind := failure.Interrupted
			if sig == syscall.SIGTERM {
				kind = failure.Terminated
			}
			s.clear()
			s.d.UI.Failure(failWithDocument(failure.New(kind, "stopped at once; the processes of run %s continue under their supervisors", s.run.ID).
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

// reportSettledRun reports a run that need not be executed here: it has ended, it waits, or another worker executes it.
func reportSettledRun(d *Deps, s *runs.Service, r runs.Run) error {
	res, err := s.CurrentResult(r)
	if err != nil {
		return err
	}
	return reportRun(d, res, 0, false)
}

// acquireRun calls acquire, which takes the lease of a run, and catches signals from its beginning: after a signal it fails with the
// state of the run, and later signals are left to runWorker. A second signal ends the process at once.
func acquireRun(ctx context.Context, s *runs.Service, run string, acquire func(context.Context) (runs.StartedRun, error)) (runs.StartedRun, *caughtSignals, error) {
	caught := catchSignals(ctx)
	acquiring, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var first syscall.Signal
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case first = <-caught.ch:
			cancel(session.ErrInterrupted)
		case <-acquiring.Done():
		}
	}()
	ended := make(chan struct{})
	go func() {
		if <-watched; first == 0 {
			return
		}
		select {
		case sig := <-caught.ch:
			system.Exit(128 + int(sig))
		case <-ended:
		}
	}()
	st, err := acquire(acquiring)
	cancel(nil)
	<-watched
	close(ended)
	if first != 0 && (err == nil || isCancellation(err)) {
		st.Lease.Release()
		err = readInterruption(context.WithoutCancel(ctx), s, run, first)
	}
	if err != nil {
		caught.Release()
		return runs.StartedRun{}, nil, err
	}
	return st, caught, nil
}

func isCancellation(err error) bool {
	return errors.Is(err, session.ErrInterrupted) || errors.Is(err, context.Canceled) || failure.Is(err, failure.Cancelled)
}

// readInterruption is the error for a run that was not executed because of a signal, with the run's state.
func readInterruption(ctx context.Context, s *runs.Service, run string, sig syscall.Signal) error {
	r, err := s.Get(ctx, run)
	if err != nil {
		return err
	}
	return failWithDocument(interruptionError(r, sig), runDocument{Run: r.ID, Workflow: r.Workflow, State: r.State, Reason: r.Reason})
}
