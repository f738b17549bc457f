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

// Grace is how long a program may take to stop in its own way.
const Grace = 5 * time.Second

// MaxOutput is how much of stdout, and of stderr, is kept, in bytes. What comes after is read, counted and dropped.
const MaxOutput = 16 << 20

// maxTries bounds how often one worker starts an attempt whose supervisor does not live to record an end.
const maxTries = 3

// work is a command that an operation runs under a supervisor.
type work struct {
	spec   func(sb providers.Sandbox, continued bool) (supervise.Spec, error)
	begin  func()                                     // before the first byte of an attempt
	stdout func(chunk []byte, untold int, upto int64) // the last untold bytes of chunk are new to the event log
	keep   bool                                       // stdout as a whole is wanted at the end
	leave  func(at *place)                            // adds what the next worker needs to know of a new attempt
	recall func(at place)                             // takes that up again
}

// result is how it ended.
type result struct {
	exit       supervise.Exit
	stdout     []byte
	stderr     []byte
	stderrTail string
	attempts   int
	at         place // of the last attempt
}

func (r result) millis() int64 {
	if r.exit.EndedAt.IsZero() {
		return 0
	}
	return r.exit.EndedAt.Sub(r.exit.StartedAt).Milliseconds()
}

// place is what an attempt leaves for whoever comes after: the folder of its records, relative to the session's.
type place struct {
	Claim string `json:"claim"`
	Dir   string `json:"dir"`
	Name  string `json:"name"`

	MaxOutput    int64  `json:"maxOutput,omitempty"`    // 0 where an older version wrote it
	Timeout      int64  `json:"timeout,omitempty"`      // ms; its supervisor's affair, unless that does not see to it
	Conversation string `json:"conversation,omitempty"` // that the attempt continues
	Continued    bool   `json:"continued,omitempty"`    // an attempt before it was cut
	Spent        bool   `json:"spent,omitempty"`        // it ended, and not as the operation did: one more has to be made
}

// supervised runs work until there is an exit record, in as few attempts as can be: an attempt that still runs is joined,
// one that has ended is taken as it ended, and only one that was certainly ended before its time is made again.
func (m *Manager) supervised(ctx context.Context, s *state, op Operation, w work) (_ result, err error) {
	defer func() {
		if failure.Is(err, failure.SessionLost) {
			s.lose(err)
		}
		err = Ended(ctx, err)
	}()
	attempts, data := op.Attempts()
	begun := len(data) > 0
	entering := ctx
	if begun {
		entering = context.WithoutCancel(ctx) // what was begun is found, also where it is only to be ended
	}
	if cause := context.Cause(ctx); cause != nil && (!begun || !errors.Is(cause, ErrCancelled)) {
		return result{}, cause
	}
	sb, err := m.enter(entering, s)
	if err != nil {
		return result{}, err
	}
	l := sb.Launcher()
	r := result{attempts: attempts}
	continued := false
	if begun {
		var done bool
		if done, continued, err = m.takeUp(ctx, s, op, l, data, w, &r); err != nil || done {
			return r, err
		}
	}
	name := opName(op)
	var refused error // why the last attempt was not started
	for tries := 0; ; tries++ {
		if tries == maxTries {
			return r, m.tooOften(op, tries, refused)
		}
		if cause := context.Cause(ctx); cause != nil {
			return r, cause // a new attempt would only be made to be ended
		}
		spec, err := w.spec(sb, continued)
		if err != nil {
			return r, err
		}
		spec.MaxOutput = cmp.Or(spec.MaxOutput, MaxOutput)
		spec.Mark, spec.Grace = supervise.Mark(s.claim, name), Grace
		at := place{Claim: s.claim, Name: name, Dir: opDir("", name, r.attempts+1), MaxOutput: spec.MaxOutput, Timeout: spec.Timeout.Milliseconds()}
		if w.leave != nil {
			w.leave(&at)
		}
		if err := op.Start(at); err != nil {
			return r, err
		}
		r.at = at
		r.attempts++
		op.Event(journal.Event{Kind: "attempt"})
		dir := filepath.Join(m.dir(s.claim), at.Dir)
		crash.Point("session/before-launch")
		if err := l.Launch(ctx, dir, spec); err != nil {
			status, aerr := supervise.Abandon(dir)
			if aerr != nil {
				return r, m.spoilt(ctx, s, l, dir, aerr)
			}
			if status == supervise.NotStarted {
				if cause := context.Cause(ctx); cause != nil || failure.Is(err, failure.SessionLost) {
					return r, cmp.Or(cause, err)
				}
				op.Event(journal.Event{Kind: "notice", Text: "the supervisor did not come up: " + err.Error()})
				refused = err
				continue
			}
		}
		refused = nil
		crash.Point("session/after-launch")
		done, again, err := m.join(ctx, s, op, l, dir, w, &r, 0)
		if err != nil || done {
			return r, err
		}
		continued = continued || again
	}
}

// tooOften ends the tries. refused is why the last one was not started, nil where it was, and was killed.
func (m *Manager) tooOften(op Operation, tries int, refused error) error {
	e := failure.New(failure.NotReady, "the supervisor of %s was killed %d times in a row: find out who ends processes here (out of memory?)", op.Name(), tries)
	if refused != nil {
		e.Message = fmt.Sprintf("the supervisor of %s did not come up, %d times in a row: %v", op.Name(), tries, refused)
	}
	if f := failure.As(refused); f != nil && f.Hint != "" {
		return e.WithHint("%s\nlaufwerk resume %s", f.Hint, m.Run)
	}
	return e.WithHint("laufwerk resume %s", m.Run)
}

// takeUp finds the attempt that the journal names last. continued means that the next one goes on after one that was cut.
func (m *Manager) takeUp(ctx context.Context, s *state, op Operation, l supervise.Launcher, data json.RawMessage, w work, r *result) (done, continued bool, err error) {
	var at place
	if err := json.Unmarshal(data, &at); err != nil {
		return false, false, failure.New(failure.JournalInvalid, "the journal does not say where attempt %d ran: %v", r.attempts, err)
	}
	if at.MaxOutput == 0 {
		at.MaxOutput = MaxOutput
	}
	if r.at = at; w.recall != nil {
		w.recall(at)
	}
	if at.Spent {
		return false, at.Continued, nil
	}
	done, again, err := m.rejoin(ctx, s, op, l, filepath.Join(m.dir(s.claim), at.Dir), w, r)
	return done, at.Continued || again, err
}

// rejoin decides what became of an attempt that another worker started. again means: make one more attempt.
func (m *Manager) rejoin(ctx context.Context, s *state, op Operation, l supervise.Launcher, dir string, w work, r *result) (done, again bool, err error) {
	status, err := supervise.Abandon(dir)
	if err != nil {
		return false, false, m.spoilt(ctx, s, l, dir, err)
	}
	switch status {
	case supervise.NotStarted: // or its records were taken away, which those who can fence it find out
		if f := l.Fence(context.WithoutCancel(ctx), dir); !f.Sure {
			return false, false, m.unsure(s, f)
		}
		return false, false, nil
	case supervise.Running:
		op.Event(journal.Event{Kind: "attached", Text: "joined the attempt that an earlier worker started"})
	}
	return m.join(ctx, s, op, l, dir, w, r, m.EventsFrom(op.Name()))
}

// join waits for the end of an attempt that was started.
func (m *Manager) join(ctx context.Context, s *state, op Operation, l supervise.Launcher, dir string, w work, r *result, told int64) (done, again bool, err error) {
	if w.begin != nil {
		w.begin()
	}
	p := supervise.Attach(l, dir, r.at.MaxOutput)
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), ErrInterrupted) {
			_ = l.Interrupt(context.WithoutCancel(ctx), dir)
		}
	})
	defer stop()
	wait := ctx
	if cause := context.Cause(ctx); cause == nil || !errors.Is(cause, ErrDetached) {
		// An interrupted program is waited for: its end tells how to go on.
		var cancel context.CancelFunc
		wait, cancel = untilDetached(ctx)
		defer cancel()
	}
	if r.at.Timeout > 0 {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeoutCause(wait, time.Duration(r.at.Timeout)*time.Millisecond+m.overdue(), errOverdue)
		defer cancel()
	}
	err = p.Follow(wait, supervise.Offsets{}, func(stream int, chunk []byte, offset int64) {
		if stream == supervise.Stdout && w.stdout != nil {
			upto := offset + int64(len(chunk))
			w.stdout(chunk, int(max(0, min(int64(len(chunk)), upto-told))), upto)
		}
	})
	cause := context.Cause(ctx)
	switch {
	case cause != nil && errors.Is(cause, ErrCancelled):
		f := cancelled(context.WithoutCancel(ctx), l, dir)
		if !f.Sure {
			return false, false, m.unsure(s, f)
		}
		_ = op.Cut("cancelled; fenced by " + f.How)
		return false, false, failure.New(failure.Cancelled, "cancelled while it ran; what it ran was ended")
	case cause != nil && errors.Is(cause, ErrDetached):
		return false, false, ErrDetached
	}
	var exit supervise.Exit
	if err == nil {
		exit, err = p.Wait(wait)
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, ErrCancelled) {
		// Whatever the program did with the request, the operation stays open: the next worker reads how it ended.
		return false, false, cause
	}
	if err != nil && errors.Is(context.Cause(wait), errOverdue) {
		f := l.Fence(context.WithoutCancel(ctx), dir)
		if !f.Sure {
			return false, false, m.unsure(s, f)
		}
		r.exit = supervise.Exit{Code: 128 + 9, Signal: 9, TimedOut: true}
		return true, false, nil
	}
	if err == nil && exit.Interrupted && !exit.TimedOut {
		f := l.Fence(context.WithoutCancel(ctx), dir)
		if !f.Sure {
			return false, false, m.unsure(s, f)
		}
		return false, true, op.Cut("interrupted; fenced by " + f.How)
	}
	if failure.Is(err, failure.OutcomeUnknown) { // the supervisor is gone without an exit record
		f := l.Fence(context.WithoutCancel(ctx), dir)
		if !f.Sure {
			return false, false, m.unsure(s, f)
		}
		op.Event(journal.Event{Kind: "notice", Text: "the supervisor was ended from outside; what it ran was fenced by " + f.How + " and is made again"})
		return false, true, op.Cut("the supervisor was killed; fenced by " + f.How)
	}
	if err != nil {
		return false, false, m.spoilt(ctx, s, l, dir, err)
	}
	r.exit = exit
	if w.keep {
		if r.stdout, _, err = p.Output(supervise.Stdout); err != nil {
			return false, false, m.spoilt(ctx, s, l, dir, err)
		}
	}
	if r.stderr, _, err = p.Output(supervise.Stderr); err != nil {
		return false, false, m.spoilt(ctx, s, l, dir, err)
	}
	r.stderrTail = tail(r.stderr, 4096)
	return true, false, nil
}

// cancelled ends what a cancelled operation ran, and in some places the place with it.
func cancelled(ctx context.Context, l supervise.Launcher, dir string) supervise.Fenced {
	if e, ok := l.(supervise.Ending); ok {
		return e.Cancel(ctx, dir)
	}
	return l.Fence(ctx, dir)
}

// errOverdue ends the wait for a command whose supervisor does not end it: what it ran may have stopped it.
var errOverdue = errors.New("it should have been ended by its timeout long ago")

// overdue is how long after a command's timeout its end is waited for.
func (m *Manager) overdue() time.Duration {
	if m.Overdue > 0 {
		return m.Overdue
	}
	return Grace + 30*time.Second
}

// spoilt is what an operation comes to whose records something in the sandbox has changed so that they cannot be read: how it
// ended will never be known. Other errors stay what they are.
func (m *Manager) spoilt(ctx context.Context, s *state, l supervise.Launcher, dir string, err error) error {
	if !errors.Is(err, supervise.ErrSpoilt) {
		return err
	}
	if f := l.Fence(context.WithoutCancel(ctx), dir); !f.Sure {
		return m.unsure(s, f)
	}
	return failure.Wrap(err, failure.Failed, "how it ended is not known; what it ran was ended")
}

// untilDetached is a context that outlives an interruption, but neither a cancellation nor the worker's leaving.
func untilDetached(ctx context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if !errors.Is(context.Cause(ctx), ErrInterrupted) {
			cancel(context.Cause(ctx))
			return
		}
		time.AfterFunc(Grace+2*time.Second, func() { cancel(ErrInterrupted) })
	})
	return out, func() { stop(); cancel(nil) }
}

// unsure is what an operation comes to whose processes may still run. Where that cannot be learned now it stays open, and the
// session can be used again once it is.
func (m *Manager) unsure(s *state, f supervise.Fenced) error {
	if f.Later {
		return failure.New(failure.NotReady, "what still runs of the session %q cannot be learned now: %s", s.key, f.Why).
			WithHint("laufwerk resume %s", m.Run)
	}
	err := failure.New(failure.OutcomeUnknown, "it cannot be made sure that nothing of the session %q runs any more: %s", s.key, f.Why).
		WithHint("close the session; `laufwerk claims list` shows what is known, `laufwerk claims abandon CLAIM --reason …` gives it up")
	s.lose(err)
	return err
}

// lose leaves nothing of the session but its end. The operations of Host.exec, which share a state, each find out themselves.
func (s *state) lose(err error) {
	if !s.host {
		s.lost = err
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
