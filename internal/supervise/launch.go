package supervise

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
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
	Executable string   // this binary, see system.Executable
	Env        []string // of the supervisor itself, not of the command: nothing but what tests need
	Now        func() time.Time
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
		return errors.Join(failure.New(failure.Unsupported, "commands cannot be run here: %v", err), ErrRefused)
	}
	data, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	if err := files.MkdirAll(dir); err != nil {
		return errors.Join(err, ErrRefused)
	}
	log := filepath.Join(dir, logName)
	crash.Point("supervise/before-launch")
	d, err := process.Detach(l.Executable, []string{"laufwerk", Argument, dir}, l.Env, log)
	if err != nil {
		return errors.Join(failure.New(failure.Failed, "the supervisor could not be started: %v", err), ErrRefused)
	}
	crash.Point("supervise/after-launch")
	defer d.Out.Close()
	go func() {
		_, _ = d.In.Write(data) // what does not arrive whole is not run
		_ = d.In.Close()
	}()
	answer := make(chan *ack, 1)
	go func() { answer <- readAck(d.Out) }()
	select {
	case a := <-answer:
		return launched(dir, a, d.Exited)
	case <-ctx.Done():
	}
	_ = d.In.Close()
	select {
	case a := <-answer:
		return launched(dir, a, d.Exited)
	case <-time.After(cancelGrace):
		return unclear(dir, ctx.Err())
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

func launched(dir string, a *ack, exited <-chan struct{}) error {
	switch {
	case a != nil && a.Started:
		return nil
	case a != nil:
		return errors.Join(failure.New(failure.Failed, "the supervisor did not run the command: %s", a.Reason), ErrRefused)
	}
	select {
	case <-exited:
	case <-time.After(cancelGrace):
		return unclear(dir, errors.New("no answer"))
	}
	v, err := Look(dir)
	if err != nil || v.Started != nil {
		return err // it ran, or may have: how far it got, Wait finds out
	}
	return errors.Join(failure.New(failure.Failed, "the supervisor ended without running the command%s", lastWords(dir)), ErrRefused)
}

func unclear(dir string, why error) error {
	return failure.New(failure.OutcomeUnknown, "whether the command of %s was started is unknown: %v", dir, why)
}

// lastWords is the end of the supervisor's log.
func lastWords(dir string) string {
	b, err := files.Read(filepath.Join(dir, logName))
	if err != nil || len(b) == 0 {
		return ""
	}
	if len(b) > 500 {
		b = b[len(b)-500:]
	}
	return fmt.Sprintf(": %s", strings.TrimSpace(strings.ToValidUTF8(string(b), "\uFFFD")))
}

// Interrupt asks the command to stop; ErrGone of the process package where no supervisor lives.
func (l LocalLauncher) Interrupt(_ context.Context, dir string) error {
	v, err := Look(dir)
	if err != nil {
		return err
	}
	if !v.Held || v.Started == nil || !supervises(v.Started.Supervisor, dir) {
		return process.ErrGone
	}
	return process.Signal(v.Started.Supervisor, syscall.SIGINT)
}
