package supervise

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/process"
)

// What is in the chain of errors.
var (
	ErrRefused = errors.New("nothing was started") // of Launch and Start: this call runs nothing, now or later
	ErrLost    = errors.New("the supervisor is gone without a record of the command's end")
)

// MarkRefused marks an error after which nothing runs because of the call: ErrRefused is in its chain, and not in its text.
func MarkRefused(err error) error { return refusedError{err} }

type refusedError struct{ error }

func (r refusedError) Unwrap() []error { return []error{r.error, ErrRefused} }

// The streams of a command.
const (
	Stdout = 1
	Stderr = 2
)

func streamName(stream int) string { return [...]string{Stdout: "stdout", Stderr: "stderr"}[stream] }

// OperationState is a look at an operation's directory. Nothing is changed by looking.
type OperationState struct {
	Status     Status
	Locked     bool // a supervisor holds the lock: it lives, and so may something that it owns
	Started    *StartRecord
	Exit       *Exit
	FinalFence *FenceResult
}

// ReadState reads what the directory says; fs.ErrNotExist where there is none. NotStarted may still change, see Abandon.
func ReadState(dir string) (OperationState, error) {
	r, err := openRecords(dir)
	if err != nil {
		return OperationState{}, err
	}
	defer r.close()
	return r.readState()
}

// readState asks for the lock first: a supervisor writes the exit record before it gives the lock up, so that a free lock and
// no record, in this order, mean that none will come.
func (r *records) readState() (v OperationState, err error) {
	h, locked, err := r.lockHolder()
	if err != nil {
		return v, err
	}
	v.Locked = locked && h.Command != abandonCommand
	return v, r.readInto(&v)
}

func (r *records) readInto(v *OperationState) (err error) {
	if v.Started, err = readOptional[StartRecord](r, startedName); err != nil {
		return err
	}
	if v.Exit, err = readOptional[Exit](r, exitName); err != nil {
		return err
	}
	if v.FinalFence, err = readOptional[FenceResult](r, goneName); err != nil {
		return err
	}
	switch {
	case v.Exit != nil:
		v.Status = Ended
	case v.Locked:
		v.Status = Running
	case v.Started != nil:
		v.Status = Lost
	}
	return nil
}

const abandonCommand = "abandon"

// Abandon decides for good what became of an attempt. It takes the lock itself, so that no supervisor can start meanwhile:
// where nothing had been started, nothing ever will be (NotStarted). A missing directory is NotStarted too: a supervisor
// makes none.
func Abandon(dir string) (Status, error) {
	r, err := openRecords(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return NotStarted, nil
	}
	if err != nil {
		return Lost, err
	}
	defer r.close()
	l, err := r.acquireLock(abandonCommand)
	if failure.Is(err, failure.LockBusy) {
		v, err := r.readState()
		if err == nil && (v.Status == NotStarted || v.Status == Lost) { // it is about to start, or has just ended
			return Running, nil
		}
		return v.Status, err
	}
	if err != nil {
		return Lost, err
	}
	defer l.Release()
	var v OperationState
	if err := r.readInto(&v); err != nil || v.Status != NotStarted {
		return v.Status, err
	}
	if has, err := r.root.Exists(abandonedName); has || err != nil {
		return NotStarted, err
	}
	crash.Point("supervise/before-abandoned")
	err = r.write(abandonedName, struct{}{})
	crash.Point("supervise/after-abandoned")
	return NotStarted, err
}

// Process is a supervised command, seen from the worker.
type Process struct {
	dir string
	l   Launcher
	max int64
}

// Start launches a supervisor on dir and attaches to it. After an error with ErrRefused in its chain nothing runs; after
// one of kind OutcomeUnknown, Abandon decides.
func Start(ctx context.Context, l Launcher, dir string, spec Spec) (*Process, error) {
	if err := l.Launch(ctx, dir, spec); err != nil {
		return nil, err
	}
	return Attach(l, dir, spec.MaxOutput), nil
}

// Attach is the Process of an attempt that was started before, by this worker or another one, with at most maxOutput bytes
// of each stream: more is not read, however much is there.
func Attach(l Launcher, dir string, maxOutput int64) *Process {
	return &Process{dir: dir, l: l, max: maxOutput}
}

// Dir is the directory of records.
func (p *Process) Dir() string { return p.dir }

// Interrupt asks the command to stop in its own way; after the grace period its tree is ended. Without a living supervisor
// nothing happens.
func (p *Process) Interrupt(ctx context.Context) error {
	err := p.l.Interrupt(ctx, p.dir)
	if errors.Is(err, process.ErrGone) {
		return nil
	}
	return err
}

// Fence ends everything of it.
func (p *Process) Fence(ctx context.Context) FenceResult { return p.l.Fence(ctx, p.dir) }

// Wait waits for the command's end (its background processes may live on). A supervisor that vanished without a record is
// a failure of kind OutcomeUnknown with ErrLost in its chain.
func (p *Process) Wait(ctx context.Context) (Exit, error) {
	r, err := p.records()
	if err != nil {
		return Exit{}, err
	}
	defer r.close()
	w := newWatcher(p.dir)
	defer w.close()
	for {
		v, err := r.readState()
		if err != nil {
			return Exit{}, err
		}
		if v.Exit != nil {
			return *v.Exit, nil
		}
		if !v.Locked {
			return Exit{}, lostError(p.dir)
		}
		if err := w.next(ctx); err != nil {
			return Exit{}, err
		}
	}
}

// records opens the directory of what was started: that it is gone is no better than that the supervisor is.
func (p *Process) records() (*records, error) {
	r, err := openRecords(p.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, lostError(p.dir)
	}
	return r, err
}

func lostError(dir string) error {
	return &failure.Error{
		Kind: failure.OutcomeUnknown, Message: "how the command of " + dir + " ended is unknown", Err: ErrLost,
		Hint: "resume the run: what is left of the command is ended first",
	}
}

// Offsets are positions in the two streams.
type Offsets struct{ Stdout, Stderr int64 }

// followChunk is the most that Follow hands on at once, in bytes.
const followChunk = 64 << 10

// Follow hands on what the command writes, from the offsets on, as it is stored, until the command has ended and all of it
// was handed on. The chunk is only valid during the call. What its background processes write later is left out, so that
// what is followed now and what is read after a resume is the same. It fails as Wait does.
func (p *Process) Follow(ctx context.Context, from Offsets, fn func(stream int, chunk []byte, offset int64)) error {
	r, err := p.records()
	if err != nil {
		return err
	}
	defer r.close()
	w := newWatcher(p.dir)
	defer w.close()
	followed := [...]*followedStream{{stream: Stdout, at: from.Stdout, max: p.max}, {stream: Stderr, at: from.Stderr, max: p.max}}
	defer func() {
		for _, f := range followed {
			f.close()
		}
	}()
	buf := make([]byte, followChunk)
	for {
		v, err := r.readState()
		if err != nil {
			return err
		}
		for _, f := range followed {
			if err := f.read(ctx, r, v.Exit, buf, fn); err != nil {
				return err
			}
		}
		if v.Exit != nil {
			return nil
		}
		if !v.Locked {
			return lostError(p.dir)
		}
		if err := w.next(ctx); err != nil {
			return err
		}
	}
}

type followedStream struct {
	stream int
	at     int64
	max    int64
	f      *process.File
}

func (f *followedStream) close() {
	if f.f != nil {
		_ = f.f.Close()
	}
}

func (f *followedStream) read(ctx context.Context, r *records, exit *Exit, buf []byte, fn func(int, []byte, int64)) error {
	if f.f == nil {
		var err error
		if f.f, _, err = r.root.Open(streamName(f.stream)); errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return tamperedError(err)
		}
	}
	for ctx.Err() == nil {
		upto := f.max
		if exit != nil {
			upto = min(upto, exit.bytes(f.stream))
		}
		b := buf[:max(0, min(int64(len(buf)), upto-f.at))]
		n, err := f.f.ReadAt(b, f.at)
		if n > 0 {
			fn(f.stream, b[:n], f.at)
			f.at += int64(n)
		}
		if n == 0 || errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (e *Exit) bytes(stream int) int64 {
	if stream == Stderr {
		return e.StderrBytes
	}
	return e.StdoutBytes
}

// Output is what is stored of a stream, and how much the command wrote in all; it wrote more than it may where total
// exceeds Spec.MaxOutput. It fails where the disk did not take what it should have. What background processes write after the command's end is left out.
func (p *Process) Output(stream int) (stored []byte, total int64, err error) {
	r, err := openRecords(p.dir)
	if err != nil {
		return nil, 0, err
	}
	defer r.close()
	exit, err := readOptional[Exit](r, exitName)
	if err != nil {
		return nil, 0, err
	}
	f, info, err := r.root.Open(streamName(stream))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, tamperedError(err)
	}
	defer f.Close()
	total = info.Size
	if exit != nil {
		if exit.Incomplete != "" {
			return nil, exit.bytes(stream), failure.New(failure.Failed, "the output of the command is incomplete: %s", exit.Incomplete)
		}
		total = exit.bytes(stream)
	}
	stored, err = io.ReadAll(io.LimitReader(f, min(total, p.max)))
	return stored, total, err
}

// pollEvery finds out that a supervisor vanished, which no file event tells, and serves file systems without events.
const pollEvery = 100 * time.Millisecond

// coalesceTime is how long one event speaks for all that follow it.
const coalesceTime = time.Millisecond

// A command that has not ended after watched is waited for by events of its directory. Until then it is looked at after pauses
// that grow by an eighth from shortest on, for Linux takes 7 to 16 ms to give up an inotify instance, longer than most commands.
const (
	shortestPause = time.Millisecond / 2
	inotifyAfter  = 100 * time.Millisecond
)

// watcher says when it is worth looking again.
type watcher struct {
	dir   string
	pause time.Duration
	since time.Duration // the sum of all pauses
	w     *fsnotify.Watcher
}

func newWatcher(dir string) *watcher { return &watcher{dir: dir, pause: shortestPause} }

func (w *watcher) close() {
	if w.w != nil {
		go func(w *fsnotify.Watcher) { _ = w.Close() }(w.w)
	}
}

func (w *watcher) next(ctx context.Context) error {
	every := pollEvery
	var events chan fsnotify.Event
	var errs chan error
	switch {
	case w.since < inotifyAfter:
		every = w.pause
		w.since, w.pause = w.since+every, every+every/8
	case w.w == nil && w.start():
		return nil // what has happened since the last look, no event tells
	case w.w == nil:
		every = 10 * time.Millisecond
	default:
		events, errs = w.w.Events, w.w.Errors
	}
	t := time.NewTimer(every)
	defer t.Stop()
	select {
	case <-events:
		time.Sleep(coalesceTime) // a command that touches its records all the time must not keep this process busy
	case <-errs: //nolint:errcheck // events were lost: all the more reason to look again
	case <-t.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// start begins to wait for events, where there are any.
func (w *watcher) start() bool {
	made, err := fsnotify.NewWatcher()
	if err != nil {
		return false
	}
	if err := made.Add(w.dir); err != nil {
		_ = made.Close()
		return false
	}
	w.w = made
	return true
}
