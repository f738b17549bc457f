package runs_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/runs"
	"github.com/laufwerk/laufwerk/internal/store"
	"github.com/laufwerk/laufwerk/internal/system/lock"
	"github.com/laufwerk/laufwerk/internal/workflow"
)

const asks = `yield* Human.confirm({ key: "q", title: "?" }); return "answered";`

func (w *serviceFixture) cancel(id string) (runs.Run, error) {
	return w.s.Cancel(w.t.Context(), id, "enough", false, journal.Sender{})
}

func TestCancellingARunThatNobodyWorksOn(t *testing.T) {
	w := newServiceFixture(t)
	st := w.start(w.request(asks))
	w.work(st, runs.Waiting)
	id := st.Run.ID
	if _, err := w.s.Answer(t.Context(), runs.Answer{Run: id, Key: "q", Value: "yes"}); err != nil {
		t.Fatal(err)
	}
	hold := claims.LockRequest{Key: "source/1:2", Mode: claims.Exclusive, Holder: workflow.WriteBackLockHolder(id, "workspace.writeBack"), Run: id}
	if err := w.s.Driver.TakeLock(t.Context(), hold); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r, err := w.cancel(id)
		if err != nil || r.State != runs.Cancelled {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	if got := w.get(id); got.State != runs.Cancelled || got.Code != string(failure.Cancelled) || !strings.Contains(got.Reason, "enough") || len(got.Waiting) != 0 {
		t.Errorf("%+v", got)
	}
	records := w.records(id)
	if last := records[len(records)-1]; last.Type != journal.End || last.State != runs.Cancelled {
		t.Errorf("%+v", last)
	}
	if ms, _ := w.s.Journal(id).Messages(); len(ms) != 0 {
		t.Errorf("%d messages are left", len(ms))
	}
	if locks, _ := w.s.Driver.ListLocks(t.Context(), ""); len(locks) != 0 {
		t.Errorf("the source is held: %+v", locks)
	}
	_, err := w.s.Resume(t.Context(), id)
	wantKind(t, err, failure.RunState, "cancelled")
}

// The journal has the end already: it counts, whatever is asked for now.
func TestCancellingARunWhoseEndIsJournaled(t *testing.T) {
	w := newServiceFixture(t)
	r := w.dead(w.request(nothing))
	w.append(r.ID, journal.Record{Type: journal.End, State: runs.Succeeded})
	if got, err := w.cancel(r.ID); err != nil || got.State != runs.Succeeded {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestALiveWorkerCancelsItsRun(t *testing.T) {
	w := newServiceFixture(t)
	st := w.start(w.request(`yield* Clock.sleep({ key: "long", duration: 3600000 });`))
	began := make(chan struct{}, 10)
	done := make(chan runs.Result, 1)
	go func() {
		res, err := w.s.RunWorker(context.Background(), st, runs.Hooks{Event: func(ev journal.Event) {
			if ev.Op == "clock.sleep:long" {
				began <- struct{}{}
			}
		}})
		if err != nil {
			t.Error(err)
		}
		done <- res
	}()
	<-began
	if r, err := w.service().Cancel(t.Context(), st.Run.ID, "enough", false, journal.Sender{}); err != nil || r.State != runs.Cancelled {
		t.Errorf("%+v, %v", r, err)
	}
	if res := <-done; res.Run.State != runs.Cancelled || !failure.Is(res.Err, failure.Cancelled) {
		t.Errorf("%+v", res)
	}
}

func TestAHalfAppliedWriteBackComesFirst(t *testing.T) {
	w := newServiceFixture(t)
	r := w.dead(w.request(nothing))
	w.halfApply(r.ID)
	_, err := w.cancel(r.ID)
	wantKind(t, err, failure.HalfApplied, "laufwerk writeback continue "+r.ID, "laufwerk writeback abort "+r.ID)
	if got := w.get(r.ID); got.State != runs.Interrupted {
		t.Errorf("%s", got.State)
	}
	w.set(r.ID, func(r *runs.Run) { r.State = runs.Failed })
	wantKind(t, w.s.Prune(t.Context(), r.ID), failure.HalfApplied)
}

// The record that was read before the lease was had may be old: another worker has ended the run meanwhile.
func TestAnOldRecordBringsNoRunBackToLife(t *testing.T) {
	w := newServiceFixture(t)
	st := w.start(w.request(nothing))
	over := make(chan struct{})
	go func() {
		defer close(over)
		time.Sleep(50 * time.Millisecond) // while the others try
		w.set(st.Run.ID, func(r *runs.Run) { r.State = runs.Succeeded })
		st.Lease.Release()
	}()
	defer func() { <-over }()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		again, err := w.service().Resume(t.Context(), st.Run.ID)
		switch {
		case err == nil:
			again.Lease.Release()
			t.Fatalf("resumed as %s", again.Run.State)
		case failure.Is(err, failure.LeaseBusy):
			continue
		}
		wantKind(t, err, failure.RunState)
		return
	}
	t.Error("it never ended")
}

func TestPrune(t *testing.T) {
	w := newServiceFixture(t)
	q := w.request(nothing)
	q.Key = "k"
	st := w.start(q)
	id := st.Run.ID
	wantKind(t, w.s.Prune(t.Context(), id), failure.RunState)
	w.work(st, runs.Succeeded)

	w.claim(claims.Claim{ID: "cleft", Run: id, Kind: claims.KindSession, State: claims.Residue})
	wantKind(t, w.s.Prune(t.Context(), id), failure.Retained, "cleft", "laufwerk cleanup "+id)
	w.claim(claims.Claim{ID: "cleft", Run: id, Kind: claims.KindWorkspace, State: claims.Allocated, Keep: "unwritten"})
	wantKind(t, w.s.Prune(t.Context(), id), failure.Retained, "--discard-changes")
	w.claim(claims.Claim{ID: "cleft", Run: id, Kind: claims.KindSession, State: claims.Abandoned})

	lease, err := w.s.Lease(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	wantKind(t, w.s.Prune(t.Context(), id), failure.LeaseBusy)
	lease.Release()

	precious := filepath.Join(w.dir, "precious")
	if err := os.WriteFile(precious, []byte("p"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(w.dir, filepath.Join(w.s.Dir(id), "link")); err != nil { // as an agent leaves one
		t.Fatal(err)
	}
	if err := w.s.Prune(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(w.s.Dir(id)); !os.IsNotExist(err) {
		t.Errorf("the folder is there: %v", err)
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
	wantKind(t, w.s.Prune(t.Context(), id), failure.NotFound)
	if _, has, err := w.s.ByKey(t.Context(), q); has || err != nil {
		t.Errorf("its key is taken: %v", err)
	}
}

// Folders of runs that never came to be are swept; one that is being made, or that the store names, is not.
func TestSweepFolders(t *testing.T) {
	w := newServiceFixture(t)
	q := w.request(nothing)
	r := w.dead(q)
	made := filepath.Join(w.dir, "home", "runs")
	for _, name := range []string{"260101-lost", "260101-beginning", r.ID[:4]} {
		if err := os.MkdirAll(filepath.Join(made, name, "deep"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	l, err := w.s.Lease(t.Context(), "260101-beginning")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	want := strings.Join([]string{"260101-lost", r.ID[:4]}, " ")
	for _, dry := range []bool{true, false} {
		swept, err := w.s.SweepFolders(t.Context(), dry)
		if err != nil || strings.Join(swept, " ") != want {
			t.Errorf("dry %v: %q, %v", dry, swept, err)
		}
	}
	names, _ := os.ReadDir(made)
	var left []string
	for _, n := range names {
		left = append(left, n.Name())
	}
	if strings.Join(left, " ") != "260101-beginning "+r.ID {
		t.Errorf("left: %q", left)
	}
}

// What claims that are not over hold stays theirs.
func TestDropLocks(t *testing.T) {
	w := newServiceFixture(t)
	r := w.dead(w.request(nothing))
	w.claim(claims.Claim{ID: "clives", Run: r.ID, State: claims.Deleting})
	w.claim(claims.Claim{ID: "cdead", Run: r.ID, State: claims.Released})
	for _, h := range []claims.LockRequest{
		{Key: "source/1:1", Holder: "clives", Run: r.ID}, {Key: "source/2:2", Holder: "cdead", Run: r.ID}, {Key: "source/3:3", Holder: r.ID, Run: r.ID}, {Key: "source/4:4", Holder: "other", Run: "other"},
	} {
		h.Mode = claims.Exclusive
		if err := w.s.Driver.TakeLock(t.Context(), h); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		dry  bool
		left string
	}{{true, "source/1:1 source/2:2 source/3:3 source/4:4"}, {false, "source/1:1 source/4:4"}} {
		if err := w.s.DropLocks(t.Context(), r.ID, c.dry); err != nil {
			t.Fatal(err)
		}
		locks, err := w.s.Driver.ListLocks(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, h := range locks {
			left = append(left, h.Key)
		}
		if strings.Join(left, " ") != c.left {
			t.Errorf("dry %v: %q", c.dry, left)
		}
	}
}

// The store on a full disk, or held by others, when a worker settles: the run is as it was, and the next worker settles it.
func TestSettlingThatFailsIsMadeUpFor(t *testing.T) {
	w := newServiceFixture(t)
	st := w.start(w.request(nothing))
	w.s.Store.SetWait(time.Millisecond)
	gate, err := lock.Acquire(t.Context(), w.s.Home.LockFile("state"), lock.Shared, 0, "a reader that does not end")
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.s.RunWorker(t.Context(), st, runs.Hooks{})
	wantKind(t, err, failure.LockBusy)
	gate.Release()
	w.s.Store.SetWait(store.DefaultWait) // whoever gave up gives the lock back when it gets it
	if got := w.get(st.Run.ID); got.State != runs.Interrupted {
		t.Fatalf("%s", got.State)
	}
	again, err := w.s.Resume(t.Context(), st.Run.ID)
	if err != nil {
		t.Fatal(err)
	}
	isJSON(t, w.work(again, runs.Succeeded).Value, `"nothing"`)
}
