package workflow_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/protocol"
	"github.com/laufwerk/laufwerk/internal/workflow"
)

// three does a, then b and c side by side, then d with what they gave.
func three(s *strand) (any, error) {
	a, err := s.do("test.do", "a", doArgs{Value: "A"})
	if err != nil {
		return nil, err
	}
	list, err := s.all(
		func(s *strand) (any, error) { return s.do("test.do", "b", doArgs{Value: "B"}) },
		func(s *strand) (any, error) { return s.do("test.do", "c", doArgs{Value: "C", Wait: "c"}) },
	)
	if err != nil {
		return nil, err
	}
	d, err := s.do("test.do", "d", doArgs{Value: "D"})
	return []any{a, list, d}, err
}

const threeValue = `["A",["B","C"],"D"]`

func wantValue(t *testing.T, out workflow.Outcome, want string) {
	t.Helper()
	if string(out.Value) != want {
		t.Errorf("the run came to %s, want %s", out.Value, want)
	}
}

func (w *runFixture) wantEffects(want map[string]int) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !reflect.DeepEqual(w.effects, want) {
		w.t.Errorf("effects %v, want %v", w.effects, want)
	}
}

func once(keys ...string) map[string]int {
	out := map[string]int{}
	for _, k := range keys {
		out["test.do:"+k] = 1
	}
	return out
}

func TestARunWithoutTrouble(t *testing.T) {
	w := newRunFixture(t)
	w.open("c")
	k := w.worker(three)
	wantValue(t, k.leaves(workflow.Succeeded), threeValue)
	w.wantEffects(once("a", "b", "c", "d"))
	if !slices.Equal(k.ended, []string{"succeeded"}) {
		t.Errorf("Ending was called with %v", k.ended)
	}
	got := w.types()
	if got[0] != "started test.do:a" || got[1] != "completed test.do:a" || got[len(got)-1] != "end succeeded" || len(got) != 9 {
		t.Errorf("%q", got)
	}
}

// Killed at every record: the next workers bring the run to the same end, and no completed operation is executed again.
func TestKilledAtEveryRecord(t *testing.T) {
	for at := 1; at <= 9; at++ {
		w := newRunFixture(t)
		w.open("c")
		w.kills = at
		if _, err := w.worker(three).run(t.Context()); !errors.Is(err, errKilled) {
			t.Fatalf("killed at record %d: %v", at, err)
		}
		w.kills = 0
		k := w.worker(three)
		wantValue(t, k.leaves(workflow.Succeeded), threeValue)
		w.wantEffects(once("a", "b", "c", "d"))
	}
}

// What had completed is delivered in the order in which it completed, though the program asked in another one, and only
// then begins what had not.
func TestReplayDeliversInRecordedOrderAndThenReleasesTheQueue(t *testing.T) {
	var order []string
	p := func(s *strand) (any, error) {
		branch := func(key, wait string) program {
			return func(s *strand) (any, error) {
				_, err := s.do("test.do", key, doArgs{Wait: wait})
				order = append(order, key)
				return nil, err
			}
		}
		_, err := s.all(branch("x", "x"), branch("y", "y"), branch("z", "z"))
		return nil, err
	}
	w := newRunFixture(t)
	first := w.worker(p).start()
	w.kills = 7 // starting all three, then completing z, x; y's completion is lost
	go func() {
		w.until(func() bool {
			return w.has("waits test.do:x")() && w.has("waits test.do:y")() && w.has("waits test.do:z")()
		})
		w.open("z")
		first.waitForEvent("operation", "done")
		w.until(func() bool { return len(w.completed()) == 1 })
		w.open("x")
		w.until(func() bool { return len(w.completed()) == 2 })
		w.open("y")
	}()
	w.kills = 6
	if _, err := first.run(t.Context()); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	if got := w.completed(); !slices.Equal(got, []string{"test.do:z", "test.do:x"}) {
		t.Fatalf("completed %v", got)
	}
	w.kills, order, w.log = 0, nil, nil
	k := w.worker(p)
	k.leaves(workflow.Succeeded)
	if !slices.Equal(order, []string{"z", "x", "y"}) {
		t.Errorf("delivered %v", order)
	}
	if !slices.Equal(k.recalled, []string{"z=null", "x=null"}) {
		t.Errorf("recalled %v", k.recalled)
	}
	if !slices.Equal(w.log, []string{"joins test.do:y"}) {
		t.Errorf("%q", w.log)
	}
}

func (w *runFixture) completed() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, r := range w.records {
		if r.Type == journal.Completed {
			out = append(out, r.Op)
		}
	}
	return out
}

// Another worker that was killed in the middle of an attempt that came to nothing: it is recorded as cut, and made again.
func TestALostAttemptIsCutAndMadeAgain(t *testing.T) {
	w := newRunFixture(t)
	p := func(s *strand) (any, error) { return s.do("test.do", "a", doArgs{Value: 1, Wait: "a"}) }
	first := w.worker(p).start()
	go func() { w.until(w.has("waits test.do:a")); first.engine.Stop(errKilled) }()
	out := first.leaves(workflow.Interrupted)
	if !errors.Is(out.Err, errKilled) {
		t.Errorf("left because of %v", out.Err)
	}
	w.open("a")
	w.worker(p).leaves(workflow.Succeeded)
	want := []string{"started test.do:a", "cut test.do:a", "started test.do:a", "completed test.do:a", "end succeeded"}
	if got := w.types(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if last := w.records[3]; last.Attempt != 2 {
		t.Errorf("the second attempt is number %d", last.Attempt)
	}
}

func TestAChangedWorkflowIsNamedAndNothingIsExecuted(t *testing.T) {
	was := func(s *strand) (any, error) {
		if _, err := s.do("test.do", "a", doArgs{Value: "A"}); err != nil {
			return nil, err
		}
		return s.do("test.do", "b", doArgs{Value: "B", Wait: "b"})
	}
	tests := map[string]struct {
		now  program
		want []string
	}{
		"completed, not asked for": {
			func(s *strand) (any, error) { return s.do("test.do", "other", nil) },
			[]string{"test.do:a", "did not ask"},
		},
		"completed, other arguments": {
			func(s *strand) (any, error) { return s.do("test.do", "a", doArgs{Value: "<A2>"}) },
			[]string{"test.do:a", "other arguments", "(value)"},
		},
		"started, not asked for": {
			func(s *strand) (any, error) {
				if _, err := s.do("test.do", "a", doArgs{Value: "A"}); err != nil {
					return nil, err
				}
				return s.do("test.do", "other", nil)
			},
			[]string{"test.do:b", "started", "did not ask"},
		},
		"started, other arguments": {
			func(s *strand) (any, error) {
				if _, err := s.do("test.do", "a", doArgs{Value: "A"}); err != nil {
					return nil, err
				}
				return s.do("test.do", "b", doArgs{Value: "B"})
			},
			[]string{"test.do:b", "other arguments", "(wait)"},
		},
		"it ends early": {
			func(*strand) (any, error) { return "done", nil },
			[]string{"test.do:a", "did not ask"},
		},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			w := newRunFixture(t)
			first := w.worker(was).start()
			go func() { w.until(w.has("waits test.do:b")); first.engine.Stop(errKilled) }()
			first.leaves(workflow.Interrupted)
			before := len(w.records)
			effects := w.effects["test.do:a"]

			_, err := w.worker(c.now).run(t.Context())
			if !failure.Is(err, failure.WorkflowChanged) || failure.WorkflowChanged.Exit() != failure.ExitConflict {
				t.Fatalf("got %v", err)
			}
			for _, word := range c.want {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q does not say %q", err, word)
				}
			}
			if strings.Contains(err.Error(), "A2") {
				t.Errorf("a value is shown: %v", err)
			}
			if h := failure.As(err).Hint; !strings.Contains(h, "laufwerk runs cancel 260101-abcdefgh") {
				t.Errorf("hint %q", h)
			}
			if len(w.records) != before || w.effects["test.do:a"] != effects || len(w.effects) != 1 {
				t.Errorf("something happened: %q, effects %v", w.types(), w.effects)
			}
		})
	}
}

// The arguments are compared as the child says them: what is journaled of them has no secrets in it.
func TestArgumentsAreComparedThoughTheJournalDoesNotHoldThem(t *testing.T) {
	open := func(secret string) program {
		return func(s *strand) (any, error) {
			return s.op(protocol.Call{Op: protocol.OpSessionExec, Scope: "s", Key: "e", Args: json.RawMessage(`{"command":"x","env":{"TOKEN":{"value":"` + secret + `"}}}`)})
		}
	}
	w := newRunFixture(t)
	w.worker(open("canary-one")).leaves(workflow.Failed) // there is no such session
	w.records = slices.DeleteFunc(w.records, func(r journal.Record) bool { return r.Type == journal.End })
	b, _ := json.Marshal(w.records)
	if strings.Contains(string(b), "canary") {
		t.Errorf("a value of a variable is in the journal: %s", b)
	}
	_, err := w.worker(open("canary-two")).run(t.Context())
	if !failure.Is(err, failure.WorkflowChanged) || !strings.Contains(err.Error(), "(env)") || strings.Contains(err.Error(), "canary") {
		t.Errorf("got %v", err)
	}
	w.worker(open("canary-one")).leaves(workflow.Failed)
}

// An operation of another version may hold secrets in places that this version does not know.
func TestArgumentsOfUnknownOperationsAreNotJournaled(t *testing.T) {
	w := newRunFixture(t)
	out := w.worker(func(s *strand) (any, error) {
		return s.op(protocol.Call{Op: "future.exec", Key: "x", Args: json.RawMessage(`{"env":{"T":"canary"}}`)})
	}).leaves(workflow.Failed)
	if !failure.Is(out.Err, failure.Unsupported) {
		t.Errorf("got %v", out.Err)
	}
	if b, _ := json.Marshal(w.records); strings.Contains(string(b), "canary") {
		t.Errorf("%s", b)
	}
}

// A workflow that changed its mind about what it does after an operation that was taken back is no other workflow.
func TestAnUncaughtConflictIsTakenBackAndTriedAgain(t *testing.T) {
	p := func(s *strand) (any, error) {
		if _, err := s.do("test.do", "before", nil); err != nil {
			return nil, err
		}
		_, err := s.do(protocol.OpWorkspaceWriteBack, "w", doArgs{Value: "written", Fail: "write_back_conflict", Times: 2})
		if _, e := s.do("test.do", "close", doArgs{Value: "closed"}); e != nil { // as in a finally block
			return nil, e
		}
		if err != nil {
			return nil, err
		}
		return s.do("test.do", "after", doArgs{Value: "after"})
	}
	w := newRunFixture(t)
	for range 2 {
		out := w.worker(p).leaves(workflow.Interrupted)
		if !failure.Is(out.Err, failure.WriteBackConflict) {
			t.Fatalf("got %v", out.Err)
		}
	}
	k := w.worker(p)
	wantValue(t, k.leaves(workflow.Succeeded), `"after"`)
	w.wantEffects(map[string]int{"test.do:before": 1, "workspace.writeBack:w": 3, "test.do:close": 1, "test.do:after": 1})
	if len(k.ended) != 1 {
		t.Errorf("Ending was called with %v", k.ended)
	}
	if !slices.Contains(k.recalled, `close="closed"`) {
		t.Errorf("what was kept is not recalled: %v", k.recalled)
	}
	got := strings.Join(w.types(), "\n")
	if n := strings.Count(got, "reopened workspace.writeBack:w"); n != 2 {
		t.Errorf("taken back %d times:\n%s", n, got)
	}
}

// What is kept has a new place in the order of things, which a later worker has to find again.
func TestKeptCompletionsAreReplayedWhereTheyWereDeliveredAgain(t *testing.T) {
	p := func(s *strand) (any, error) {
		_, err := s.do(protocol.OpWorkspaceWriteBack, "w", doArgs{Fail: "write_back_conflict", Times: 1})
		x, e := s.do("test.do", "x", doArgs{Value: "X"})
		if e != nil || err != nil {
			return nil, errors.Join(err, e)
		}
		y, err := s.do("test.do", "y", doArgs{Value: "Y"})
		if err != nil {
			return nil, err
		}
		z, err := s.do("test.do", "z", doArgs{Value: "Z"})
		return []any{x, y, z}, err
	}
	base := newRunFixture(t)
	base.worker(p).leaves(workflow.Interrupted)
	for at := 1; ; at++ {
		w := newRunFixture(t)
		w.records, w.effects, w.results = slices.Clone(base.records), map[string]int{}, map[string]any{}
		for k, v := range base.effects {
			w.effects[k] = v
		}
		for k, v := range base.results {
			w.results[k] = v
		}
		w.kills = at
		_, err := w.worker(p).run(t.Context())
		w.kills = 0
		if err == nil {
			if at < 5 {
				t.Fatalf("only %d records", at)
			}
			return
		}
		if !errors.Is(err, errKilled) {
			t.Fatalf("killed at record %d: %v", at, err)
		}
		wantValue(t, w.worker(p).leaves(workflow.Succeeded), `["X","Y","Z"]`)
		w.wantEffects(map[string]int{"workspace.writeBack:w": 2, "test.do:x": 1, "test.do:y": 1, "test.do:z": 1})
	}
}

// A branch that was cancelled because of a write-back's conflict is made anew once the write-back is tried again.
func TestWhatAConflictCancelledIsMadeAnew(t *testing.T) {
	p := func(s *strand) (any, error) {
		return s.all(
			func(s *strand) (any, error) {
				return s.do(protocol.OpWorkspaceWriteBack, "w", doArgs{Value: "W", Fail: "write_back_conflict", Times: 1, Wait: "w"})
			},
			func(s *strand) (any, error) { return s.do("test.do", "sibling", doArgs{Value: "S", Wait: "s"}) },
		)
	}
	w := newRunFixture(t)
	first := w.worker(p).start()
	go func() { w.until(w.has("waits test.do:sibling")); w.open("w") }()
	first.leaves(workflow.Interrupted)
	if got := w.types(); !slices.Contains(got, "completed test.do:sibling cancelled") {
		t.Fatalf("%q", got)
	}
	w.open("s")
	wantValue(t, w.worker(p).leaves(workflow.Succeeded), `["W","S"]`)
	w.wantEffects(map[string]int{"workspace.writeBack:w": 2, "test.do:sibling": 1})
	if slices.Contains(w.log, "joins test.do:sibling") || slices.Contains(w.types(), "cut test.do:sibling") {
		t.Error("an attempt that was cancelled is joined")
	}
	last := w.records[len(w.records)-4:]
	for _, r := range last {
		if r.Type == journal.Started && r.Op == "test.do:sibling" && r.Attempt != 2 {
			t.Errorf("its attempt is number %d", r.Attempt)
		}
	}
}

// Operations of a catch block were begun only because of the failure: they need not be asked for again.
func TestWhatFollowedAFailureThatIsTakenBackNeedNotBeAskedForAgain(t *testing.T) {
	p := func(s *strand) (any, error) {
		_, err := s.do(protocol.OpWorkspaceWriteBack, "w", doArgs{Value: "W", Fail: "write_back_conflict", Times: 1})
		if err != nil {
			_, _ = s.all(
				func(s *strand) (any, error) { return s.do("test.do", "fails", doArgs{Fail: "agent_failed"}) },
				func(s *strand) (any, error) { return s.do("test.do", "cancelled", doArgs{Wait: "never"}) },
			)
			return nil, err
		}
		return "fine", nil
	}
	w := newRunFixture(t)
	w.worker(p).leaves(workflow.Interrupted)
	wantValue(t, w.worker(p).leaves(workflow.Succeeded), `"fine"`)
}

// Only the write-back whose failure ended the workflow is taken back, not one whose failure was caught.
func TestACaughtConflictIsNotTakenBack(t *testing.T) {
	p := func(s *strand) (any, error) {
		if _, err := s.do(protocol.OpWorkspaceWriteBack, "caught", doArgs{Fail: "write_back_conflict"}); err == nil {
			return nil, errors.New("no conflict")
		}
		return s.do(protocol.OpWorkspaceWriteBack, "uncaught", doArgs{Fail: "write_back_conflict", Times: 1})
	}
	w := newRunFixture(t)
	w.worker(p).leaves(workflow.Interrupted)
	if got := w.types(); got[len(got)-1] != "reopened workspace.writeBack:uncaught" {
		t.Errorf("%q", got)
	}
	w.worker(p).leaves(workflow.Succeeded)
	w.wantEffects(map[string]int{"workspace.writeBack:caught": 1, "workspace.writeBack:uncaught": 2})
}

// A failing branch cancels its siblings, also where the worker was killed before it could.
func TestAllCancelsTheSiblingsAlsoInReplay(t *testing.T) {
	p := func(s *strand) (any, error) {
		_, err := s.all(
			func(s *strand) (any, error) {
				return s.do("test.do", "fails", doArgs{Fail: "agent_failed", Wait: "fails"})
			},
			func(s *strand) (any, error) { return s.do("test.do", "runs", doArgs{Wait: "never"}) },
			func(s *strand) (any, error) { // asks for something that is never begun
				if _, err := s.do("test.do", "runs too", doArgs{Wait: "never"}); err != nil {
					return nil, err
				}
				return s.do("test.do", "not begun", nil)
			},
		)
		if err == nil {
			return nil, errors.New("no failure")
		}
		return err.Error(), nil
	}
	for at := 4; at <= 7; at++ {
		w := newRunFixture(t)
		first := w.worker(p).start()
		go func() {
			w.until(func() bool {
				return w.has("waits test.do:runs")() && w.has("waits test.do:runs too")() && w.has("waits test.do:fails")()
			})
			w.open("fails")
		}()
		w.kills = at // 4: the failure is not recorded; 5, 6: one or both of the cancelled ones are not
		if at == 7 {
			w.kills = 0
		}
		_, err := first.run(t.Context())
		if (err == nil) != (at == 7) {
			t.Fatalf("at %d: %v", at, err)
		}
		w.kills = 0
		if at < 7 {
			wantValue(t, w.worker(p).leaves(workflow.Succeeded), `"test.do:fails fails"`)
		}
		if w.effects["test.do:runs"] != 0 || w.effects["test.do:not begun"] != 0 || w.effects["test.do:fails"] != 1 {
			t.Errorf("at %d: effects %v", at, w.effects)
		}
		for _, op := range []string{"test.do:runs", "test.do:runs too"} {
			if !slices.Contains(w.types(), "completed "+op+" cancelled") {
				t.Errorf("at %d: %s is not journaled as cancelled: %q", at, op, w.types())
			}
		}
	}
}

func TestAProgramThatBreaksItsLimitsFailsAndWhatItRanIsEnded(t *testing.T) {
	w := newRunFixture(t)
	var k *worker
	p := func(s *strand) (any, error) {
		return s.all(
			func(s *strand) (any, error) { return s.do("test.do", "a", nil) },
			func(s *strand) (any, error) { return s.do("test.do", "b", doArgs{Wait: "never"}) },
		)
	}
	k = w.worker(p).start()
	k.fake.limit = 1 // the first answer
	out := k.leaves(workflow.Failed)
	if !failure.Is(out.Err, failure.LimitExceeded) || !slices.Equal(k.ended, []string{"failed"}) {
		t.Errorf("%v, Ending %v", out.Err, k.ended)
	}
	got := w.types()
	if got[len(got)-1] != "end limit_exceeded failed" {
		t.Errorf("%q", got)
	}
	if slices.Contains(got, "started test.do:b") && !slices.Contains(got, "completed test.do:b cancelled") {
		t.Errorf("what ran is not ended: %q", got)
	}
}

// A child that breaks, or that ends while operations are under way, leaves nothing behind that a later record could follow.
func TestAProgramThatEndsWhileOperationsAreUnderWay(t *testing.T) {
	p := func(s *strand) (any, error) {
		return s.all(
			func(s *strand) (any, error) { return s.do("test.do", "a", doArgs{Value: 1, Wait: "a"}) },
			func(s *strand) (any, error) { return s.do("test.do", "b", doArgs{Wait: "never"}) },
		)
	}
	for _, kill := range []int{0, 4, 5} {
		w := newRunFixture(t)
		k := w.worker(p).start()
		k.fake.endsAfter = 1
		w.kills = kill
		go func() { w.until(w.has("waits test.do:b")); w.until(w.has("waits test.do:a")); w.open("a") }()
		_, err := k.run(t.Context())
		w.kills = 0
		if kill > 0 {
			if !errors.Is(err, errKilled) {
				t.Fatalf("killed at %d: %v", kill, err)
			}
			k = w.worker(p).start()
			k.fake.endsAfter = 1
			k.leaves(workflow.Failed)
		}
		got := w.types()
		if got[len(got)-1] != "end internal failed" && got[len(got)-1] != "end workflow_failed failed" {
			t.Errorf("killed at %d: %q", kill, got)
		}
		if !slices.Contains(got, "completed test.do:b cancelled") {
			t.Errorf("killed at %d: what was under way is not ended: %q", kill, got)
		}
	}
}

func TestAWorkflowThatWaitsForNothingFails(t *testing.T) {
	w := newRunFixture(t)
	k := w.worker(func(*strand) (any, error) { return nil, nil }).start()
	k.fake.silent = true
	out := k.leaves(workflow.Failed)
	if !failure.Is(out.Err, failure.WorkflowFailed) {
		t.Errorf("got %v", out.Err)
	}
}

func TestADyingChildLeavesTheRunToBeResumed(t *testing.T) {
	w := newRunFixture(t)
	w.open("c")
	k := w.worker(three).start()
	k.fake.breaks = 2
	if _, err := k.run(t.Context()); !failure.Is(err, failure.Internal) {
		t.Fatalf("got %v", err)
	}
	wantValue(t, w.worker(three).leaves(workflow.Succeeded), threeValue)
	w.wantEffects(once("a", "b", "c", "d"))
}
