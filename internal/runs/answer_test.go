package runs_test

import (
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/runs"
)

func TestAnswers(t *testing.T) {
	w := newServiceFixture(t)
	st := w.start(w.request(`
const a = yield* Human.confirm({ key: "a", title: "?" });
const b = yield* Human.select({ key: "b", title: "?", options: [{ value: "x", label: "X" }, { value: "y", label: "Y" }] });
const c = yield* Human.text({ key: "c", title: "?" });
return [a, b, c];`))
	id := st.Run.ID
	w.work(st, runs.Waiting)
	answer := func(key, value string) error {
		_, err := w.s.Answer(t.Context(), runs.Answer{Run: id, Key: key, Value: value})
		return err
	}
	on := func(want string) runs.Result {
		t.Helper()
		again, err := w.s.Resume(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return w.work(again, want)
	}
	wantKind(t, answer("b", "x"), failure.NotFound, "laufwerk answer "+id+" a yes")
	wantKind(t, answer("a", "perhaps"), failure.InputInvalid, "yes or no")
	if err := answer("a", "Yes "); err != nil {
		t.Fatal(err)
	}
	wantKind(t, answer("a", "no"), failure.RunState, "answered already")
	on(runs.Waiting)
	wantKind(t, answer("a", "no"), failure.RunState, "answered already")
	wantKind(t, answer("b", "z"), failure.InputInvalid, "x, y")
	if err := answer("b", "y"); err != nil {
		t.Fatal(err)
	}
	on(runs.Waiting)
	if err := answer("c", "some <text>\n"); err != nil {
		t.Fatal(err)
	}
	isJSON(t, on(runs.Succeeded).Value, `[true,"y","some <text>\n"]`)
	wantKind(t, answer("c", "late"), failure.RunState, "has ended")
}

// Of several people who answer at the same moment, one is told that the answer is recorded.
func TestOneAnswerCounts(t *testing.T) {
	w := newServiceFixture(t)
	st := w.start(w.request(asks))
	w.work(st, runs.Waiting)
	var recorded atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		s := w.service()
		wg.Go(func() {
			_, err := s.Answer(t.Context(), runs.Answer{Run: st.Run.ID, Key: "q", Value: "yes"})
			if err == nil {
				recorded.Add(1)
				return
			}
			wantKind(t, err, failure.RunState, "answered already")
		})
	}
	wg.Wait()
	if recorded.Load() != 1 {
		t.Errorf("%d answers are recorded", recorded.Load())
	}
}

// An answer that comes after the worker's last look into its inbox, and while it still holds the lease: whoever left it saw
// a worker and went away.
func TestAnAnswerThatMeetsALeavingWorker(t *testing.T) {
	w := newServiceFixture(t)
	st := w.start(w.request(asks))
	other := w.service()
	var once sync.Once
	w.now = func() time.Time {
		if asked(w, st.Run.ID) && settling() {
			once.Do(func() {
				if err := w.s.Journal(st.Run.ID).Send(journal.Message{Kind: journal.Answer, At: time.Now(), Key: "q", Value: []byte("true")}); err != nil {
					t.Error(err)
				}
				if _, live := other.Worker(st.Run.ID); !live {
					t.Error("the worker is gone already")
				}
			})
		}
		return time.Now()
	}
	isJSON(t, w.work(st, runs.Succeeded).Value, `"answered"`)
}

func asked(w *serviceFixture, id string) bool {
	qs, err := w.s.Questions(id)
	return err == nil && len(qs) > 0
}

// settling says whether the caller is writing how a worker left its run.
func settling() bool {
	pcs := make([]uintptr, 50)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, ".recordOutcome") {
			return true
		}
		if !more {
			return false
		}
	}
}
