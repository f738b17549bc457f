package workflow

import (
	"context"
	"encoding/json"
	"strings"
	"sync"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/redact"
)

// Secrets become known while operations are executed, before the output of an agent or a command leaves them. All that leaves an
// operation is redacted here: its value, which the workflow gets redacted too, so that a replay delivers the same; its failure;
// the data that a later worker needs; its events.

// withoutSecrets is a table of operations whose results hold no secret.
func withoutSecrets(table map[string]Handler, s *redact.Secrets) map[string]Handler {
	if s == nil {
		return table
	}
	for name, h := range table {
		do := h.Do
		h.Do = func(ctx context.Context, op *Op) (any, any, error) {
			value, meta, err := do(ctx, op)
			if err != nil {
				value, err = nil, cleanError(s, err)
			} else {
				value, err = cleanValue(s, value)
			}
			if clean, metaErr := cleanValue(s, meta); metaErr == nil {
				meta = clean
			}
			return value, meta, err
		}
		table[name] = h
	}
	return table
}

func cleanValue(s *redact.Secrets, v any) (any, error) {
	if v == nil {
		return nil, nil
	}
	b, err := encode(v)
	if err != nil {
		return nil, err
	}
	return json.RawMessage(s.JSON(b)), nil
}

// cleanError returns an error that holds no secret unchanged, with the errors that it wraps.
func cleanError(s *redact.Secrets, err error) error {
	text := err.Error()
	f := failure.As(err)
	if f == nil {
		if clean := s.String(text); clean != text {
			return failure.New(failure.Failed, "%s", clean)
		}
		return err
	}
	out := *f
	out.Message, out.Hint, out.Err, out.Paths, out.Conditions = s.String(text), s.String(f.Hint), nil, nil, nil
	changed := out.Message != text || out.Hint != f.Hint
	for _, p := range f.Paths {
		out.Paths = append(out.Paths, s.String(p))
		changed = changed || s.String(p) != p
	}
	for _, c := range f.Conditions {
		clean := failure.Condition{ID: c.ID, Message: s.String(c.Message), Hint: s.String(c.Hint)}
		out.Conditions = append(out.Conditions, clean)
		changed = changed || clean != c
	}
	if b, encodeErr := json.Marshal(f.Fields); encodeErr == nil {
		if clean := s.JSON(b); string(clean) != string(b) {
			out.Fields, changed = nil, true
			_ = json.Unmarshal(clean, &out.Fields)
		}
	}
	if !changed {
		return err
	}
	return &out
}

// CleanLog redacts what is appended to a log.
func CleanLog(l Log, s *redact.Secrets) Log { return cleanLog{l, s} }

type cleanLog struct {
	log Log
	s   *redact.Secrets
}

func (l cleanLog) Append(r journal.Record) error {
	r.Reason = l.s.String(r.Reason)
	if r.Data != nil {
		r.Data = l.s.JSON(r.Data)
	}
	if r.Call != nil {
		call := *r.Call
		call.Args = l.s.JSON(call.Args)
		r.Call = &call
	}
	return l.log.Append(r)
}

// CleanEvents redacts events. The output of a command comes in pieces that may split a secret: an end of one that could be the
// beginning of a secret is held back, becomes part of the next event, and counts as logged (Upto) only then.
func CleanEvents(s *redact.Secrets, tell func(journal.Event)) func(journal.Event) {
	c := &cleaner{s: s, emit: tell, outputs: map[string]*output{}}
	return c.event
}

type cleaner struct {
	s       *redact.Secrets
	emit    func(journal.Event)
	mu      sync.Mutex
	outputs map[string]*output // by operation
}

// output is the output of one command. last is its last event, whose end may be held back.
type output struct {
	stream *redact.Stream
	last   journal.Event
}

func (c *cleaner) event(ev journal.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch ev.Kind {
	case "attempt": // its output begins at the start again
		delete(c.outputs, ev.Op)
	case "operation":
		c.flush(ev.Op)
	case "output":
		o := c.outputs[ev.Op]
		if o == nil {
			o = &output{stream: c.s.Stream()}
			c.outputs[ev.Op] = o
		}
		text := o.stream.Feed(ev.Text)
		if o.last = ev; text == "" {
			return
		}
		ev.Text = text
		ev.Upto -= int64(o.stream.Pending())
		c.emit(ev)
		return
	}
	ev.Text = c.s.String(ev.Text)
	if ev.Data != nil {
		ev.Data = c.s.JSON(ev.Data)
	}
	c.emit(ev)
}

func (c *cleaner) flush(op string) {
	o := c.outputs[op]
	if o == nil {
		return
	}
	delete(c.outputs, op)
	if rest := o.stream.Rest(); strings.TrimSpace(rest) != "" {
		o.last.Text = rest
		c.emit(o.last)
	}
}
