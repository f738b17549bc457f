package workflow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/protocol"
)

// A program is a workflow in Go: it asks through its strand, and says what it comes to.
type program func(s *strand) (any, error)

// strand is one line of a program; "0" is the program itself, item 2 of its second `all` is "0.1.2", as in the SDK.
type strand struct {
	id       string
	yield    func(ask) bool
	next     func() (ask, bool)
	stop     func()
	answer   answer
	value    any
	err      error
	ordinals map[string]int
	groups   int
	group    *group
	index    int
	waiting  string // id of the operation
	inside   *group
	doomed   bool // its `all` is ending
	started  bool
}

type ask struct {
	call protocol.Call
	all  []program
}

type answer struct {
	value json.RawMessage
	err   error
	list  []any
}

type group struct {
	parent  *strand
	live    map[*strand]bool
	results []any
	err     error
}

// thrown is an engine's error as the program catches it.
type thrown struct{ wire *protocol.Error }

func (t thrown) Error() string { return t.wire.Message }

// op asks for an operation.
func (s *strand) op(call protocol.Call) (json.RawMessage, error) {
	s.yield(ask{call: call})
	return s.answer.value, s.answer.err
}

// do asks for a keyed operation whose arguments are a Go value.
func (s *strand) do(op, key string, args any) (json.RawMessage, error) {
	b, err := json.Marshal(args)
	if err != nil {
		panic(err)
	}
	return s.op(protocol.Call{Op: op, Key: key, Args: b})
}

func (s *strand) all(items ...program) ([]any, error) {
	s.yield(ask{all: items})
	return s.answer.list, s.answer.err
}

// fake drives programs as the SDK does. It is also where a test sees in what order answers came.
type fake struct {
	main      program
	pending   map[string]*strand
	ready     []*strand
	out       []protocol.Message
	delivered []string
	over      bool
	strands   []*strand

	limit     int  // the answer at which it exceeds its limits
	breaks    int  // the answer at which it dies
	endsAfter int  // the answer after which it ends with an error, whatever it waits for
	silent    bool // it neither asks nor ends
}

func newFake(p program) *fake { return &fake{main: p, pending: map[string]*strand{}} }

func (f *fake) Step(_ context.Context, m *protocol.Message) ([]protocol.Message, error) {
	switch n := len(f.delivered); {
	case m != nil && f.limit > 0 && n+1 >= f.limit:
		return nil, failure.New(failure.LimitExceeded, "it computes too long")
	case m != nil && f.breaks > 0 && n+1 >= f.breaks:
		return nil, failure.New(failure.Internal, "the isolate was killed")
	case f.silent:
		return []protocol.Message{{Type: protocol.TypeIdle}}, nil
	}
	if f.over {
		return nil, errors.New("an answer came after the end")
	}
	f.out = nil
	if m == nil {
		f.start("0", f.main, nil, 0)
	} else {
		s := f.pending[m.ID]
		if s == nil {
			return nil, fmt.Errorf("an answer came for %q, which was not asked for", m.ID)
		}
		delete(f.pending, m.ID)
		f.delivered = append(f.delivered, m.ID)
		s.waiting = ""
		s.answer = answer{value: m.Value}
		if m.Type == protocol.TypeError {
			s.answer = answer{err: thrown{m.Error}}
			s.doomed = false
		}
		f.ready = append(f.ready, s)
	}
	if f.endsAfter > 0 && len(f.delivered) >= f.endsAfter {
		f.over = true
		return []protocol.Message{{Type: protocol.TypeError, Error: &protocol.Error{Class: "Error", Code: "internal", Message: "it broke"}}}, nil
	}
	for len(f.ready) > 0 {
		s := f.ready[0]
		f.ready = f.ready[1:]
		f.run(s)
	}
	if !f.over {
		f.say(protocol.Message{Type: protocol.TypeIdle})
	}
	return f.out, nil
}

func (f *fake) close() {
	for _, s := range f.strands {
		s.stop()
	}
}

func (f *fake) say(m protocol.Message) { f.out = append(f.out, m) }

func (f *fake) start(id string, p program, g *group, index int) *strand {
	s := &strand{id: id, ordinals: map[string]int{}, group: g, index: index}
	s.next, s.stop = iter.Pull(func(yield func(ask) bool) {
		gone := errors.New("the program was given up")
		defer func() {
			if r := recover(); r != nil && r != gone { //nolint:errorlint // the very value
				panic(r)
			}
		}()
		s.yield = func(a ask) bool {
			if !yield(a) {
				panic(gone)
			}
			return true
		}
		s.value, s.err = p(s)
	})
	f.strands = append(f.strands, s)
	f.ready = append(f.ready, s)
	return s
}

var errDoomed = thrown{&protocol.Error{Class: "Cancelled", Code: "cancelled", Message: "a sibling of this branch failed, so it was cancelled"}}

func (f *fake) run(s *strand) {
	if s.doomed && !s.started {
		s.err = errDoomed
		f.ended(s)
		return
	}
	s.started = true
	a, ok := s.next()
	switch {
	case !ok:
		f.ended(s)
	case s.doomed:
		s.doomed = false
		s.answer = answer{err: errDoomed}
		f.ready = append(f.ready, s)
	case a.all != nil:
		g := &group{parent: s, live: map[*strand]bool{}, results: make([]any, len(a.all))}
		s.inside = g
		branch := fmt.Sprintf("%s.%d", s.id, s.groups)
		s.groups++
		for i, p := range a.all {
			g.live[f.start(fmt.Sprintf("%s.%d", branch, i), p, g, i)] = true
		}
	default:
		c := a.call
		c.Branch = s.id
		if c.Args == nil {
			c.Args = json.RawMessage("{}")
		}
		id := c.Op + ":" + c.Scope + ":" + c.Key
		if c.Key == "" {
			kind := c.Op + ":" + c.Scope
			c.Ordinal = s.ordinals[kind]
			s.ordinals[kind]++
			id = fmt.Sprintf("%s@%s#%d", kind, s.id, c.Ordinal)
		}
		f.pending[id] = s
		s.waiting = id
		f.say(protocol.Message{Type: protocol.TypeCall, ID: id, Call: &c})
	}
}

func (f *fake) ended(s *strand) {
	g := s.group
	if g == nil {
		f.over = true
		if s.err == nil {
			b, err := json.Marshal(s.value)
			if err != nil {
				panic(err)
			}
			f.say(protocol.Message{Type: protocol.TypeDone, Value: b})
			return
		}
		var t thrown
		if !errors.As(s.err, &t) {
			t.wire = &protocol.Error{Class: "Error", Code: "workflow_failed", Message: s.err.Error()}
		}
		f.say(protocol.Message{Type: protocol.TypeError, Error: t.wire})
		return
	}
	delete(g.live, s)
	g.results[s.index] = s.value
	if s.err != nil && g.err == nil {
		g.err = s.err
		f.doom(g)
	}
	if len(g.live) == 0 {
		g.parent.inside = nil
		g.parent.answer = answer{list: g.results, err: g.err}
		if g.err != nil {
			g.parent.doomed = false
		}
		f.ready = append(f.ready, g.parent)
	}
}

func (f *fake) doom(g *group) {
	var ids []string
	var visit func(g *group)
	visit = func(g *group) {
		for s := range g.live {
			s.doomed = true
			if s.waiting != "" {
				ids = append(ids, s.waiting)
			} else if s.inside != nil {
				if s.inside.err == nil {
					s.inside.err = errDoomed
				}
				visit(s.inside)
			}
		}
	}
	visit(g)
	if len(ids) > 0 {
		f.say(protocol.Message{Type: protocol.TypeCancel, IDs: ids})
	}
}
