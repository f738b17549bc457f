package supervise

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/system/process"
)

// LocalLauncher starts supervisors on this host.
type LocalLauncher struct {
	Executable       string   // this binary, see system.Executable
	Env              []string // of the supervisor itself, not of the command: nothing but what tests need
	Now              func() time.Time
	OwnsAllProcesses bool // every process that can be seen here belongs to the session itself
}

const (
	maxAck      = 64 << 10
	cancelGrace = 2 * time.Second
)

// Launch makes dir, which must be absolute, unless it is there, and starts a supervisor on it. It returns nil once `started`
// is on disk.
// ErrRefused is in the chain of an error after which nothing runs because of this call.
func (l LocalLauncher) Launch(ctx context.Context, dir string, spec Spec) error {
	if err := process.Supported(); err != nil {
		return MarkRefused(failure.New(failure.Unsupported, "commands cannot be run here: %v", err))
	}
	if err := files.MkdirAll(dir); err != nil {
		return MarkRefused(err)
	}
	return Handshake(ctx, dir, spec, func(context.Context, []byte) (Pipe, error) {
		d, err := process.Detach(l.Executable, []string{"laufwerk", Argument, dir}, l.Env, LogPath(dir))
		if err != nil {
			return Pipe{}, MarkRefused(failure.New(failure.Failed, "the supervisor could not be started: %v", err))
		}
		return Pipe{In: d.In, Out: d.Out, Exited: d.Exited, Close: func() { _ = d.Out.Close() }}, nil
	})
}

// Pipe reaches a supervisor that was just started.
type Pipe struct {
	In     io.WriteCloser  // its stdin; safe to close at any time; nil where it was started with the spec on it
	Out    io.Reader       // its stdout
	Exited <-chan struct{} // closed once it is certain that it has ended; nil where that cannot be learned
	Close  func()          // ends a read of Out, and gives up whatever leads there; it may be nil
}

// Handshake starts a supervisor on dir, as this host knows it, and hands it spec on its stdin. The directory must be there: a supervisor
// makes none. It returns nil once the supervisor has read spec and `started` is on disk, or may be.
// An error of start with ErrRefused in its chain says that nothing was started; any other leaves it open. ErrRefused is in the
// chain of an error after which nothing runs because of this call; after one of kind OutcomeUnknown, Abandon decides.
func Handshake(ctx context.Context, dir string, spec Spec, start func(ctx context.Context, stdin []byte) (Pipe, error)) error {
	data, err := json.Marshal(spec)
	if err != nil {
		return MarkRefused(err)
	}
	crash.Point("supervise/before-launch")
	p, err := start(ctx, data)
	if err != nil {
		if errors.Is(err, ErrRefused) || failure.Is(err, failure.OutcomeUnknown) {
			return err
		}
		return unclearLaunchError(dir, err)
	}
	crash.Point("supervise/after-launch")
	if p.Close != nil {
		defer p.Close()
	}
	if p.In != nil {
		go func() {
			_, _ = p.In.Write(data) // what does not arrive whole is not run
			_ = p.In.Close()
		}()
	}
	answer := make(chan *ack, 1)
	go func() { answer <- readAck(p.Out) }()
	select {
	case a := <-answer:
		return waitForLaunch(dir, a, p.Exited)
	case <-ctx.Done():
	}
	if p.In != nil {
		_ = p.In.Close()
	}
	select {
	case a := <-answer:
		return waitForLaunch(dir, a, p.Exited)
	case <-time.After(cancelGrace):
		return unclearLaunchError(dir, ctx.Err())
	}
}

// readAck is the supervisor's answer, nil where it gave none.
func readAck(r io.Reader) *ack {
	line, err := bufio.NewReader(io.LimitReader(r, maxAck)).ReadBytes('\n')
	if err != nil {
		return nil
	}
	var a ack
	if json.Unmarshal(line, &a) != nil {
		return nil
	}
	return &a
}

func waitForLaunch(dir string, a *ack, exited <-chan struct{}) error {
	switch {
	case a != nil && a.Started:
		return nil
	case a != nil:
		return MarkRefused(failure.New(failure.Failed, "the supervisor did not run the command: %s", a.Reason))
	}
	select {
	case <-exited:
	case <-time.After(cancelGrace):
		return unclearLaunchError(dir, errors.New("no answer"))
	}
	v, err := ReadState(dir)
	if err != nil || v.Started != nil {
		return err // it ran, or may have: how far it got, Wait finds out
	}
	return MarkRefused(failure.New(failure.Failed, "the supervisor ended without running the command%s", logTail(dir)))
}

func unclearLaunchError(dir string, why error) error {
	return failure.New(failure.OutcomeUnknown, "whether the command of %s was started is unknown: %v", dir, why)
}

func logTail(dir string) string {
	r, err := openRecords(dir)
	if err != nil {
		return ""
	}
	defer r.close()
	f, info, err := r.root.Open(logName)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size-500), 500))
	if err != nil || len(b) == 0 {
		return ""
	}
	return fmt.Sprintf(": %s", strings.TrimSpace(strings.ToValidUTF8(string(b), "\uFFFD")))
}

// Interrupt asks the command to stop; ErrGone of the process package where no supervisor lives.
func (l LocalLauncher) Interrupt(_ context.Context, dir string) error {
	v, err := ReadState(dir)
	if err != nil {
		return err
	}
	if !v.Locked || v.Started == nil || !l.isSupervisorOf(v.Started.Supervisor, dir) {
		return process.ErrGone
	}
	return l.signal(v.Started.Supervisor, syscall.SIGINT)
}
