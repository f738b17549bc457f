package script

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/protocol"
	"github.com/laufwerk/laufwerk/internal/system/process"
)

var errLate = errors.New("the isolate did not answer in time")

// endedError says how a child ended that should have gone on.
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

// talk is the parent's end of the conversation with one child.
type talk struct {
	proc *process.Child
	out  *lineWriter
	in   chan received
	done chan struct{}
	gone error
}

type received struct {
	m   *protocol.Message
	err error
}

func (r *Runner) talk(start *protocol.Start) (*talk, error) {
	proc, err := process.StartChild([]string{r.Executable, Argument}, []string{"TZ=UTC"})
	if err != nil {
		return nil, failure.Wrap(err, failure.Internal, "start the isolate")
	}
	t := &talk{proc: proc, out: newLineWriter(proc.Stdin), in: make(chan received, 64), done: make(chan struct{})}
	go t.read()
	if err := t.send(&protocol.Message{Type: protocol.TypeStart, Version: protocol.Version, Start: start}); err != nil {
		t.close()
		return nil, failure.Wrap(err, failure.Internal, "start the isolate")
	}
	return t, nil
}

func (t *talk) read() {
	defer close(t.in)
	r := newLineReader(t.proc.Stdout)
	for {
		m, err := r.next()
		select {
		case t.in <- received{m, err}:
		case <-t.done:
			return
		}
		if err != nil {
			return
		}
	}
}

func (t *talk) send(m *protocol.Message) error {
	if err := t.out.send(m); err != nil {
		return t.ended(err)
	}
	return nil
}

// receive is the next message. When it fails, the child is not used any more.
func (t *talk) receive(ctx context.Context, late <-chan time.Time) (*protocol.Message, error) {
	select {
	case got, ok := <-t.in:
		if !ok {
			return nil, t.ended(io.EOF)
		}
		if got.err != nil {
			return nil, t.ended(got.err)
		}
		return got.m, nil
	case <-late:
		return nil, errLate
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// ended waits for a child whose pipe failed, and says how it ended.
func (t *talk) ended(err error) error {
	if t.gone == nil {
		if !errors.Is(err, io.EOF) {
			t.proc.Kill()
		}
		t.gone = &endedError{state: t.proc.Wait(), stderr: t.proc.Stderr()}
		if errors.Is(err, errTooLong) {
			t.gone = failure.New(failure.LimitExceeded, "the isolate said too much: %s", err)
		}
	}
	return t.gone
}

func (t *talk) close() {
	select {
	case <-t.done:
		return
	default:
	}
	close(t.done)
	t.proc.Kill()
	_ = t.proc.Stdin.Close()
	for range t.in {
	}
	_ = t.proc.Wait()
}
