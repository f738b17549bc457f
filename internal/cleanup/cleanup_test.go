package cleanup_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/cleanup"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/runs"
	"github.com/laufwerk/laufwerk/internal/store"
	"github.com/laufwerk/laufwerk/internal/system/lock"
	"github.com/laufwerk/laufwerk/internal/workflow"
	"github.com/laufwerk/laufwerk/internal/workspace"
)

// homeFixture is a home with real workspaces, and sessions of a provider that does what a test wants. There is no project.
type homeFixture struct {
	t     testing.TB
	dir   string
	s     *runs.Service
	far   *far
	ended []string // in order
}

// far is a provider of sessions. What a claim's end comes to is by its name, absence where nothing is said.
type far struct {
	w     *homeFixture
	mu    sync.Mutex
	comes map[string]resource.Observation
	ask   func(name string)
}

func (*far) Lister() resource.Lister { return nil }

func (f *far) Create(context.Context, resource.Intent) resource.Result {
	return resource.Result{Outcome: resource.Done, Resource: "there"}
}

func (f *far) Resolve(context.Context, resource.Intent) resource.Result {
	return resource.Result{Outcome: resource.NotDone}
}

func (f *far) Observe(_ context.Context, in resource.Intent) resource.Observation {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o, ok := f.comes[in.Name]; ok {
		return o
	}
	return resource.Observation{Presence: resource.Absent}
}

func (f *far) Delete(_ context.Context, in resource.Intent) resource.Result {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.w.ended = append(f.w.ended, in.Name)
	if f.ask != nil {
		f.ask(in.Name)
	}
	return resource.Result{Outcome: resource.Done}
}

func newHomeFixture(t testing.TB) *homeFixture {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home, err := store.OpenHome(filepath.Join(dir, "home"), true)
	if err != nil {
		t.Fatal(err)
	}
	w := &homeFixture{t: t, dir: dir}
	w.far = &far{w: w, comes: map[string]resource.Observation{}}
	st := store.Open(home, time.Now, "laufwerk test")
	trees := workspace.NewResources(home.Dir(), workspace.Bounds{}, time.Now, nil)
	driver := claims.NewDriver(claims.Options{Store: st, Now: time.Now, Owner: st.ID, Resources: func(kind claims.Kind, provider string) (resource.Manager, bool) {
		if kind == claims.KindWorkspace {
			return trees, true
		}
		return w.far, provider == "far"
	}})
	w.s = &runs.Service{
		Home: home, Store: st, Driver: driver, Now: time.Now, Command: "laufwerk test",
		Provider: func(string) (providers.Provider, bool) { return nil, false },
	}
	return w
}

// run makes a run in a state, with its folder and journal.
func (w *homeFixture) run(id, state string) {
	w.t.Helper()
	if err := os.MkdirAll(w.s.Dir(id), 0o700); err != nil {
		w.t.Fatal(err)
	}
	log, _, err := w.s.Journal(id).Open()
	if err != nil {
		w.t.Fatal(err)
	}
	defer log.Close()
	if err := log.Append(journal.Record{Type: journal.Begin, Version: journal.Version, Run: id}); err != nil {
		w.t.Fatal(err)
	}
	if err := w.s.Store.Update(w.t.Context(), func(tx store.Tx) error {
		return tx.Put(store.Runs, id, runs.Run{ID: id, State: state, CreatedAt: time.Now()})
	}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *homeFixture) allocate(req claims.Request) claims.Claim {
	w.t.Helper()
	c, err := w.s.Driver.Allocate(w.t.Context(), req)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// session makes a session of a run; "" is none.
func (w *homeFixture) session(run, name string) claims.Claim {
	return w.allocate(claims.Request{ID: claims.ID(run, name), Kind: claims.KindSession, Provider: "far", Run: run, Operation: name, Intent: resource.Intent{Name: name, Endpoint: "far"}})
}

// workspace makes a copy of a small source.
func (w *homeFixture) workspace(run string) claims.Claim {
	w.t.Helper()
	source := filepath.Join(w.dir, "source")
	if err := os.MkdirAll(source, 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(source, "f"), []byte("f\n"), 0o644); err != nil {
		w.t.Fatal(err)
	}
	id := claims.ID(run, "workspace.open")
	spec, err := json.Marshal(workspace.Spec{Dir: w.s.Home.WorkspaceDir(id), Source: source, Mode: workspace.ModeCopy})
	if err != nil {
		w.t.Fatal(err)
	}
	return w.allocate(claims.Request{
		ID: id, Kind: claims.KindWorkspace, Provider: workflow.WorkspaceProvider, Run: run, Operation: "workspace.open", Intent: resource.Intent{Name: id, Endpoint: "local", Spec: spec},
	})
}

func (w *homeFixture) change(c claims.Claim) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.s.Home.WorkspaceDir(c.ID), "tree", "f"), []byte("changed\n"), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *homeFixture) clean(q cleanup.Request) (cleanup.Report, error) {
	return cleanup.Run(w.t.Context(), w.s, q)
}

func (w *homeFixture) state(c claims.Claim) claims.State {
	w.t.Helper()
	got, err := w.s.Driver.Get(w.t.Context(), c.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	return got.State
}

func (w *homeFixture) there(c claims.Claim) bool {
	_, err := os.Lstat(w.s.Home.WorkspaceDir(c.ID))
	return err == nil
}

// reportedLines is what a report says of its claims: "released A, kept B, retained C".
func reportedLines(rep cleanup.Report) string {
	var out []string
	for what, rows := range map[string][]cleanup.ClaimResult{"released": rep.Released, "kept": rep.Kept, "retained": rep.Retained} {
		for _, r := range rows {
			out = append(out, what+" "+string(r.Kind))
		}
	}
	for _, s := range rep.Skipped {
		out = append(out, "skipped "+s.Run)
	}
	return strings.Join(slices.Sorted(slices.Values(out)), ", ")
}

func TestARunThatIsOver(t *testing.T) {
	w := newHomeFixture(t)
	w.run("r1", runs.Failed)
	ws, se := w.workspace("r1"), w.session("r1", "s")
	rep, err := w.clean(cleanup.Request{Run: "r1"})
	if err != nil || reportedLines(rep) != "released session, released workspace" {
		t.Fatalf("%s, %v", reportedLines(rep), err)
	}
	if w.state(ws) != claims.Released || w.state(se) != claims.Released || w.there(ws) {
		t.Errorf("%s %s %v", w.state(ws), w.state(se), w.there(ws))
	}
	if rep, err = w.clean(cleanup.Request{Run: "r1"}); err != nil || reportedLines(rep) != "" {
		t.Errorf("again: %s, %v", reportedLines(rep), err)
	}
}

func TestARunThatIsNotOverIsLeftAlone(t *testing.T) {
	w := newHomeFixture(t)
	for _, state := range []string{runs.Running, runs.Waiting} {
		w.run("r-"+state, state)
		ws := w.workspace("r-" + state)
		_, err := w.clean(cleanup.Request{Run: "r-" + state})
		if !failure.Is(err, failure.RunState) || !strings.Contains(failure.As(err).Hint, "laufwerk runs cancel r-"+state) || !w.there(ws) {
			t.Errorf("%s: %v", state, err)
		}
	}
	l, err := w.s.Lease(t.Context(), "r-running")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	for _, q := range []cleanup.Request{{Run: "r-running"}, {Run: "r-running", Cancel: true}} {
		if _, err := w.clean(q); !failure.Is(err, failure.RunState) || !strings.Contains(err.Error(), "laufwerk test") {
			t.Errorf("the worker is not named: %v", err)
		}
	}
}

func TestCancelAndCleanUpInOne(t *testing.T) {
	w := newHomeFixture(t)
	w.run("r1", runs.Waiting)
	ws := w.workspace("r1")
	if rep, err := w.clean(cleanup.Request{Run: "r1", Cancel: true, DryRun: true}); err != nil || !w.there(ws) || !rep.Released[0].Planned {
		t.Fatalf("dry: %+v, %v", rep, err)
	}
	if r, _ := w.s.Get(t.Context(), "r1"); r.State != runs.Waiting {
		t.Errorf("a dry run cancelled it: %s", r.State)
	}
	if _, err := w.clean(cleanup.Request{Run: "r1", Cancel: true}); err != nil || w.there(ws) {
		t.Fatalf("%v", err)
	}
	if r, _ := w.s.Get(t.Context(), "r1"); r.State != runs.Cancelled {
		t.Errorf("%s", r.State)
	}
}

// What was never written back is kept until a person says otherwise, and holds no slot.
func TestUnwrittenChangesAreKept(t *testing.T) {
	w := newHomeFixture(t)
	w.run("r1", runs.Failed)
	ws := w.workspace("r1")
	w.change(ws)
	for range 2 {
		rep, err := w.clean(cleanup.Request{Run: "r1"})
		if err != nil || reportedLines(rep) != "kept workspace" || !strings.Contains(rep.Kept[0].Hint, "--discard-changes") || rep.Kept[0].Kept == "" {
			t.Fatalf("%+v, %v", rep, err)
		}
	}
	if c, _ := w.s.Driver.Get(t.Context(), ws.ID); c.Keep == "" || c.State != claims.Allocated || !w.there(ws) {
		t.Errorf("%+v", c)
	}
	if rep, err := w.clean(cleanup.Request{Run: "r1", Discard: true, DryRun: true}); err != nil || reportedLines(rep) != "released workspace" || !w.there(ws) {
		t.Errorf("dry: %s, %v", reportedLines(rep), err)
	}
	if rep, err := w.clean(cleanup.Request{Run: "r1", Discard: true}); err != nil || reportedLines(rep) != "released workspace" || w.there(ws) {
		t.Errorf("%s, %v", reportedLines(rep), err)
	}
}

// While something may still write into a workspace it is not taken away, nor called clean.
func TestASessionThatMayStillLive(t *testing.T) {
	w := newHomeFixture(t)
	w.run("r1", runs.Failed)
	ws := w.workspace("r1")
	w.session("r1", "dead")
	w.session("r1", "lives")
	w.far.comes["lives"] = resource.Observation{Presence: resource.Present, Resource: "there"}
	rep, err := w.clean(cleanup.Request{Run: "r1", Discard: true})
	if !failure.Is(err, failure.Retained) || reportedLines(rep) != "released session, retained session, retained workspace" || !w.there(ws) {
		t.Fatalf("%s, %v", reportedLines(rep), err)
	}
	if !strings.Contains(failure.As(err).Hint, "laufwerk cleanup r1") {
		t.Errorf("hint %q", failure.As(err).Hint)
	}
	// A look that could not be taken proves nothing either.
	w.far.comes["lives"] = resource.Observation{Err: errors.New("the daemon does not answer")}
	if _, err := w.clean(cleanup.Request{Run: "r1", Discard: true}); !failure.Is(err, failure.Retained) || !w.there(ws) {
		t.Errorf("%v", err)
	}
	delete(w.far.comes, "lives")
	if rep, err := w.clean(cleanup.Request{Run: "r1", Discard: true}); err != nil || reportedLines(rep) != "released session, released workspace" {
		t.Errorf("%s, %v", reportedLines(rep), err)
	}
}

// Residue cannot run: it frees the workspace, and is told all the same.
func TestResidueFreesTheWorkspace(t *testing.T) {
	w := newHomeFixture(t)
	w.run("r1", runs.Failed)
	ws, se := w.workspace("r1"), w.session("r1", "residue")
	w.far.comes["residue"] = resource.Observation{Presence: resource.Residue}
	rep, err := w.clean(cleanup.Request{Run: "r1"})
	if !failure.Is(err, failure.Retained) || reportedLines(rep) != "released workspace, retained session" || w.there(ws) || w.state(se) != claims.Residue {
		t.Errorf("%s, %v, %s", reportedLines(rep), err, w.state(se))
	}
}

// All goes on past what it cannot clean up, and says so.
func TestAll(t *testing.T) {
	w := newHomeFixture(t)
	w.run("r1-over", runs.Succeeded)
	w.run("r2-waits", runs.Waiting)
	w.run("r3-half", runs.Failed)
	w.run("r4-strange", runs.Running)
	w.run("r5-over", runs.Failed)
	w.session("r1-over", "one")
	waiting := w.workspace("r2-waits")
	half := w.workspace("r3-half")
	strange := w.session("r4-strange", "strange")
	last := w.workspace("r5-over")
	w.session("", "of no run")
	plan := filepath.Join(w.s.Dir("r3-half"), "writebacks", "x")
	if err := os.MkdirAll(plan, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(plan, "plan.json"), []byte(`{"format":"1.0","id":"x","state":"applying","steps":[]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(w.s.Dir("lost"), 0o700); err != nil {
		t.Fatal(err)
	}
	rep, err := w.clean(cleanup.Request{All: true})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := reportedLines(rep), "released session, released session, released workspace, skipped r2-waits, skipped r3-half, skipped r4-strange"; got != want {
		t.Errorf("%s", got)
	}
	if !w.there(waiting) || !w.there(half) || w.there(last) || strings.Join(rep.Folders, " ") != "lost" {
		t.Errorf("%v %v %v, folders %q", w.there(waiting), w.there(half), w.there(last), rep.Folders)
	}
	for _, s := range rep.Skipped {
		if s.Reason == "" || s.Hint == "" {
			t.Errorf("%+v", s)
		}
	}

	// A run that cannot be looked into is no reason to leave the others.
	broken := filepath.Join(w.s.Dir("r4-strange"), "writebacks", "x")
	if err := os.MkdirAll(broken, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(broken, "plan.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	rep, err = w.clean(cleanup.Request{All: true, Cancel: true})
	if !failure.Is(err, failure.StoreInvalid) || w.there(waiting) || w.state(strange) != claims.Allocated {
		t.Errorf("%v, %s", err, reportedLines(rep))
	}
	if got, want := reportedLines(rep), "released workspace, skipped r3-half, skipped r4-strange"; got != want {
		t.Errorf("%s", got)
	}
}

// An interrupted command leaves nothing half observed: what is under way is brought to its end, the rest is not tried.
func TestInterrupted(t *testing.T) {
	w := newHomeFixture(t)
	w.run("r1", runs.Failed)
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
		w.session("r1", name)
	}
	ctx, stop := context.WithCancel(t.Context())
	w.far.ask = func(string) { stop() }
	rep, err := cleanup.Run(ctx, w.s, cleanup.Request{Run: "r1"})
	if !failure.Is(err, failure.Retained) {
		t.Fatalf("%v", err)
	}
	if len(rep.Released) != len(w.ended) || len(rep.Released)+len(rep.Retained) != 10 || len(rep.Retained) == 0 {
		t.Errorf("%d released, %d retained, %d asked for", len(rep.Released), len(rep.Retained), len(w.ended))
	}
	list, err := w.s.Driver.List(t.Context(), claims.Filter{Run: "r1", Outstanding: true})
	if err != nil || len(list) != len(rep.Retained) {
		t.Errorf("%d outstanding, %v", len(list), err)
	}
}

func TestADryRunChangesNothing(t *testing.T) {
	w := newHomeFixture(t)
	w.run("r1", runs.Failed)
	w.run("r2", runs.Waiting)
	w.change(w.workspace("r1"))
	w.session("r1", "s")
	w.workspace("r2")
	if err := os.MkdirAll(w.s.Dir("lost"), 0o700); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(w.s.Home.StateFile())
	if err != nil {
		t.Fatal(err)
	}
	rep, err := w.clean(cleanup.Request{All: true, Cancel: true, DryRun: true})
	if err != nil || reportedLines(rep) != "kept workspace, released session, released workspace" {
		t.Errorf("%s, %v", reportedLines(rep), err)
	}
	after, err := os.ReadFile(w.s.Home.StateFile())
	if err != nil || string(before) != string(after) {
		t.Errorf("the store changed, %v", err)
	}
	if len(w.ended) != 0 {
		t.Errorf("%q were ended", w.ended)
	}
	if _, err := os.Stat(w.s.Dir("lost")); err != nil {
		t.Error(err)
	}
}

func TestARunThatIsNotThere(t *testing.T) {
	w := newHomeFixture(t)
	if _, err := w.clean(cleanup.Request{Run: "nosuch"}); !failure.Is(err, failure.NotFound) {
		t.Errorf("%v", err)
	}
}

// A preparation at work is nobody's to end: its claim names the lock that it holds.
func TestAClaimThatIsInUse(t *testing.T) {
	w := newHomeFixture(t)
	path := filepath.Join(w.dir, "locks", "recipe")
	extra, err := json.Marshal(map[string]string{"lock": path})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	c := w.allocate(claims.Request{ID: claims.ID("", "prepare"), Kind: claims.KindPreparation, Provider: "far", Operation: "prepare", Intent: resource.Intent{Name: "prepare", Endpoint: "far"}, Extra: extra})
	l, err := lock.Acquire(t.Context(), path, lock.Exclusive, 0, "laufwerk prepare docker")
	if err != nil {
		t.Fatal(err)
	}
	rep, err := w.clean(cleanup.Request{All: true})
	if err != nil || reportedLines(rep) != "kept preparation" || !strings.Contains(rep.Kept[0].Kept, "laufwerk prepare docker") || w.state(c) != claims.Allocated {
		t.Errorf("%+v, %v", rep, err)
	}
	l.Release()
	if rep, err = w.clean(cleanup.Request{All: true}); err != nil || reportedLines(rep) != "released preparation" {
		t.Errorf("%+v, %v", rep, err)
	}
}
