package runs_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/runs"
)

const nothing = `return "nothing";`

func TestARunFromStartToEnd(t *testing.T) {
	w := newServiceFixture(t)
	q := w.request(`const now = yield* Clock.now(); return { input, same: now.getTime() <= Date.now() };`)
	q.Input = []byte(`{"x":1}`)
	st := w.start(q)
	if got := w.get(st.Run.ID); got.State != runs.Running || got.Scope != q.Project.Scope || got.Workflow != "w" {
		t.Errorf("%+v", got)
	}
	res := w.work(st, runs.Succeeded)
	isJSON(t, res.Value, `{"input":{"x":1},"same":true}`)
	if got := w.get(st.Run.ID); got.State != runs.Succeeded || got.EndedAt.IsZero() || got.Reason != "" {
		t.Errorf("%+v", got)
	}
	if _, live := w.s.Worker(st.Run.ID); live {
		t.Error("the lease is held after the end")
	}
	_, err := w.s.Resume(t.Context(), st.Run.ID)
	wantKind(t, err, failure.RunState, "succeeded")
}

func TestTheWorkflowsFailureIsKept(t *testing.T) {
	w := newServiceFixture(t)
	st := w.start(w.request(`throw new Error("boom");`))
	res := w.work(st, runs.Failed)
	wantKind(t, res.Err, failure.WorkflowFailed, "boom")
	if got := w.get(st.Run.ID); got.Code != string(failure.WorkflowFailed) || !strings.Contains(got.Reason, "boom") {
		t.Errorf("%+v", got)
	}
}

// The run keeps the code that it started with, whatever becomes of the file.
func TestTheCodeIsPinned(t *testing.T) {
	w := newServiceFixture(t)
	r := w.dead(w.request(`return "old";`))
	w.request(`return "new";`)
	st, err := w.s.Resume(t.Context(), r.ID)
	if err != nil {
		t.Fatal(err)
	}
	if st.Drift == "" {
		t.Error("nobody is told that the file has other code")
	}
	isJSON(t, w.work(st, runs.Succeeded).Value, `"old"`)
	same := w.dead(w.request(`return "new";`))
	if st, err = w.s.Resume(t.Context(), same.ID); err != nil || st.Drift != "" {
		t.Errorf("%q, %v", st.Drift, err)
	}
}

func TestAStartThatIsRefusedLeavesNothing(t *testing.T) {
	w := newServiceFixture(t)
	q := w.request(nothing)
	first := w.start(q)
	q.Project.Concurrency = 1
	q.Key = "k"
	_, err := w.s.Start(t.Context(), q)
	wantKind(t, err, failure.AdmissionFull, first.Run.ID)
	folders, err := os.ReadDir(filepath.Join(w.dir, "home", "runs"))
	if err != nil || len(folders) != 1 {
		t.Errorf("%d folders, %v", len(folders), err)
	}
	if _, has, err := w.s.ByKey(t.Context(), q); has || err != nil {
		t.Errorf("the key is taken: %v", err)
	}
}

// A run counts until it is over and nothing of it is outstanding; what is deliberately kept does not count.
func TestAdmission(t *testing.T) {
	for name, c := range map[string]struct {
		state   string
		claim   *claims.Claim
		half    bool
		admits  bool
		inScope string
	}{
		"running":                    {state: runs.Running},
		"waiting":                    {state: runs.Waiting},
		"over":                       {state: runs.Succeeded, admits: true},
		"over, a resource":           {state: runs.Failed, claim: &claims.Claim{State: claims.Allocated}},
		"over, a resource in doubt":  {state: runs.Failed, claim: &claims.Claim{State: claims.Unknown}},
		"over, a residue":            {state: runs.Failed, claim: &claims.Claim{State: claims.Residue}},
		"over, a tombstone":          {state: runs.Failed, claim: &claims.Claim{State: claims.Released}, admits: true},
		"over, given up by a person": {state: runs.Failed, claim: &claims.Claim{State: claims.Abandoned}, admits: true},
		"over, kept":                 {state: runs.Failed, claim: &claims.Claim{State: claims.Allocated, Keep: "unwritten"}, admits: true},
		"over, half applied":         {state: runs.Failed, half: true},
		"of another project":         {state: runs.Running, inScope: "other", admits: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newServiceFixture(t)
			q := w.request(nothing)
			r := w.dead(q)
			w.set(r.ID, func(r *runs.Run) {
				r.State = c.state
				if c.inScope != "" {
					r.Scope = c.inScope
				}
			})
			if c.claim != nil {
				c.claim.ID, c.claim.Run, c.claim.Kind = "cclaim", r.ID, claims.KindSession
				w.claim(*c.claim)
			}
			if c.half {
				w.halfApply(r.ID)
			}
			q.Project.Concurrency = 1
			st, err := w.s.Start(t.Context(), q)
			if c.admits {
				if err != nil {
					t.Fatal(err)
				}
				st.Lease.Release()
				return
			}
			wantKind(t, err, failure.AdmissionFull, r.ID)
		})
	}
}

// halfApply leaves a plan of a write-back that is under way.
func (w *serviceFixture) halfApply(id string) {
	w.t.Helper()
	dir := filepath.Join(w.s.Dir(id), "writebacks", "x")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "plan.json"), []byte(`{"format":"1.0","id":"x","state":"applying","steps":[]}`), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func TestAnInterruptedRunIsFoundAndNamed(t *testing.T) {
	w := newServiceFixture(t)
	q := w.request(nothing)
	a, b := w.dead(q), w.dead(q)
	if got := w.get(a.ID); got.State != runs.Interrupted {
		t.Errorf("%s", got.State)
	}
	if got := w.get(b.ID[:len(b.ID)-1]); got.ID != b.ID {
		t.Errorf("found %s", got.ID)
	}
	_, err := w.s.Get(t.Context(), a.ID[:6])
	wantKind(t, err, failure.Usage, "2 runs")
	_, err = w.s.Get(t.Context(), a.ID+"x")
	wantKind(t, err, failure.NotFound, a.ID)
	_, err = w.s.Get(t.Context(), "")
	wantKind(t, err, failure.NotFound)

	// An id that is the beginning of another one is still itself.
	w.set(a.ID+"0", func(r *runs.Run) { *r = a; r.ID = a.ID + "0" })
	if got := w.get(a.ID); got.ID != a.ID {
		t.Errorf("found %s", got.ID)
	}
	list, err := w.s.List(t.Context(), q.Project.Scope)
	if err != nil || len(list) != 3 {
		t.Errorf("%d runs, %v", len(list), err)
	}
	if other, err := w.s.List(t.Context(), "other"); err != nil || len(other) != 0 {
		t.Errorf("%d runs of another project, %v", len(other), err)
	}
}

func TestOnlyOneWorkerAtATime(t *testing.T) {
	w := newServiceFixture(t)
	st := w.start(w.request(nothing))
	_, err := w.service().Resume(t.Context(), st.Run.ID)
	wantKind(t, err, failure.LeaseBusy, "laufwerk test", "runs logs")
	st.Lease.Release()
	again, err := w.service().Resume(t.Context(), st.Run.ID)
	if err != nil {
		t.Fatal(err)
	}
	again.Lease.Release()
}

// No literal value of a variable is in the store, the journal, the events or anywhere else but in the pinned code.
func TestValuesOfVariablesAreInThePinnedCodeAlone(t *testing.T) {
	w := newServiceFixture(t)
	q := w.request(`
const workspace = yield* Workspace.open({ source: ".", execution });
const s = yield* Session.open({ key: "s", agent, workspace });
const said = yield* s.ask({ key: "a", prompt: "hello" });
const r = yield* s.exec({ key: "e", command: "test -n \"$X\" && test -n \"$TOKEN\"; cat >/dev/null; echo $?", env: { X: "canary-exec" }, stdin: "canary-stdin" });
yield* s.close();
const one = yield* Session.run({ key: "one", agent, workspace, prompt: "again" });
return [said, r.stdout, one];`)
	st := w.start(q)
	res := w.work(st, runs.Succeeded)
	isJSON(t, res.Value, `["hello","0\n","again"]`)
	searched := 0
	err := filepath.WalkDir(filepath.Join(w.dir, "home"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || d.Name() == "bundle.json" {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		searched++
		for _, canary := range []string{"canary-target", "canary-agent", "canary-exec", "canary-stdin"} {
			if bytes.Contains(b, []byte(canary)) {
				t.Errorf("%s is in %s", canary, path)
			}
		}
		return nil
	})
	if err != nil || searched < 5 {
		t.Errorf("%d files searched, %v", searched, err)
	}
}

// A worker that was killed after the last record, or whose store could not be written then: the journal decides, and that
// needs neither project nor isolate.
func TestTheJournalsEndDecides(t *testing.T) {
	w := newServiceFixture(t)
	st := w.start(w.request(`yield* Human.confirm({ key: "q", title: "?" }); return 1;`))
	w.work(st, runs.Waiting)
	w.append(st.Run.ID, journal.Record{Type: journal.End, At: time.Now(), State: runs.Failed, Value: nil})
	if err := os.RemoveAll(w.root); err != nil {
		t.Fatal(err)
	}
	again, err := w.s.Resume(t.Context(), st.Run.ID)
	if err != nil {
		t.Fatal(err)
	}
	w.work(again, runs.Failed)
	if got := w.get(st.Run.ID); len(got.Waiting) != 0 || got.State != runs.Failed {
		t.Errorf("%+v", got)
	}
	if n := len(w.records(st.Run.ID)); w.records(st.Run.ID)[n-1].Type != journal.End {
		t.Error("something follows the end")
	}
}
