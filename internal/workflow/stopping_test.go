package workflow_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/session"
	"github.com/laufwerk/laufwerk/internal/workflow"
)

// A stopped worker leaves its operations open and says why it left; what succeeds while it leaves is kept.
func TestStopping(t *testing.T) {
	for _, cause := range []error{session.ErrInterrupted, session.ErrDetached} {
		t.Run(cause.Error(), func(t *testing.T) {
			w := newRunFixture(t)
			p := func(s *strand) (any, error) {
				return s.all(
					func(s *strand) (any, error) { return s.do("test.do", "a", doArgs{Value: "A", Wait: "a"}) },
					func(s *strand) (any, error) { return s.do("test.slow", "b", nil) },
				)
			}
			slow := workflow.Handler{Do: func(ctx context.Context, op *workflow.Op) (any, any, error) {
				if err := op.Start("b"); err != nil {
					return nil, nil, err
				}
				w.note("slow")
				<-ctx.Done()
				w.note("told %v", context.Cause(ctx))
				return "B", nil, nil // it came to its end all the same
			}}
			ctx, stop := context.WithCancelCause(t.Context())
			k := w.worker(p)
			k.handlers["test.slow"] = slow
			k.start()
			go func() {
				w.until(func() bool { return w.has("waits test.do:a")() && w.has("slow")() })
				stop(cause)
			}()
			out, err := k.run(ctx)
			if err != nil || out.State != workflow.Interrupted || out.Err != nil {
				t.Fatalf("%+v, %v", out, err)
			}
			for _, line := range []string{fmt.Sprintf("%v test.do:a", cause), fmt.Sprintf("told %v", cause)} {
				if !w.has(line)() {
					t.Errorf("%q is missing in %q", line, w.log)
				}
			}
			want := []string{"completed test.slow:b", "started test.do:a", "started test.slow:b"}
			got := w.types()
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("%q", got)
			}
			w.open("a")
			k = w.worker(p)
			k.handlers["test.slow"] = slow
			wantValue(t, k.leaves(workflow.Succeeded), `["A","B"]`)
		})
	}
}

// Errors that only say that the worker leaves are never taken for the operation's end, whatever they look like.
func TestAnErrorOfALeavingWorkerIsNotTheOperationsEnd(t *testing.T) {
	for _, err := range []error{context.Canceled, failure.New(failure.Interrupted, "x"), failure.New(failure.Cancelled, "x"), failure.Wrap(context.Canceled, failure.Failed, "copy")} {
		w := newRunFixture(t)
		k := w.worker(func(s *strand) (any, error) { return s.do("test.x", "x", nil) })
		k.handlers["test.x"] = workflow.Handler{Do: func(ctx context.Context, _ *workflow.Op) (any, any, error) {
			w.note("x")
			<-ctx.Done()
			return nil, nil, err
		}}
		k.start()
		go func() { w.until(w.has("x")); k.engine.Stop(session.ErrInterrupted) }()
		k.leaves(workflow.Interrupted)
		if got := w.types(); len(got) != 0 {
			t.Errorf("%v: %q", err, got)
		}
	}
}

func TestAWorkerThatIsStoppedBeforeItBeginsExecutesNothing(t *testing.T) {
	w := newRunFixture(t)
	k := w.worker(three).start()
	k.engine.Stop(session.ErrInterrupted)
	k.leaves(workflow.Interrupted)
	w.wantEffects(map[string]int{})
}

// What the machine lacks is no failure of the workflow: nothing is journaled, the reason is told, and the run goes on later.
func TestWhatTheMachineLacksSuspendsTheRun(t *testing.T) {
	full := &os.PathError{Op: "write", Path: "/x", Err: syscall.ENOSPC}
	for _, c := range []struct {
		err  error
		kind failure.Kind
	}{
		{failure.New(failure.NotReady, "no engine").WithHint("laufwerk resume RUN"), failure.NotReady},
		{failure.New(failure.LockBusy, "locked"), failure.LockBusy},
		{failure.New(failure.HomeInvalid, "gone"), failure.HomeInvalid},
		{failure.New(failure.StoreInvalid, "damaged"), failure.StoreInvalid},
		{full, failure.NotReady},
		{failure.Wrap(full, failure.Failed, "copy"), failure.Failed},
	} {
		w := newRunFixture(t)
		p := func(s *strand) (any, error) {
			v, err := s.do("test.x", "x", nil)
			if err != nil {
				return "caught", nil //nolint:nilerr // the workflow would go on
			}
			return v, nil
		}
		k := w.worker(p)
		k.handlers["test.x"] = workflow.Handler{Do: func(context.Context, *workflow.Op) (any, any, error) { return nil, nil, c.err }}
		out := k.leaves(workflow.Interrupted)
		if !errors.Is(out.Err, c.err) || failure.KindOf(out.Err) != c.kind {
			t.Errorf("%v: left with %v (%s)", c.err, out.Err, failure.KindOf(out.Err))
		}
		if len(w.types()) != 0 || len(k.ended) != 0 {
			t.Errorf("%v: %q, Ending %v", c.err, w.types(), k.ended)
		}
		k.waitForEvent("notice", "")
		k = w.worker(p)
		k.handlers["test.x"] = workflow.Handler{Do: func(context.Context, *workflow.Op) (any, any, error) { return "ready", nil, nil }}
		wantValue(t, k.leaves(workflow.Succeeded), `"ready"`)
	}
}

// Each append may fail. The worker then stops at once, and a next one goes on from the last good record.
func TestAJournalThatCannotBeWritten(t *testing.T) {
	for at := 1; at <= 9; at++ {
		w := newRunFixture(t)
		w.open("c")
		w.kills, w.full = at, failure.New(failure.NotReady, "the disk is full").WithHint("laufwerk resume RUN")
		k := w.worker(three)
		out, err := k.run(t.Context())
		if err == nil {
			err = out.Err
		}
		if !failure.Is(err, failure.NotReady) || out.State == workflow.Failed || out.State == workflow.Succeeded && at < 9 {
			t.Fatalf("append %d fails: %+v, %v", at, out, err)
		}
		w.kills = 0
		wantValue(t, w.worker(three).leaves(workflow.Succeeded), threeValue)
		w.wantEffects(once("a", "b", "c", "d"))
	}
}

// An operation that is cancelled before anything of it was journaled is not executed; what an earlier worker may have left of
// it is ended first, and where that cannot be done now the run waits for it.
func TestWhatIsCancelledBeforeItBeganIsForgotten(t *testing.T) {
	w := newRunFixture(t)
	p := func(s *strand) (any, error) {
		_, err := s.all(
			func(s *strand) (any, error) { return s.do("test.do", "fails", doArgs{Fail: "agent_failed"}) },
			func(s *strand) (any, error) { return s.do("test.claims", "c", nil) },
		)
		return err.Error(), nil
	}
	fails := error(nil)
	claims := func(k *worker) *worker {
		k.handlers["test.claims"] = workflow.Handler{
			Do: func(ctx context.Context, _ *workflow.Op) (any, any, error) {
				w.note("claims")
				<-ctx.Done()
				return nil, nil, context.Cause(ctx)
			},
			Forget: func(_ context.Context, op *workflow.Op) error { w.note("forgets %s", op.ID); return fails },
		}
		return k
	}
	w.kills = 3 // the failure is recorded, and that the sibling was cancelled is not
	if _, err := claims(w.worker(p)).run(t.Context()); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	w.kills, w.log = 0, nil
	fails = failure.New(failure.LockBusy, "locked")
	claims(w.worker(p)).leaves(workflow.Interrupted)
	fails = nil
	wantValue(t, claims(w.worker(p)).leaves(workflow.Succeeded), `"test.do:fails fails"`)
	if !slices.Equal(w.log, []string{"forgets test.claims:c", "forgets test.claims:c"}) {
		t.Errorf("%q", w.log)
	}
}

// Values that have no JSON form, or one with bytes that are no text, do not stop the engine.
func TestOddValues(t *testing.T) {
	w := newRunFixture(t)
	p := func(s *strand) (any, error) {
		if _, err := s.do("test.none", "none", nil); err == nil {
			return nil, errors.New("a channel went through")
		} else if !strings.Contains(err.Error(), "no JSON form") {
			return nil, err
		}
		return s.do("test.bytes", "bytes", nil)
	}
	k := w.worker(p)
	k.handlers["test.none"] = workflow.Handler{Do: func(context.Context, *workflow.Op) (any, any, error) { return make(chan int), nil, nil }}
	k.handlers["test.bytes"] = workflow.Handler{Do: func(context.Context, *workflow.Op) (any, any, error) { return raw("\"a\xffb\""), nil, nil }}
	wantValue(t, k.leaves(workflow.Succeeded), `"a`+"\uFFFD"+`b"`)
}

type raw string

func (r raw) MarshalJSON() ([]byte, error) { return []byte(r), nil }
