package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/protocol"
)

// The types of questions.
const (
	Confirm = "confirm"
	Text    = "text"
	Select  = "select"
)

type humanArgs struct {
	Type        string   `json:"type"`
	Title       string   `json:"title"`
	Description string   `json:"description,omitempty"`
	Placeholder string   `json:"placeholder,omitempty"`
	Options     []Option `json:"options,omitempty"`
	Workspace   string   `json:"workspace,omitempty"`
}

// QuestionRecord is what the journal keeps of a question: the data of its attempt.
type QuestionRecord struct {
	Since  int64  `json:"since"`
	Digest string `json:"digest,omitempty"` // of the frozen content that the answer is bound to
}

// AnswerRecord is what the journal keeps of an answer.
type AnswerRecord struct {
	Workspace string         `json:"workspace,omitempty"`
	Digest    string         `json:"digest,omitempty"`
	Who       journal.Sender `json:"who"`
}

// ErrNobody is the error of an Asker whose person has left the terminal: the question stays open.
var ErrNobody = errors.New("the terminal was closed")

// Asker asks at a terminal. It returns the answer as JSON, or the context's cause when the question was answered elsewhere.
type Asker func(ctx context.Context, q Question) (json.RawMessage, journal.Sender, error)

type questioner struct {
	ask      Asker // nil where nobody is at a terminal
	freeze   func(ctx context.Context, workspace string) (digest string, err error)
	refreeze func(ctx context.Context, workspace, digest string) error // freezes again if the frozen content is damaged
	mu       sync.Mutex                                                // one question at a time on the terminal
	bind     func(workspace, digest string, kind string, answer json.RawMessage)
}

func (h *questioner) askPerson(ctx context.Context, op *Op) (any, any, error) {
	var a humanArgs
	if err := json.Unmarshal(op.Call.Args, &a); err != nil {
		return nil, nil, err
	}
	var record QuestionRecord
	if _, data := op.Attempts(); len(data) > 0 {
		if err := json.Unmarshal(data, &record); err != nil {
			return nil, nil, err
		}
		if a.Workspace != "" {
			if err := h.refreeze(ctx, a.Workspace, record.Digest); err != nil {
				return nil, nil, err
			}
		}
	} else {
		if a.Workspace != "" {
			digest, err := h.freeze(ctx, a.Workspace)
			if err != nil {
				return nil, nil, err
			}
			record.Digest = digest
		}
		record.Since = op.engine.now().UnixMilli()
		if err := op.Start(record); err != nil {
			return nil, nil, err
		}
	}
	q := a.question(op.Call.Key, record)
	op.WaitForPerson(q)
	value, who, err := h.answer(ctx, op, q)
	if err != nil {
		return nil, nil, err
	}
	if a.Workspace != "" {
		h.bind(a.Workspace, record.Digest, a.Type, value)
	}
	return value, AnswerRecord{Workspace: a.Workspace, Digest: record.Digest, Who: who}, nil
}

// answer is the first answer that fits, from the terminal or from the inbox.
func (h *questioner) answer(ctx context.Context, op *Op, q Question) (json.RawMessage, journal.Sender, error) {
	type reply struct {
		value json.RawMessage
		who   journal.Sender
		err   error
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	terminal := make(chan reply, 1)
	if h.ask != nil {
		go func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			if ctx.Err() != nil {
				return
			}
			v, who, err := h.ask(ctx, q)
			terminal <- reply{v, who, err}
		}()
	}
	elsewhere := make(chan reply, 1)
	go func() {
		for {
			m, err := op.Answer(ctx)
			if err == nil && q.Digest != "" && m.Digest != q.Digest {
				op.RejectAnswer(m, "it is about other content than the question")
				continue
			}
			if err == nil {
				if err := q.Check(m.Value); err != nil {
					op.RejectAnswer(m, err.Error())
					continue
				}
			}
			elsewhere <- reply{m.Value, m.Who, err}
			return
		}
	}()
	for {
		select {
		case r := <-elsewhere:
			return r.value, r.who, r.err
		case r := <-terminal:
			if !errors.Is(r.err, ErrNobody) {
				return r.value, r.who, r.err
			}
			op.engine.postEvent(event{op: op, nobody: true})
		}
	}
}

// Check says whether a JSON value answers the question.
func (q Question) Check(value json.RawMessage) error {
	var s *string // null is no answer
	var b *bool
	switch q.Type {
	case Confirm:
		if json.Unmarshal(value, &b) != nil || b == nil {
			return fmt.Errorf("%q is answered by true or false", q.Key)
		}
		return nil
	case Select:
		given := json.Unmarshal(value, &s) == nil && s != nil
		var names []string
		for _, o := range q.Options {
			if given && o.Value == *s {
				return nil
			}
			names = append(names, o.Value)
		}
		return fmt.Errorf("%q is answered by one of: %s", q.Key, strings.Join(names, ", "))
	default:
		if json.Unmarshal(value, &s) != nil || s == nil {
			return fmt.Errorf("%q is answered by a text", q.Key)
		}
		return nil
	}
}

func (h *questioner) restoreAnswer(call protocol.Call, c Completion) error {
	var a humanArgs
	var record AnswerRecord
	if c.Error != nil || json.Unmarshal(call.Args, &a) != nil || json.Unmarshal(c.Meta, &record) != nil || record.Workspace == "" {
		return nil //nolint:nilerr // an unbound question leaves nothing to remember
	}
	h.bind(record.Workspace, record.Digest, a.Type, c.Value)
	return nil
}

func notify(_ context.Context, op *Op) (any, any, error) {
	var a struct {
		Title       string `json:"title"`
		Description string `json:"description"`
	}
	if err := json.Unmarshal(op.Call.Args, &a); err != nil {
		return nil, nil, err
	}
	text := a.Title
	if a.Description != "" {
		text += "\n" + a.Description
	}
	op.Event(journal.Event{Kind: "message", Text: text})
	return nil, nil, nil
}

// QuestionID is the journal's identity of the question with a key.
func QuestionID(key string) string {
	return journal.Identity(protocol.Call{Op: protocol.OpHuman, Key: key})
}

// OpenQuestions are the questions in a journal that were asked and not answered.
func OpenQuestions(records []journal.Record) []Question {
	var order []string
	calls := map[string]*protocol.Call{} // a question that was cancelled may be asked again
	open := map[string]Question{}
	for _, r := range records {
		if r.Call != nil {
			calls[r.Op] = r.Call
		}
		switch call := calls[r.Op]; {
		case r.Type == journal.Started && call != nil && call.Op == protocol.OpHuman:
			var a humanArgs
			var record QuestionRecord
			if json.Unmarshal(call.Args, &a) != nil || json.Unmarshal(r.Data, &record) != nil {
				continue
			}
			order = append(order, r.Op)
			open[r.Op] = a.question(call.Key, record)
		case r.Type == journal.Completed:
			delete(open, r.Op)
		case r.Type == journal.End:
			return nil
		}
	}
	var out []Question
	for _, id := range order {
		if q, ok := open[id]; ok {
			out = append(out, q)
			delete(open, id)
		}
	}
	return out
}

func (a humanArgs) question(key string, record QuestionRecord) Question {
	return Question{
		Key: key, Type: a.Type, Title: a.Title, Description: a.Description, Placeholder: a.Placeholder,
		Options: a.Options, Workspace: a.Workspace, Digest: record.Digest, Since: record.Since,
	}
}
