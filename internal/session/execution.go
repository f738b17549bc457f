package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/sha256hex"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/system/crash"
)

// StopGrace is how long a program may take to stop in its own way.
const StopGrace = 5 * time.Second

// MaxOutput is how much of stdout, and of stderr, is kept, in bytes. What comes after is read, counted and dropped.
const MaxOutput = 16 << 20

// maxTries bounds how often one worker starts an attempt whose supervisor does not live to record an end.
const maxTries = 3

// command is what an operation runs under a supervisor.
type command struct {
	spec       func(sb providers.Sandbox, continued bool) (supervise.Spec, error)
	begin      func()                                    // before the first byte of an attempt
	onStdout   func(chunk []byte, fresh int, upto int64) // the last fresh bytes of chunk are not in the event log yet
	keepStdout bool                                      // all of stdout is wanted at the end
	annotate   func(at *attempt)                         // adds what the next worker needs to know of a new attempt
	restore    func(at attempt)                          // takes that up again
}

type commandResult struct {
	exit       supervise.Exit
	stdout     []byte
	stderr     []byte
	stderrTail string
	attempts   int
	attempt    attempt // the last one
}

func (r commandResult) millis() int64 {
	if r.exit.EndedAt.IsZero() {
		return 0
	}
	return r.exit.EndedAt.Sub(r.exit.StartedAt).Milliseconds()
}

// attempt is what the journal keeps of an attempt, so that a later worker finds it: the folder of its records, relative to the
// session's, and what its end is judged by.
type attempt struct {
	Claim string `json:"claim"`
	Dir   string `json:"dir"`
	Name  string `json:"name"`

	MaxOutput    int64  `json:"maxOutput,omitempty"`    // 0 where an older version wrote it
	Timeout      int64  `json:"timeout,omitempty"`      // ms; enforced by its supervisor, and by us where that fails to
	Conversation string `json:"conversation,omitempty"` // that the attempt continues
	Continued    bool   `json:"continued,omitempty"`    // an attempt before it was cut
	Spent        bool   `json:"spent,omitempty"`        // it ended, but its end is not the operation's: one more has to be made
}

// verdict is what became of an attempt.
type verdict int

const (
	finished verdict = iota // it ran to its end, which the result holds
	missing                 // it never ran, or is spent: the next one has nothing to continue
	cutShort                // it was ended before it finished: the next one continues it
)

// execution is the command of one operation in one sandbox. All its attempts belong to the same operation, one at a time.
type execution struct {
	command
	commandResult
	m        *Manager
	s        *state
	op       Operation
	launcher supervise.Launcher
}

// runSupervised runs a command until there is an exit record, in as few attempts as can be: an attempt that still runs is joined,
// one that has ended is taken as it ended, and only one that was certainly ended before its time is made again.
func (m *Manager) runSupervised(ctx context.Context, s *state, op Operation, c command) (_ commandResult, err error) {
	defer func() {
		if failure.Is(err, failure.SessionLost) {
			s.markLost(err)
		}
		err = InterpretError(ctx, err)
	}()
	attempts, data := op.Attempts()
	begun := len(data) > 0
	entering := ctx
	if begun {
		entering = context.WithoutCancel(ctx) // an attempt that was begun is found even if it is only to be ended
	}
	if cause := context.Cause(ctx); cause != nil && (!begun || !errors.Is(cause, ErrCancelled)) {
		return commandResult{}, cause
	}
	sb, err := m.enter(entering, s)
	if err != nil {
		return commandResult{}, err
	}
	x := &execution{command: c, commandResult: commandResult{attempts: attempts}, m: m, s: s, op: op, launcher: sb.Launcher()}
	continued := false
	if begun {
		v, err := x.adopt(ctx, data)
		if err != nil || v == finished {
			return x.commandResult, err
		}
		continued = v == cutShort || x.attempt.Continued
	}
	var refused error // why the last attempt was not started
	for range maxTries {
		if cause := context.Cause(ctx); cause != nil {
			return x.commandResult, cause // a new attempt would only be made to be ended
		}
		if refused, err = x.start(ctx, sb, continued); err != nil {
			return x.commandResult, err
		}
		if refused != nil {
			continue
		}
		v, err := x.await(ctx, 0)
		if err != nil || v == finished {
			return x.commandResult, err
		}
		continued = continued || v == cutShort
	}
	return x.commandResult, m.tooManyAttempts(op, maxTries, refused)
}

// tooManyAttempts ends the tries. refused is why the last one was not started, nil where it was, and was killed.
func (m *Manager) tooManyAttempts(op Operation, tries int, refused error) error {
	e := failure.New(failure.NotReady, "the supervisor of %s was killed %d times in a row: find out what kills processes on this host (out of memory?)", op.Name(), tries)
	if refused != nil {
		e.Message = fmt.Sprintf("the supervisor of %s did not start, %d times in a row: %v", op.Name(), tries, refused)
	}
	if f := failure.As(refused); f != nil && f.Hint != "" {
		return e.WithHint("%s\nlaufwerk resume %s", f.Hint, m.Run)
	}
	return e.WithHint("laufwerk resume %s", m.Run)
}

func (x *execution) dir() string { return filepath.Join(x.m.dir(x.s.claim), x.attempt.Dir) }

func (x *execution) process() *supervise.Process {
	return supervise.Attach(x.launcher, x.dir(), x.attempt.MaxOutput)
}

// start makes a new attempt durable and launches its supervisor. refused is why that did not come up, where another may.
func (x *execution) start(ctx context.Context, sb providers.Sandbox, continued bool) (refused, err error) {
	spec, err := x.spec(sb, continued)
	if err != nil {
		return nil, err
	}
	name := opName(x.op)
	spec.MaxOutput = cmp.Or(spec.MaxOutput, MaxOutput)
	spec.Mark, spec.Grace = supervise.Mark(x.s.claim, name), StopGrace
	at := attempt{Claim: x.s.claim, Name: name, Dir: attemptDir("", name, x.attempts+1), MaxOutput: spec.MaxOutput, Timeout: spec.Timeout.Milliseconds()}
	if x.annotate != nil {
		x.annotate(&at)
	}
	if err := x.op.Start(at); err != nil {
		return nil, err
	}
	x.attempt = at
	x.attempts++
	x.op.Event(journal.Event{Kind: "attempt"})
	crash.Point("session/before-launch")
	if err := x.launcher.Launch(ctx, x.dir(), spec); err != nil {
		switch status, aerr := supervise.Abandon(x.dir()); {
		case aerr != nil:
			return nil, x.unreadable(ctx, aerr)
		case status == supervise.NotStarted:
			if cause := context.Cause(ctx); cause != nil || failure.Is(err, failure.SessionLost) {
				return nil, cmp.Or(cause, err)
			}
			x.op.Event(journal.Event{Kind: "notice", Text: "the supervisor did not start: " + err.Error()})
			return err, nil
		}
	}
	crash.Point("session/after-launch")
	return nil, nil
}

// adopt finds the attempt that the journal names last, which another worker started, and follows it to its end.
func (x *execution) adopt(ctx context.Context, data json.RawMessage) (verdict, error) {
	if err := json.Unmarshal(data, &x.attempt); err != nil {
		return missing, failure.New(failure.JournalInvalid, "the journal does not say where attempt %d ran: %v", x.attempts, err)
	}
	x.attempt.MaxOutput = cmp.Or(x.attempt.MaxOutput, MaxOutput)
	if x.restore != nil {
		x.restore(x.attempt)
	}
	if x.attempt.Spent {
		return missing, nil
	}
	status, err := supervise.Abandon(x.dir())
	if err != nil {
		return missing, x.unreadable(ctx, err)
	}
	switch status {
	case supervise.NotStarted: // or its records were taken away: only fencing proves that nothing of it runs
		_, err := x.fence(ctx)
		return missing, err
	case supervise.Running:
		x.op.Event(journal.Event{Kind: "attached", Text: "joined the attempt that an earlier worker started"})
	}
	return x.await(ctx, x.m.EventsFrom(x.op.Name()))
}

// await follows an attempt that was started to its end. The event log has the first logged bytes of its stdout already.
func (x *execution) await(ctx context.Context, logged int64) (verdict, error) {
	if x.begin != nil {
		x.begin()
	}
	p := x.process()
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), ErrInterrupted) {
			_ = p.Interrupt(context.WithoutCancel(ctx))
		}
	})
	defer stop()
	wait, cancel := x.waitContext(ctx)
	defer cancel()
	err := p.Follow(wait, supervise.Offsets{}, func(stream int, chunk []byte, offset int64) {
		if stream == supervise.Stdout && x.onStdout != nil {
			upto := offset + int64(len(chunk))
			x.onStdout(chunk, int(max(0, min(int64(len(chunk)), upto-logged))), upto)
		}
	})
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, ErrCancelled):
		f := x.launcher.Cancel(context.WithoutCancel(ctx), p.Dir())
		if !f.Sure {
			return missing, x.m.unsureFence(x.s, f)
		}
		_ = x.op.RecordCut("cancelled; fenced by " + f.How)
		return missing, failure.New(failure.Cancelled, "cancelled while it ran; its processes were ended")
	case errors.Is(cause, ErrDetached):
		return missing, ErrDetached
	}
	var exit supervise.Exit
	if err == nil {
		exit, err = p.Wait(wait)
	}
	switch cause := context.Cause(ctx); {
	case cause != nil && !errors.Is(cause, ErrCancelled):
		// Whatever the program did with the request, the operation stays open: the next worker reads how it ended.
		return missing, cause
	case err != nil && errors.Is(context.Cause(wait), errOverdue):
		_, err := x.fence(ctx)
		x.exit = supervise.Exit{Code: 128 + 9, Signal: 9, TimedOut: true}
		return finished, err
	case err == nil && exit.Interrupted && !exit.TimedOut:
		method, err := x.fence(ctx)
		if err != nil {
			return missing, err
		}
		return cutShort, x.op.RecordCut("interrupted; fenced by " + method)
	case failure.Is(err, failure.OutcomeUnknown): // the supervisor is gone without an exit record
		method, err := x.fence(ctx)
		if err != nil {
			return missing, err
		}
		x.op.Event(journal.Event{Kind: "notice", Text: "the supervisor was ended from outside; its processes were fenced by " + method + " and is made again"})
		return cutShort, x.op.RecordCut("the supervisor was killed; fenced by " + method)
	case err != nil:
		return missing, x.unreadable(ctx, err)
	}
	x.exit = exit
	return finished, x.collect(ctx, p)
}

// waitContext is how long await waits: over an interruption, since how the program ends then says how to go on, but not over the
// time in which a supervisor surely would have enforced the command's timeout.
func (x *execution) waitContext(ctx context.Context) (context.Context, context.CancelFunc) {
	wait, cancel := ctx, context.CancelFunc(func() {})
	if !errors.Is(context.Cause(ctx), ErrDetached) {
		wait, cancel = detachableContext(ctx)
	}
	if x.attempt.Timeout <= 0 {
		return wait, cancel
	}
	wait, done := context.WithTimeoutCause(wait, time.Duration(x.attempt.Timeout)*time.Millisecond+x.m.endTimeout(), errOverdue)
	return wait, func() { done(); cancel() }
}

// collect reads what a finished attempt printed.
func (x *execution) collect(ctx context.Context, p *supervise.Process) (err error) {
	if x.keepStdout {
		if x.stdout, _, err = p.Output(supervise.Stdout); err != nil {
			return x.unreadable(ctx, err)
		}
	}
	if x.stderr, _, err = p.Output(supervise.Stderr); err != nil {
		return x.unreadable(ctx, err)
	}
	x.stderrTail = tail(x.stderr, 4096)
	return nil
}

// fence ends what the last attempt may still run, and says how that was proved.
func (x *execution) fence(ctx context.Context) (method string, err error) {
	f := x.process().Fence(context.WithoutCancel(ctx))
	if !f.Sure {
		return "", x.m.unsureFence(x.s, f)
	}
	return f.How, nil
}

// unreadable is the end of an operation whose records something in the sandbox has changed so that they cannot be read: how it
// ended will never be known. Other errors stay what they are.
func (x *execution) unreadable(ctx context.Context, err error) error {
	if !errors.Is(err, supervise.ErrTampered) {
		return err
	}
	if _, ferr := x.fence(ctx); ferr != nil {
		return ferr
	}
	return failure.Wrap(err, failure.Failed, "how it ended is not known; its processes were ended")
}

// errOverdue ends the wait for a command whose supervisor does not end it: what it ran may have stopped it.
var errOverdue = errors.New("it should have been ended by its timeout long ago")

// endTimeout is how long after a command's timeout its end is waited for.
func (m *Manager) endTimeout() time.Duration {
	if m.Overdue > 0 {
		return m.Overdue
	}
	return StopGrace + 30*time.Second
}

// detachableContext is a context that outlives an interruption, but neither a cancellation nor the worker's leaving.
func detachableContext(ctx context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if !errors.Is(context.Cause(ctx), ErrInterrupted) {
			cancel(context.Cause(ctx))
			return
		}
		time.AfterFunc(StopGrace+2*time.Second, func() { cancel(ErrInterrupted) })
	})
	return out, func() { stop(); cancel(nil) }
}

// unsureFence is the end of an operation whose processes may still run. Where that only cannot be learned now, the operation stays open
// and the session is usable again once it is known; otherwise the session is lost.
func (m *Manager) unsureFence(s *state, f supervise.FenceResult) error {
	if f.Later {
		return failure.New(failure.NotReady, "it cannot be determined now which processes of the session %q still run: %s", s.key, f.Why).
			WithHint("laufwerk resume %s", m.Run)
	}
	err := failure.New(failure.OutcomeUnknown, "it could not be confirmed that all processes of the session %q have ended: %s", s.key, f.Why).
		WithHint("close the session; `laufwerk claims list` shows its claim, and `laufwerk claims abandon CLAIM --reason …` abandons it")
	s.markLost(err)
	return err
}

// markLost leaves nothing of the session but its end. The operations of Host.exec, which share a state, each find out themselves.
func (s *state) markLost(err error) {
	if !s.host {
		s.lostReason = err
	}
}

// opName is the folder name of an operation's records: short, and the same in every worker.
func opName(op Operation) string {
	return sha256hex.Of(op.Name())[:12]
}

func tail(b []byte, n int) string {
	if len(b) > n {
		b = b[len(b)-n:]
	}
	return string(b)
}
