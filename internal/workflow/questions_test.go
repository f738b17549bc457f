package workflow_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/protocol"
	"github.com/laufwerk/laufwerk/internal/session"
	"github.com/laufwerk/laufwerk/internal/workflow"
)

// confirm asks one question.
func confirm(key string) program {
	return func(s *strand) (any, error) {
		return s.do(protocol.OpHuman, key, map[string]string{"type": "confirm", "title": "Really?"})
	}
}

func TestTheWorkerLeavesWhenEverybodyWaitsForAPerson(t *testing.T) {
	w := newRunFixture(t)
	p := func(s *strand) (any, error) {
		return s.all(confirm("one"), confirm("two"), func(s *strand) (any, error) { return s.do("test.do", "a", doArgs{Value: 1}) })
	}
	out := w.worker(p).leaves(workflow.Waits)
	var keys []string
	for _, q := range out.Waiting {
		keys = append(keys, q.Key)
		if q.Type != workflow.Confirm || q.Title != "Really?" || q.Since == 0 {
			t.Errorf("%+v", q)
		}
	}
	if slices.Sort(keys); !slices.Equal(keys, []string{"one", "two"}) {
		t.Errorf("waits for %v", keys)
	}
	w.wantEffects(once("a"))
	if open := workflow.OpenQuestions(w.records); len(open) != 2 {
		t.Errorf("the journal knows %d open questions", len(open))
	}

	// One answer is not enough; both are.
	w.answer("two", "false", "")
	out = w.worker(p).leaves(workflow.Waits)
	if len(out.Waiting) != 1 || out.Waiting[0].Key != "one" {
		t.Fatalf("waits for %+v", out.Waiting)
	}
	w.answer("one", "true", "")
	wantValue(t, w.worker(p).leaves(workflow.Succeeded), "[true,false,1]")
	if n := w.messages(); n != 0 {
		t.Errorf("%d messages are left", n)
	}
	if open := workflow.OpenQuestions(w.records); len(open) != 0 {
		t.Errorf("the journal knows %d open questions", len(open))
	}
	w.wantEffects(once("a"))
}

func TestTheAnswerIsJournaledWithWhoGaveIt(t *testing.T) {
	w := newRunFixture(t)
	w.worker(confirm("q")).leaves(workflow.Waits)
	w.answer("q", "true", "")
	w.worker(confirm("q")).leaves(workflow.Succeeded)
	for _, r := range w.records {
		if r.Type == journal.Completed {
			var a workflow.AnswerRecord
			if err := json.Unmarshal(r.Meta, &a); err != nil || a.Who.UID != 7 {
				t.Errorf("%s: %v", r.Meta, err)
			}
		}
	}
}

// The answer may be in the inbox before the question is asked: a worker was killed after it had journaled nothing of it.
func TestAnAnswerThatCameBeforeItsQuestion(t *testing.T) {
	w := newRunFixture(t)
	w.answer("q", "true", "")
	wantValue(t, w.worker(confirm("q")).leaves(workflow.Succeeded), "true")
}

func TestTheFirstFittingAnswerCounts(t *testing.T) {
	w := newRunFixture(t)
	w.worker(confirm("q")).leaves(workflow.Waits)
	w.answer("q", `"maybe"`, "")
	w.answer("q", "false", "")
	w.answer("q", "true", "")
	k := w.worker(confirm("q"))
	wantValue(t, k.leaves(workflow.Succeeded), "false")
	k.waitForEvent("notice", `an answer was not accepted: "q" is answered by true or false`)
	if n := w.messages(); n != 0 {
		t.Errorf("%d messages are left", n)
	}
}

func TestAnUnfittingAnswerAloneLeavesTheQuestionOpen(t *testing.T) {
	w := newRunFixture(t)
	w.worker(confirm("q")).leaves(workflow.Waits)
	w.answer("q", "17", "")
	w.worker(confirm("q")).leaves(workflow.Waits)
	if n := w.messages(); n != 0 {
		t.Errorf("%d messages are left", n)
	}
}

// An answer that was given about other content than the question's never counts.
func TestAnAnswerAboutOtherContentIsNotTaken(t *testing.T) {
	w := newRunFixture(t)
	w.worker(confirm("q")).leaves(workflow.Waits)
	for i := range w.records { // as if the question were bound to content
		if r := &w.records[i]; r.Type == journal.Started {
			r.Data = json.RawMessage(`{"since":1,"digest":"asked"}`)
		}
	}
	w.answer("q", "true", "other")
	w.answer("q", "true", "")
	out := w.worker(confirm("q")).leaves(workflow.Waits)
	if out.Waiting[0].Digest != "asked" {
		t.Errorf("%+v", out.Waiting[0])
	}
	w.answer("q", "true", "asked")
	w.worker(confirm("q")).leaves(workflow.Succeeded)
}

// A worker that was killed after it had journaled an answer, and before it took it out of the inbox.
func TestATakenAnswerIsNotTakenAgain(t *testing.T) {
	w := newRunFixture(t)
	p := func(s *strand) (any, error) {
		if _, err := s.do(protocol.OpHuman, "q", map[string]string{"type": "text", "title": "?"}); err != nil {
			return nil, err
		}
		return s.do(protocol.OpHuman, "later", map[string]string{"type": "text", "title": "?"})
	}
	w.worker(p).leaves(workflow.Waits)
	w.answer("q", `"first"`, "")
	w.worker(p).leaves(workflow.Waits)
	w.answer("q", `"again"`, "")
	w.worker(p).leaves(workflow.Waits)
	w.answer("later", `"x"`, "")
	wantValue(t, w.worker(p).leaves(workflow.Succeeded), `"x"`)
	if n := w.messages(); n != 0 {
		t.Errorf("%d messages are left after the end", n)
	}
}

func TestAnswersByMessageReachALiveWorker(t *testing.T) {
	w := newRunFixture(t)
	k := w.worker(confirm("q"))
	k.stay = true
	k.ask = func(ctx context.Context, _ workflow.Question) (json.RawMessage, journal.Sender, error) {
		w.note("asked")
		<-ctx.Done()
		return nil, journal.Sender{}, context.Cause(ctx)
	}
	go func() { w.until(w.has("asked")); w.answer("q", "true", "") }()
	wantValue(t, k.leaves(workflow.Succeeded), "true")
}

func TestThePersonAtTheTerminal(t *testing.T) {
	t.Run("answers", func(t *testing.T) {
		w := newRunFixture(t)
		k := w.worker(confirm("q"))
		k.stay, k.ask = true, func(context.Context, workflow.Question) (json.RawMessage, journal.Sender, error) {
			return json.RawMessage("true"), journal.Sender{Terminal: "/dev/pts/1"}, nil
		}
		wantValue(t, k.leaves(workflow.Succeeded), "true")
	})
	t.Run("goes away", func(t *testing.T) {
		w := newRunFixture(t)
		k := w.worker(confirm("q"))
		k.stay, k.ask = true, func(context.Context, workflow.Question) (json.RawMessage, journal.Sender, error) {
			return nil, journal.Sender{}, workflow.ErrNobody
		}
		k.leaves(workflow.Waits)
	})
	t.Run("one question at a time", func(t *testing.T) {
		w := newRunFixture(t)
		var asking, most int
		k := w.worker(func(s *strand) (any, error) { return s.all(confirm("a"), confirm("b"), confirm("c")) })
		k.stay, k.ask = true, func(context.Context, workflow.Question) (json.RawMessage, journal.Sender, error) {
			asking++
			most = max(most, asking)
			asking--
			return json.RawMessage("true"), journal.Sender{}, nil
		}
		wantValue(t, k.leaves(workflow.Succeeded), "[true,true,true]")
		if most != 1 {
			t.Errorf("%d questions at once", most)
		}
	})
}

func TestWhatAnswersAQuestion(t *testing.T) {
	q := func(kind string) workflow.Question {
		return workflow.Question{Key: "q", Type: kind, Options: []workflow.Option{{Value: "a"}, {Value: "b"}}}
	}
	for _, c := range []struct {
		kind, value string
		fits        bool
	}{
		{workflow.Confirm, "true", true}, {workflow.Confirm, "false", true}, {workflow.Confirm, `"yes"`, false}, {workflow.Confirm, "1", false},
		{workflow.Confirm, "null", false}, {workflow.Confirm, "", false},
		{workflow.Text, `"x"`, true}, {workflow.Text, `""`, true}, {workflow.Text, "1", false}, {workflow.Text, "null", false},
		{workflow.Select, `"b"`, true}, {workflow.Select, `"c"`, false}, {workflow.Select, "null", false},
	} {
		if err := q(c.kind).Check(json.RawMessage(c.value)); (err == nil) != c.fits {
			t.Errorf("%s, %s: %v", c.kind, c.value, err)
		}
	}
}

// A question that was cancelled together with a write-back that is tried again is asked again, and can be answered.
func TestAQuestionThatIsAskedAgain(t *testing.T) {
	w := newRunFixture(t)
	p := func(s *strand) (any, error) {
		return s.all(confirm("q"), func(s *strand) (any, error) {
			return s.do(protocol.OpWorkspaceWriteBack, "w", doArgs{Value: "W", Fail: "write_back_conflict", Times: 1, Wait: "w"})
		})
	}
	first := w.worker(p).start()
	go func() { first.waitForEvent("question", "Really?"); w.open("w") }()
	first.leaves(workflow.Interrupted)
	if open := workflow.OpenQuestions(w.records); len(open) != 0 {
		t.Fatalf("%+v", open)
	}
	w.worker(p).leaves(workflow.Waits)
	open := workflow.OpenQuestions(w.records)
	if len(open) != 1 || open[0].Key != "q" || open[0].Title != "Really?" {
		t.Fatalf("%+v", open)
	}
	w.answer("q", "true", "")
	wantValue(t, w.worker(p).leaves(workflow.Succeeded), `[true,"W"]`)
}

// A cancellation reaches an operation that is under way, one that waits for a person, and a worker that comes only later.
func TestCancelByMessage(t *testing.T) {
	p := func(s *strand) (any, error) {
		if _, err := s.do("test.do", "a", nil); err != nil {
			return nil, err
		}
		return s.all(confirm("q"), func(s *strand) (any, error) { return s.do("test.do", "b", doArgs{Wait: "never"}) })
	}
	check := func(t *testing.T, w *runFixture, k *worker, out workflow.Outcome) {
		t.Helper()
		if !failure.Is(out.Err, failure.Cancelled) || !strings.Contains(out.Err.Error(), "enough") {
			t.Errorf("%v", out.Err)
		}
		got := w.types()
		if got[len(got)-1] != "end cancelled cancelled" || !slices.Contains(got, "completed test.do:b cancelled") || !slices.Contains(got, "completed human:q cancelled") {
			t.Errorf("%q", got)
		}
		if w.messages() != 0 || !slices.Equal(k.ended, []string{"cancelled"}) {
			t.Errorf("%d messages, Ending %v", w.messages(), k.ended)
		}
	}
	t.Run("live", func(t *testing.T) {
		w := newRunFixture(t)
		k := w.worker(p).start()
		go func() {
			w.until(w.has("waits test.do:b"))
			w.send(journal.Message{Kind: journal.Cancel, Reason: "enough"})
		}()
		check(t, w, k, k.leaves(workflow.Cancelled))
	})
	t.Run("before the worker", func(t *testing.T) {
		w := newRunFixture(t)
		first := w.worker(p).start()
		go func() { w.until(w.has("waits test.do:b")); first.engine.Stop(session.ErrInterrupted) }()
		first.leaves(workflow.Interrupted)
		w.send(journal.Message{Kind: journal.Cancel, Reason: "enough"})
		k := w.worker(p)
		check(t, w, k, k.leaves(workflow.Cancelled))
		if !slices.Contains(w.log, "fences test.do:b") {
			t.Errorf("what an earlier worker began is not ended: %q", w.log)
		}
	})
	t.Run("before anything", func(t *testing.T) {
		w := newRunFixture(t)
		w.send(journal.Message{Kind: journal.Cancel})
		w.worker(p).leaves(workflow.Cancelled)
		w.wantEffects(map[string]int{})
	})
	t.Run("killed in the middle", func(t *testing.T) {
		for at := 4; at <= 7; at++ {
			w := newRunFixture(t)
			w.send(journal.Message{Kind: journal.Cancel, Reason: "enough"})
			first := w.worker(func(s *strand) (any, error) { return s.all(confirm("q"), confirm("r"), confirm("s")) })
			w.kills = at - 3
			_, err := first.run(t.Context())
			w.kills = 0
			if err == nil {
				t.Fatalf("at %d: not killed", at)
			}
			if w.messages() == 0 {
				t.Fatal("the cancellation is lost")
			}
			w.worker(first.fake.main).leaves(workflow.Cancelled)
		}
	})
}
