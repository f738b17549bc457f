// Package worker is how commands work on a run in the foreground: signals, what people see of it, questions at the
// terminal, and the document at the end. run, resume, answer and demo share it.
package worker

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/laufwerk/laufwerk/internal/cli"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/runs"
	"github.com/laufwerk/laufwerk/internal/session"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/workflow"
)

// Open makes the use cases of runs. create says whether the home may be made: commands that only look leave nothing behind.
type Open func(ctx context.Context, create bool) (*runs.Service, error)

// lookWait bounds how long a command that only looks waits for the store.
const lookWait = 2 * time.Second

// Look is Open for commands that only look: they would rather say who holds the store than wait for it.
func (o Open) Look(ctx context.Context) (*runs.Service, error) {
	s, err := o(ctx, false)
	if err == nil {
		s.Store.SetWait(lookWait)
	}
	return s, err
}

// Document is what is printed about a run that a worker left.
type Document struct {
	Run      string             `json:"run"`
	Workflow string             `json:"workflow"`
	State    string             `json:"state"`
	Reason   string             `json:"reason,omitempty"`
	Output   json.RawMessage    `json:"output,omitempty"`
	Waiting  []workflow.Waiting `json:"waiting,omitempty"`
	Kept     []runs.Kept        `json:"kept,omitempty"`
}

// Caught are the signals that have come since Catch. Release gives them back to the system. Work never does: what it has to
// say at its end is said also to whoever is in a hurry.
type Caught struct {
	ch      <-chan syscall.Signal
	Release func()
}

// Catch keeps signals for Work, so that none ends the process between the making of a run and the work on it.
func Catch(ctx context.Context) *Caught {
	watch, release := context.WithCancel(context.WithoutCancel(ctx))
	return &Caught{ch: system.Signals(watch), Release: release}
}

// Options of a worker.
type Options struct {
	Signals    *Caught // nil: those that come from now on
	NoExchange bool
	Ask        workflow.Asker      // instead of asking at the terminal
	Event      func(journal.Event) // is told everything too
	Silent     bool                // prints no document and no output at the end: the caller does
}

// Outside refuses to go on inside one of our own sessions: an agent must not answer for the person. It is a guard rail, no wall.
func Outside(what string) error {
	if _, inside := system.Ancestry(supervise.MarkVariable); inside {
		return failure.New(failure.InsideSession, "%s is refused inside a session of laufwerk: it is for the people outside", what)
	}
	return nil
}

// Work executes a run until it ends, waits or is stopped, and prints how it was left.
func Work(ctx context.Context, d *cli.Deps, s *runs.Service, st runs.Started, o Options) error {
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	sig := &signals{d: d, stop: stop, run: st.Run, first: make(chan syscall.Signal, 2)}
	if o.Signals == nil {
		o.Signals = Catch(ctx)
	}
	h := runs.Hooks{NoExchange: o.NoExchange, Ask: o.Ask}
	if h.Ask == nil && d.Interactive() {
		h.Ask = newTerminal(d, s, st.Run.ID).ask
	}
	follow := newFollower(d, st.Run.ID, h.Ask != nil)
	defer follow.stop()
	sig.clear = follow.stop
	if ask := h.Ask; ask != nil {
		h.Ask = func(ctx context.Context, q workflow.Waiting) (json.RawMessage, journal.Who, error) {
			defer follow.hold()()
			return ask(ctx, q)
		}
	}
	h.Event = func(ev journal.Event) {
		follow.event(ev)
		if o.Event != nil {
			o.Event(ev)
		}
	}
	go sig.watch(o.Signals.ch)
	res, err := s.Work(work, st, h)
	sig.over.Store(true)
	follow.stop()
	if err != nil {
		return cli.Fail(advised(err, wayOn(err, st.Run.ID)), Document{Run: st.Run.ID, Workflow: st.Run.Workflow, State: runs.Interrupted})
	}
	return report(d, res, sig.received(), o.Silent)
}

func report(d *cli.Deps, res runs.Result, sig syscall.Signal, silent bool) error {
	r := res.Run
	doc := Document{Run: r.ID, Workflow: r.Workflow, State: r.State, Reason: r.Reason, Waiting: r.Waiting, Kept: res.Kept}
	if string(res.Value) != "null" {
		doc.Output = res.Value
	}
	err := res.Err
	if err == nil && r.State == runs.Interrupted {
		err = interrupted(r, sig)
	}
	if err != nil {
		next := wayOn(err, r.ID)
		if r.Terminal() {
			next = "laufwerk runs show " + r.ID + "\nlaufwerk cleanup " + r.ID
		}
		return cli.Fail(advised(err, next), doc)
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

// wayOn is what to type next about a run that is not over: without its journal it can only be ended.
func wayOn(err error, run string) string {
	if failure.Is(err, failure.JournalInvalid) {
		return "laufwerk runs cancel " + run + " && laufwerk cleanup " + run
	}
	return "laufwerk resume " + run
}

// advised is err with what to type next, where it does not say so itself.
func advised(err error, next string) error {
	f := failure.As(err)
	if f == nil {
		return &failure.Error{Kind: failure.Failed, Err: err, Hint: next}
	}
	if f.Hint == "" {
		f.Hint = next
	}
	return err
}

func interrupted(r runs.Run, sig syscall.Signal) error {
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

// signals turns the first interruption into a graceful one, and the second into an immediate one.
type signals struct {
	d     *cli.Deps
	stop  context.CancelCauseFunc
	run   runs.Run
	first chan syscall.Signal
	clear func() // what is drawn on the terminal
	over  atomic.Bool
}

// sayingTime is what is left for telling how the run was left, once a signal comes and nothing else is to be done.
const sayingTime = time.Second

func (s *signals) watch(ch <-chan syscall.Signal) {
	n := 0
	for sig := range ch {
		n++
		switch {
		case s.over.Load():
			time.AfterFunc(sayingTime, func() { system.Exit(128 + int(sig)) })
		case sig == syscall.SIGHUP:
			n = 0
			s.note(sig)
			s.stop(session.ErrDetached)
		case n == 1:
			s.note(sig)
			s.d.UI.Talkf("stopping: what runs is asked to end; the run can be resumed (again: at once)\n")
			s.stop(session.ErrInterrupted)
		default:
			kind := failure.Interrupted
			if sig == syscall.SIGTERM {
				kind = failure.Terminated
			}
			s.clear()
			s.d.UI.Failure(cli.Fail(failure.New(kind, "stopped at once; what run %s runs goes on under its supervisor", s.run.ID).
				WithHint("laufwerk resume %s", s.run.ID), Document{Run: s.run.ID, Workflow: s.run.Workflow, State: runs.Interrupted}))
			system.Exit(kind.Exit())
		}
	}
}

func (s *signals) note(sig syscall.Signal) {
	select {
	case s.first <- sig:
	default:
	}
}

func (s *signals) received() syscall.Signal {
	select {
	case sig := <-s.first:
		return sig
	default:
		return 0
	}
}

// Left reports a run that nobody has to work on here: it is over, it waits, or somebody else is on it.
func Left(d *cli.Deps, s *runs.Service, r runs.Run) error {
	res, err := s.Left(r)
	if err != nil {
		return err
	}
	return report(d, res, 0, false)
}
