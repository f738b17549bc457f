package workflow

import (
	"context"

	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/protocol"
	"github.com/laufwerk/laufwerk/internal/session"
)

// takeMessages reads the inbox: answers go to the questions that wait for them, a cancellation ends the run.
func (e *Engine) takeMessages() error {
	if e.Inbox == nil || e.cancel != nil {
		return nil
	}
	ms, err := e.Inbox.Messages()
	if err != nil {
		return err
	}
	behind := map[string]bool{} // questions with an answer that has to wait: a later one does not overtake it
	for _, m := range ms {
		switch m.Kind {
		case journal.Cancel:
			e.cancel = &m
			e.emit(journal.Event{Kind: "notice", Text: "the run is being cancelled" + reason(m.Reason)})
			for op := range e.live {
				op.cancel(session.ErrCancelled)
			}
			return nil
		case journal.Answer:
			if e.seen[m.ID()] || behind[m.Key] {
				continue
			}
			select {
			case e.answer(m.Key) <- m:
				e.seen[m.ID()], e.given[m.Key] = true, m.ID()
			default: // one is waiting there already: the first answer counts
				behind[m.Key] = true
			}
		}
	}
	return nil
}

func (e *Engine) answer(key string) chan journal.Message {
	e.amu.Lock()
	defer e.amu.Unlock()
	if e.answers[key] == nil {
		e.answers[key] = make(chan journal.Message, 1)
	}
	return e.answers[key]
}

// settled removes the answers to a question whose completion is journaled.
func (e *Engine) settled(op *Op) error {
	if op.Call.Op != protocol.OpHuman || e.Inbox == nil {
		return nil
	}
	ms, err := e.Inbox.Messages()
	if err != nil {
		return err
	}
	for _, m := range ms {
		if m.Kind == journal.Answer && m.Key == op.Call.Key {
			if err := e.Inbox.Done(m); err != nil {
				return err
			}
		}
	}
	return nil
}

// Refuse says that an answer does not fit, and goes on waiting for another one.
func (o *Op) Refuse(m journal.Message, why string) {
	o.Event(noticef("an answer was not taken: %s", why))
	_ = o.engine.Inbox.Done(m)
	o.engine.post(event{op: o, refused: m.ID()})
}

// Answer waits for the answer to this operation's question.
func (o *Op) Answer(ctx context.Context) (journal.Message, error) {
	select {
	case m := <-o.engine.answer(o.Call.Key):
		return m, nil
	case <-ctx.Done():
		return journal.Message{}, context.Cause(ctx)
	}
}
