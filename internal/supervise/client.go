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

// Errors in the chains of those that are returned.
var (
	ErrRefused = errors.New("nothing was started") // of Launch and Start: this call runs nothing, now or later
	ErrLost    = errors.New("the supervisor is gone without a record of the command's end")
)

// MarkRefused puts ErrRefused into the chain of an error, and not into its text.
func MarkRefused(err error) error { return refusedError{err} }

type refusedError struct{ error }

func (r refusedError) Unwrap() []error { return []error{r.error, ErrRefused} }

// The streams of a command.
const (
	Stdout = 1
	Stderr = 2
)

func streamName(stream int) string { return [...]string{Stdout: "stdout", Stderr: "stderr"}[stream] }

// OperationState is what an operation's directory says.
type OperationState struct {
	Status  Status
	Locked  bool // a supervisor holds the lock: it lives, and so may something that it owns
	Started *StartRecord
	Exit    *Exit
	Gone    *FenceResult
}

// ReadState reads an operation's directory; fs.ErrNotExist where there is none. NotStarted may still change, see Abandon.
func ReadState(dir string) (OperationState, error) {
	r, err := openRecords(dir)
	if err != nil {
		return OperationState{}, err
	}
	defer r.close()
	return r.readState()
}

// readState queries the lock first: a supervisor writes the exit record before it unlocks, so that a free lock and then no record
// mean that none will come.
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
	if v.Gone, err = readOptional[FenceResult](r, goneName); err != nil {
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

// Abandon decides the state of an attempt for good. It takes the lock, so that no supervisor can start meanwhile, and marks an
// attempt that was not started so that it never will be. A missing directory is NotStarted: a supervisor makes none.
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

// Process is the worker's side of a supervised command.
type Process struct {
	dir string
	l   Launcher
	max int64
}

// Start launches a supervisor on dir and attaches to it. Its errors are those of Handshake.
func Start(ctx context.Context, l Launcher, dir string, spec Spec) (*Process, error) {
	if err := l.Launch(ctx, dir, spec); err != nil {
		return nil, err
	}
	return Attach(l, dir, spec.MaxOutput), nil
}

// Attach is the Process of an attempt that was started before, by any worker. At most maxOutput bytes of each stream are read.
func Attach(l Launcher, dir string, maxOutput int64) *Process {
	return &Process{dir: dir, l: l, max: maxOutput}
}

// Dir is the directory of records.
func (p *Process) Dir() string { return p.dir }

// Interrupt signals the command; after the grace period its tree is killed. Without a live supervisor it does nothing.
func (p *Process) Interrupt(ctx context.Context) error {
	err := p.l.Interrupt(ctx, p.dir)
	if errors.Is(err, process.ErrGone) {
		return nil
	}
	return err
}

// Fence ends everything of the command.
func (p *Process) Fence(ctx context.Context) FenceResult { return p.l.Fence(ctx, p.dir) }

// Wait waits for the command's end; its background processes may go on. A supervisor that vanished without a record is a failure
// of kind OutcomeUnknown with ErrLost in its chain.
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

// records opens the directory. After a start, a missing directory means the same as a vanished supervisor.
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

// followChunk bounds one chunk of Follow, in bytes.
const followChunk = 64 << 10

// Follow calls fn with the command's stored output from the offsets on, until the command has ended. A chunk is valid during its call
// only. Output of background processes after the command's end is left out, so that a resume reads the same. It fails as Wait does.
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

// Output is the stored part of a stream, and how many bytes the command wrote in all. It fails where the disk was full. Output of
// background processes after the command's end is left out.
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
			return nil, exit.bytes(stream), failure.New(failure.Failed, "what the command wrote is not whole: %s", exit.Incomplete)
		}
		total = exit.bytes(stream)
	}
	stored, err = io.ReadAll(io.LimitReader(f, min(total, p.max)))
	return stored, total, err
}

// pollEvery is for what no file event tells: a supervisor that vanished, and file systems without events.
const pollEvery = 100 * time.Millisecond

// coalesceTime is how long events are merged into one.
const coalesceTime = time.Millisecond

// Before inotifyAfter the directory is polled with pauses that grow by an eighth; then file events are awaited. Linux takes 7 to 16 ms
// to close an inotify instance, longer than most commands take.
const (
	shortestPause = time.Millisecond / 2
	inotifyAfter  = 100 * time.Millisecond
)

// watcher says when to read the records again.
type watcher struct {
	dir   string
	pause time.Duration
	since time.Duration // the sum of all pauses
	w     *fsnotify.Watcher
}

func newWatcher(dir string) *watcher { return &watcher{dir: dir, pause: shortestPause} }

// close waits for nothing.
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
		return nil // changes before the watch began have no event
	case w.w == nil:
		every = 10 * time.Millisecond
	default:
		events, errs = w.w.Events, w.w.Errors
	}
	t := time.NewTimer(every)
	defer t.Stop()
	select {
	case <-events:
		time.Sleep(coalesceTime) // a command that writes its records all the time must not keep this process busy
	case <-errs: //nolint:errcheck // events were lost: read again
	case <-t.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// start watches the directory; false where that is not possible.
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
