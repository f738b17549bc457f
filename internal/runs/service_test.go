package runs_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/agent/command"
	"github.com/laufwerk/laufwerk/internal/app"
	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/project"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/providers/local"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/runs"
	"github.com/laufwerk/laufwerk/internal/script"
	"github.com/laufwerk/laufwerk/internal/store"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/workflow"
	"github.com/laufwerk/laufwerk/internal/workspace"
)

// TestMain also plays the isolate's child and supervisors, which laufwerk starts from its own binary.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "__") {
		os.Exit(app.Main(context.Background(), system.FromOS()))
	}
	os.Exit(m.Run())
}

// serviceFixture is a home with a project, and everything that runs need: the real store, isolate, provider and workspaces.
type serviceFixture struct {
	t    testing.TB
	s    *runs.Service
	dir  string
	root string // of the project
	now  func() time.Time
}

func newServiceFixture(t testing.TB) *serviceFixture {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &serviceFixture{t: t, dir: dir, root: filepath.Join(dir, "project"), now: time.Now}
	w.s = w.service()
	w.write("laufwerk/execution.ts", `import { createLocalExecution } from "@laufwerk/execution/local";
export const execution = createLocalExecution({ env: { TOKEN: "canary-target" } });
`)
	w.write("laufwerk/laufwerk.config.ts", `import { defineConfig } from "@laufwerk/sdk";
import { execution } from "./execution";
export default defineConfig({ projectId: "p", executions: [execution] });
`)
	w.write("a.txt", "a\n")
	return w
}

// service is one more process on the home.
func (w *serviceFixture) service() *runs.Service {
	w.t.Helper()
	home, err := store.OpenHome(filepath.Join(w.dir, "home"), true)
	if err != nil {
		w.t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	now := func() time.Time { return w.now() }
	vars := map[string]string{"PATH": os.Getenv("PATH"), "HOME": w.dir}
	st := store.Open(home, now, "laufwerk test")
	host := local.New(exe, vars, now)
	trees := workspace.NewResources(home.Dir(), workspace.Bounds{}, now, nil)
	driver := claims.NewDriver(claims.Options{Store: st, Now: now, Owner: st.ID, Resources: func(kind claims.Kind, provider string) (resource.Manager, bool) {
		if kind == claims.KindWorkspace && provider == workflow.WorkspaceProvider {
			return trees, true
		}
		return host, provider == local.Kind
	}})
	return &runs.Service{
		Home: home, Store: st, Driver: driver, Script: &script.Runner{Executable: exe}, HomeDir: w.dir, Now: now, Build: "test", Command: "laufwerk test", HostVars: vars,
		Provider: func(kind string) (providers.Provider, bool) { return host, kind == local.Kind },
		Programs: agent.Programs{command.New(vars)},
	}
}

func (w *serviceFixture) write(name, content string) {
	w.t.Helper()
	path := filepath.Join(w.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// request is for a workflow whose run does what body says.
func (w *serviceFixture) request(body string) runs.Request {
	w.t.Helper()
	w.write("laufwerk/workflows/w/workflow.ts", `import { all, Clock, defineWorkflow, Human, Session, Workspace } from "@laufwerk/sdk";
import { createCommand } from "@laufwerk/sdk/harness/command";
import { execution } from "../../execution";
const agent = execution.agent({ harness: createCommand({ command: ["bash", "-c", "cat"], env: { KEY: "canary-agent" } }) });
export const workflow = defineWorkflow<any, any>({ name: "w", *run(input) {
`+body+`
}});
`)
	p, err := project.Load(w.t.Context(), w.s.Script, w.root)
	if err != nil {
		w.t.Fatal(err)
	}
	wf, err := p.Workflow(w.t.Context(), "w")
	if err != nil {
		w.t.Fatal(err)
	}
	return runs.Request{Project: p, Workflow: wf}
}

func (w *serviceFixture) start(q runs.Request) runs.StartedRun {
	w.t.Helper()
	st, err := w.s.Start(w.t.Context(), q)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(st.Lease.Release)
	return st
}

// work brings a run as far as it goes and checks its state.
func (w *serviceFixture) work(st runs.StartedRun, want string) runs.Result {
	w.t.Helper()
	res, err := w.s.RunWorker(w.t.Context(), st, runs.Hooks{})
	if err != nil {
		w.t.Fatal(err)
	}
	if res.Run.State != want {
		w.t.Fatalf("the run is %s (%v), want %s", res.Run.State, res.Err, want)
	}
	return res
}

// dead is a run whose worker was killed at once: nobody holds its lease.
func (w *serviceFixture) dead(q runs.Request) runs.Run {
	w.t.Helper()
	st := w.start(q)
	st.Lease.Release()
	return st.Run
}

func (w *serviceFixture) get(id string) runs.Run {
	w.t.Helper()
	r, err := w.s.Get(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// set changes a run's record.
func (w *serviceFixture) set(id string, fn func(*runs.Run)) {
	w.t.Helper()
	err := w.s.Store.Update(w.t.Context(), func(tx store.Tx) error {
		var r runs.Run
		if _, err := tx.Get(store.Runs, id, &r); err != nil {
			return err
		}
		fn(&r)
		return tx.Put(store.Runs, id, r)
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *serviceFixture) records(id string) []journal.Record {
	w.t.Helper()
	records, err := w.s.Journal(id).Read()
	if err != nil {
		w.t.Fatal(err)
	}
	return records
}

// append adds records to a journal, as a worker that was killed after them did.
func (w *serviceFixture) append(id string, records ...journal.Record) {
	w.t.Helper()
	log, _, err := w.s.Journal(id).Open()
	if err != nil {
		w.t.Fatal(err)
	}
	defer log.Close()
	for _, r := range records {
		if err := log.Append(r); err != nil {
			w.t.Fatal(err)
		}
	}
}

// claim puts a claim of a run into the store.
func (w *serviceFixture) claim(c claims.Claim) {
	w.t.Helper()
	if err := w.s.Store.Update(w.t.Context(), func(tx store.Tx) error { return tx.Put(store.Claims, c.ID, c) }); err != nil {
		w.t.Fatal(err)
	}
}

func wantKind(t testing.TB, err error, kind failure.Kind, words ...string) {
	t.Helper()
	if !failure.Is(err, kind) {
		t.Errorf("got %v (%s), want %s", err, failure.KindOf(err), kind)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) && !strings.Contains(failure.As(err).Hint, w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

func isJSON(t testing.TB, got json.RawMessage, want string) {
	t.Helper()
	if string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
