package workflow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/protocol"
	"github.com/laufwerk/laufwerk/internal/session"
	"github.com/laufwerk/laufwerk/internal/workflow"
)

// A tree is a random program: what it comes to follows from its shape alone, whatever is killed or cancelled on the way.
type tree struct {
	kind  string // do, fail, now, confirm, conflict, seq, all, try
	key   string
	times int
	items []tree
}

func trees(depth int) *rapid.Generator[tree] {
	leaf := rapid.Custom(func(t *rapid.T) tree {
		kind := rapid.SampledFrom([]string{"do", "do", "do", "now", "fail", "confirm", "conflict"}).Draw(t, "leaf")
		return tree{kind: kind, times: rapid.IntRange(1, 2).Draw(t, "times")}
	})
	if depth == 0 {
		return leaf
	}
	return rapid.Custom(func(t *rapid.T) tree {
		kind := rapid.SampledFrom([]string{"leaf", "seq", "all", "try"}).Draw(t, "kind")
		if kind == "leaf" {
			return leaf.Draw(t, "leaf")
		}
		return tree{kind: kind, items: rapid.SliceOfN(trees(depth-1), 1, 4).Draw(t, "items")}
	})
}

// number gives each operation a key of its own.
func (tr *tree) number(n *int) {
	*n++
	tr.key = fmt.Sprintf("k%d", *n)
	for i := range tr.items {
		tr.items[i].number(n)
	}
}

// comes is what the program comes to; false where it fails. A conflict alone does not fail: it is tried until it succeeds.
// Within a try it is caught.
func (tr *tree) comes(caught bool) (any, bool) {
	switch tr.kind {
	case "do":
		return tr.key, true
	case "now":
		return "now", true
	case "confirm":
		return true, true
	case "fail":
		return nil, false
	case "conflict":
		return tr.key, !caught
	}
	out := []any{}
	for i := range tr.items {
		v, ok := tr.items[i].comes(caught || tr.kind == "try")
		if !ok {
			if tr.kind == "try" {
				return "caught", true
			}
			return nil, false
		}
		out = append(out, v)
	}
	return out, true
}

func (tr *tree) run(s *strand, caught bool) (any, error) {
	value := func(raw json.RawMessage, err error) (any, error) {
		if err != nil {
			return nil, err
		}
		var v any
		return v, json.Unmarshal(raw, &v)
	}
	switch tr.kind {
	case "do":
		return value(s.do("test.do", tr.key, doArgs{Value: tr.key}))
	case "fail":
		_, err := s.do("test.do", tr.key, doArgs{Fail: "agent_failed"})
		return nil, err
	case "now":
		if _, err := s.op(protocol.Call{Op: protocol.OpClockNow}); err != nil {
			return nil, err
		}
		return "now", nil
	case "confirm":
		return value(s.do(protocol.OpHuman, tr.key, map[string]string{"type": "confirm", "title": tr.key}))
	case "conflict":
		times := tr.times
		if caught {
			times = 0 // always: what is caught is not tried again
		}
		return value(s.do(protocol.OpWorkspaceWriteBack, tr.key, doArgs{Value: tr.key, Fail: "write_back_conflict", Times: times}))
	case "all":
		items := make([]program, len(tr.items))
		for i := range tr.items {
			items[i] = func(s *strand) (any, error) { return tr.items[i].run(s, caught) }
		}
		out, err := s.all(items...)
		return any(out), err
	}
	out := []any{}
	for i := range tr.items {
		v, err := tr.items[i].run(s, caught || tr.kind == "try")
		if err != nil && tr.kind == "try" {
			return "caught", nil
		}
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// TestRandomProgramsWithRandomKills: whatever is killed after whichever record, the run comes to the same end, and nothing
// that is journaled as completed is executed again.
func TestRandomProgramsWithRandomKills(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		program := trees(3).Draw(rt, "program")
		n := 0
		program.number(&n)
		kills := rapid.SliceOfN(rapid.IntRange(1, 12), 0, 6).Draw(rt, "kills")
		stops := rapid.SliceOfN(rapid.Bool(), len(kills), len(kills)).Draw(rt, "stops")

		w := newRunFixture(t)
		for life := 0; ; life++ {
			if life > 200 {
				rt.Fatalf("it never ends: %q", w.types())
			}
			k := w.worker(func(s *strand) (any, error) { return program.run(s, false) })
			before := w.completions()
			w.kills = 0
			if life < len(kills) && !stops[life] {
				w.kills = kills[life]
			}
			k.start()
			if life < len(kills) && stops[life] {
				stopAfter(w, k, kills[life])
			}
			out, err := k.run(context.Background())
			w.kills = 0
			w.notAgain(rt, before)
			switch {
			case err != nil && !errors.Is(err, errKilled):
				rt.Fatalf("life %d: %v\n%q", life, err, w.types())
			case err == nil && out.State == workflow.Waits:
				for _, q := range out.Waiting {
					w.answer(q.Key, "true", "")
				}
			case err == nil && (out.State == workflow.Succeeded || out.State == workflow.Failed):
				w.check(rt, program, out)
				return
			}
		}
	})
}

// stopAfter stops a worker after some of its events.
func stopAfter(_ *runFixture, k *worker, n int) {
	k.hook = func() {
		if n--; n == 0 {
			k.engine.Stop(session.ErrInterrupted)
		}
	}
}

// completions are the operations whose completion counts at the moment: neither taken back nor cancelled with what was.
func (w *runFixture) completions() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	done := map[string]bool{}
	for i, r := range w.records {
		switch r.Type {
		case journal.Completed:
			done[r.Op] = true
		case journal.Reopened:
			delete(done, r.Op)
			for _, later := range w.records[:i] {
				if later.Type == journal.Completed && later.Error != nil && later.Error.Code == string(failure.Cancelled) {
					delete(done, later.Op)
				}
			}
		}
	}
	out := map[string]int{}
	for op := range done {
		out[op] = w.effects[op]
	}
	return out
}

func (w *runFixture) notAgain(t *rapid.T, before map[string]int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for op, n := range before {
		if w.effects[op] != n {
			t.Fatalf("%s was completed and was executed again\n%q", op, w.log)
		}
	}
}

func (w *runFixture) check(t *rapid.T, program tree, out workflow.Outcome) {
	want, ok := program.comes(false)
	if !ok {
		if out.State != workflow.Failed {
			t.Fatalf("it came to %s, and should fail", out.Value)
		}
	} else {
		b, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if out.State != workflow.Succeeded || string(out.Value) != string(b) {
			t.Fatalf("it came to %s %s (%v), want %s\n%q", out.State, out.Value, out.Err, b, w.types())
		}
	}
	for op, n := range w.effects {
		if n > 1 && !strings.HasPrefix(op, protocol.OpWorkspaceWriteBack) { // an attempt of that is made again as long as it fails
			t.Fatalf("%s was executed %d times\n%q", op, n, w.log)
		}
	}
	if last := w.records[len(w.records)-1]; last.Type != journal.End {
		t.Fatalf("%s follows the end", last.Type)
	}
	if w.messages() != 0 {
		t.Fatalf("%d messages are left", w.messages())
	}
}
