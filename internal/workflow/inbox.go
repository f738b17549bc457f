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
	behind := map[string]bool{} // the keys of questions whose next answer stays in the inbox: later ones must not overtake it
	for _, m := range ms {
		switch m.Kind {
		case journal.Cancel:
			e.cancel = &m
			e.emit(journal.Event{Kind: "notice", Text: "the run is being cancelled" + cancelReason(m.Reason)})
			for op := range e.inFlight {
				op.cancel(session.ErrCancelled)
			}
			return nil
		case journal.Answer:
			if e.received[m.ID()] || behind[m.Key] {
				continue
			}
			select {
			case e.answer(m.Key) <- m:
				e.received[m.ID()], e.checking[m.Key] = true, m.ID()
			default: // an earlier answer is not checked yet
				behind[m.Key] = true
			}
		}
	}
	return nil
}

// answer is the channel of the answers to a question.
func (e *Engine) answer(key string) chan journal.Message {
	e.amu.Lock()
	defer e.amu.Unlock()
	if e.answers[key] == nil {
		e.answers[key] = make(chan journal.Message, 1)
	}
	return e.answers[key]
}

// removeAnswers removes the answers to a question whose completion is journaled.
func (e *Engine) removeAnswers(op *Op) error {
	if op.Call.Op != protocol.OpHuman || e.Inbox == nil {
		return nil
	}
	ms, err := e.Inbox.Messages()
	if err != nil {
		return err
	}
	for _, m := range ms {
		if m.Kind == journal.Answer && m.Key == op.Call.Key {
			if err := e.Inbox.RemoveMessage(m); err != nil {
				return err
			}
		}
	}
	return nil
}

// RejectAnswer removes an answer that does not fit. The question stays open.
func (o *Op) RejectAnswer(m journal.Message, why string) {
	o.Event(noticef("an answer was not accepted: %s", why))
	_ = o.engine.Inbox.RemoveMessage(m)
	o.engine.postEvent(event{op: o, refused: m.ID()})
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
