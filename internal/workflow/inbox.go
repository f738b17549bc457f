package workflow

import (
	"context"

	"github.com/laufwerk/laufwerk/internal/journal"
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
			select {
			case e.answer(m.Key) <- m:
			default: // one is waiting there already: the first answer counts
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

// Answer waits for the answer to this operation's question.
func (o *Op) Answer(ctx context.Context) (journal.Message, error) {
	select {
	case m := <-o.engine.answer(o.Call.Key):
		return m, nil
	case <-ctx.Done():
		return journal.Message{}, context.Cause(ctx)
	}
}
