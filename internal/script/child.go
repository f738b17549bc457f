package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/protocol"
)

// Bounds of what a program may say in one step.
const (
	maxMessages  = 100_000
	maxStepBytes = 256 << 20
)

// Child is one running workflow. It is used by one goroutine at a time.
type Child struct {
	talk   *conversation
	limits Limits
	over   bool
}

// Step sends one answer (of type result or error; nil in the first step) and returns what the program says until it waits
// again: calls, cancels and logs in their order, and last an idle, a done or an error. After done or error there is no
// further step. What comes from the child is checked for its form, not believed. A program that exceeds its limits, or whose
// process ends, is a failure of kind LimitExceeded or Internal, and the child cannot be used any more.
func (c *Child) Step(ctx context.Context, answer *protocol.Message) ([]protocol.Message, error) {
	if c.over {
		return nil, failure.New(failure.Internal, "the workflow has ended: there is nothing to answer")
	}
	out, err := c.step(ctx, answer)
	if err != nil {
		c.over = true
		c.Close()
		return nil, c.explain(ctx, err)
	}
	c.over = out[len(out)-1].Type != protocol.TypeIdle
	return out, nil
}

func (c *Child) step(ctx context.Context, answer *protocol.Message) ([]protocol.Message, error) {
	if answer != nil {
		if answer.Type != protocol.TypeResult && answer.Type != protocol.TypeError {
			return nil, failure.New(failure.Internal, "%q is not an answer", answer.Type)
		}
		if err := c.talk.send(answer); err != nil {
			return nil, err
		}
	}
	defer c.talk.endWith(ctx)()
	if c.limits.StepMillis > 0 {
		c.talk.watch.Begin(c.limits.Step() + stepGrace)
	}
	var out []protocol.Message
	size := 0
	for {
		m, err := c.talk.receive(ctx)
		if err != nil {
			return nil, err
		}
		if err := checkMessage(m); err != nil {
			return nil, err
		}
		if m.Call != nil {
			size += len(m.Call.Args)
		}
		if size += len(m.Value); len(out) >= maxMessages || size > maxStepBytes {
			return nil, failure.New(failure.LimitExceeded, "the workflow asked for more than %d operations, or %d MiB of arguments, at once", maxMessages, maxStepBytes>>20)
		}
		out = append(out, *m)
		switch m.Type {
		case protocol.TypeIdle, protocol.TypeDone, protocol.TypeError:
			if c.talk.watch.End() {
				return nil, errLate
			}
			return out, nil
		}
	}
}

func checkMessage(m *protocol.Message) error {
	fine := false
	switch m.Type {
	case protocol.TypeCall:
		fine = m.ID != "" && m.Call != nil && m.Call.Op != "" && m.Call.Branch != "" && json.Valid(m.Call.Args)
	case protocol.TypeCancel:
		fine = len(m.IDs) > 0
	case protocol.TypeError:
		fine = m.Error != nil
	case protocol.TypeIdle, protocol.TypeDone, protocol.TypeLog:
		fine = true
	}
	if !fine {
		return failure.New(failure.Internal, "the isolate said %q, which is not a well-formed message", m.Type)
	}
	return nil
}

func (c *Child) explain(ctx context.Context, err error) error {
	var ended *endedError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errLate):
		return failure.New(failure.LimitExceeded, "the workflow: %s", stepLimitMessage(c.limits))
	case errors.As(err, &ended) && ended.outOfMemory():
		return failure.New(failure.LimitExceeded, "the workflow: %s", memoryMessage(c.limits))
	case failure.As(err) != nil:
		return err
	default:
		return failure.Wrap(fmt.Errorf("%w", err), failure.Internal, "run the workflow")
	}
}

// Close ends the child's process at once. It may be called more than once.
func (c *Child) Close() { c.talk.close() }
