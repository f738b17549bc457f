package script

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/protocol"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/system/process"
)

var errLate = errors.New("the isolate did not answer in time")

type endedError struct {
	state  error
	stderr string
}

func (e *endedError) Error() string {
	state := "without an error"
	if e.state != nil {
		state = e.state.Error()
	}
	if line := strings.TrimSpace(e.stderr); line != "" {
		line, _, _ = strings.Cut(line, "\n")
		return fmt.Sprintf("the isolate's process ended (%s): %s", state, line)
	}
	return fmt.Sprintf("the isolate's process ended (%s)", state)
}

// The words are those of the Go runtime, and of the kernel's killer.
func (e *endedError) outOfMemory() bool {
	return strings.Contains(e.stderr, "out of memory") || strings.Contains(e.stderr, "cannot allocate memory") ||
		e.state != nil && strings.Contains(e.state.Error(), "signal: killed")
}

// conversation is the parent's end of the conversation with one child. Who waits for the child reads its pipe: to be woken by another
// goroutine costs more than most answers. What ends the waiting ends the child.
type conversation struct {
	proc   *process.Child
	out    *lineWriter
	in     *lineReader
	watch  *system.Watch
	endErr error
	closed bool
}

func (r *Runner) newConversation() (*conversation, error) {
	proc, err := process.StartChild([]string{r.Executable, Argument}, []string{"TZ=UTC"})
	if err != nil {
		return nil, failure.Wrap(err, failure.Internal, "start the isolate")
	}
	t := &conversation{proc: proc, out: newLineWriter(proc.Stdin), in: newLineReader(proc.Stdout), watch: system.NewWatch(proc.Kill)}
	return t, nil
}

func (t *conversation) start(s *protocol.Start) error {
	if err := t.send(&protocol.Message{Type: protocol.TypeStart, Version: protocol.Version, Start: s}); err != nil {
		t.close()
		return failure.Wrap(err, failure.Internal, "start the isolate")
	}
	return nil
}

func (t *conversation) send(m *protocol.Message) error {
	if err := t.out.send(m); err != nil {
		return t.wait(err)
	}
	return nil
}

// endWith lets the end of ctx end the child, as long as release is not called.
func (t *conversation) endWith(ctx context.Context) (release func()) {
	if ctx.Done() == nil {
		return func() {}
	}
	stop := context.AfterFunc(ctx, t.proc.Kill)
	return func() { stop() }
}

// receive is the next message. When it fails, the child is not used any more.
func (t *conversation) receive(ctx context.Context) (*protocol.Message, error) {
	m, err := t.in.next()
	switch {
	case err == nil:
		return m, nil
	case t.watch.End():
		return nil, errLate
	case ctx.Err() != nil:
		return nil, ctx.Err()
	default:
		return nil, t.wait(err)
	}
}

// wait waits for a child whose pipe failed, and says how it ended.
func (t *conversation) wait(err error) error {
	if t.endErr == nil {
		if !errors.Is(err, io.EOF) {
			t.proc.Kill()
		}
		t.endErr = &endedError{state: t.proc.Wait(), stderr: t.proc.Stderr()}
		if errors.Is(err, errTooLong) {
			t.endErr = failure.New(failure.LimitExceeded, "the isolate said too much: %s", err)
		}
	}
	return t.endErr
}

// close ends the child, and returns when it is gone.
func (t *conversation) close() {
	t.kill()
	_ = t.proc.Wait()
}

// kill ends the child, and waits for that beside whatever comes next: to take a process down takes a tenth of what an evaluation
// takes.
func (t *conversation) kill() {
	if t.closed {
		return
	}
	t.closed = true
	t.watch.Stop()
	t.proc.Kill()
	_ = t.proc.Stdin.Close()
	go func() { _ = t.proc.Wait() }()
}
