package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/agent/command"
	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/providers/local"
	"github.com/laufwerk/laufwerk/internal/redact"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/session"
	"github.com/laufwerk/laufwerk/internal/store"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/system/process"
	"github.com/laufwerk/laufwerk/internal/targets"
)

const hang = time.Minute // a limit for what must come, no assertion about time

// TestMain makes the test binary its own supervisor.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == supervise.Argument {
		env := system.FromOS()
		os.Exit(supervise.Main(env, env.Args[1:]))
	}
	os.Exit(m.Run())
}

// runFixture is a run with one workspace on the local target, over a real store, real claims and real processes.
type runFixture struct {
	t     *testing.T
	run   string // every fixture has another one: claims and marks are made from it
	dir   string // its folder
	ws    string
	store *counting
	host  map[string]string // the worker's environment
	execs atomic.Int64
	at    string      // replaces the machine's identity where it is not ""
	deaf  atomic.Bool // what is entered cannot be fenced now
	empty atomic.Bool // nothing can be started in its sandboxes
	taken taken       // what is entered goes with a cancelled command
	reads bool        // sessions may be read-only, as in containers
}

// counting counts transactions.
type counting struct {
	*store.Store
	mu             sync.Mutex
	updates, views int
}

func (c *counting) Update(ctx context.Context, fn func(store.Tx) error) error {
	c.mu.Lock()
	c.updates++
	c.mu.Unlock()
	return c.Store.Update(ctx, fn)
}

func (c *counting) View(ctx context.Context, fn func(store.Tx) error) error {
	c.mu.Lock()
	c.views++
	c.mu.Unlock()
	if err := ctx.Err(); err != nil { // as it is where somebody else holds the gate
		return err
	}
	return c.Store.View(ctx, fn)
}

func (c *counting) since(do func()) (updates, views int) {
	c.mu.Lock()
	u, v := c.updates, c.views
	c.mu.Unlock()
	do()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.updates - u, c.views - v
}

func newRunFixture(t *testing.T) *runFixture {
	t.Helper()
	if err := process.Supported(); err != nil {
		t.Skipf("supervisors are not to be had here: %v", err)
	}
	dir := t.TempDir()
	w := &runFixture{t: t, run: "261129-" + filepath.Base(filepath.Dir(dir)), dir: filepath.Join(dir, "run"), ws: filepath.Join(dir, "workspace"), host: map[string]string{"PATH": os.Getenv("PATH"), "HOME": dir}}
	for _, d := range []string{w.dir, w.ws} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	home, err := store.OpenHome(filepath.Join(dir, "home"), true)
	if err != nil {
		t.Fatal(err)
	}
	w.store = &counting{Store: store.Open(home, time.Now, "test")}
	t.Cleanup(func() { // whatever a failed test has left
		for _, d := range w.attempts() {
			supervise.LocalLauncher{Executable: system.Executable()}.Fence(context.Background(), d)
		}
	})
	return w
}

// attempts are the folders of records of all sessions.
func (w *runFixture) attempts() []string {
	dirs, _ := filepath.Glob(filepath.Join(w.dir, "sessions/*/ops/*"))
	return dirs
}

// otherHost is the local provider on a machine that may be another one.
type otherHost struct {
	*local.Provider
	at    string
	deaf  *atomic.Bool
	empty *atomic.Bool
	reads bool
	*taken
}

func (e otherHost) Info() providers.Info {
	i := e.Provider.Info()
	i.ReadOnly = e.reads
	return i
}

func (e otherHost) Enter(ctx context.Context, in resource.Intent, def targets.Definition) (providers.Sandbox, error) {
	sb, err := e.Provider.Enter(ctx, in, def)
	if err == nil && e.deaf.Load() {
		sb = unreachable{sb}
	}
	if err == nil && e.empty.Load() {
		sb = startless{sb}
	}
	if err == nil {
		sb, err = e.enter(sb)
	}
	return sb, err
}

func (e otherHost) Endpoint(ctx context.Context, def targets.Definition) (string, error) {
	if e.at != "" {
		return e.at, nil
	}
	return e.Provider.Endpoint(ctx, def)
}

const workspace = "w"

// worker is a new process's manager.
func (w *runFixture) worker() *session.Manager {
	w.t.Helper()
	p := otherHost{local.New(system.Executable(), w.host, time.Now), w.at, &w.deaf, &w.empty, w.reads, &w.taken}
	def := w.target()
	driver := claims.NewDriver(claims.Options{
		Store: w.store, Now: time.Now, Owner: w.store.ID,
		Resources: func(claims.Kind, string) (resource.Manager, bool) { return p, true },
	})
	return session.NewManager(session.Config{
		Run: w.run, RunDir: w.dir, Root: w.ws, Project: "p", Driver: driver, Targets: map[string]targets.Definition{def.ID: def},
		Provider: func(string) (providers.Provider, bool) { return p, true },
		Programs: agent.Programs{command.New(w.host)},
		Workspace: func(id string) (session.Workspace, bool) {
			return session.Workspace{ID: id, Dir: w.ws, Target: described(def)}, id == workspace
		},
		HostEnv:    func(name string) (string, bool) { v, ok := w.host[name]; return v, ok },
		Now:        time.Now,
		Secrets:    &redact.Secrets{},
		EventsFrom: func(string) int64 { return 0 },
	})
}

func (w *runFixture) target() targets.Definition {
	w.t.Helper()
	def, err := local.New("", w.host, time.Now).Validate(json.RawMessage(`{}`))
	if err != nil {
		w.t.Fatal(err)
	}
	return def
}

func described(d targets.Definition) session.Target {
	return session.Target{Kind: d.Kind, ID: d.ID, Fingerprint: d.Fingerprint}
}

// agent is one whose program is a script of bash with the JSON protocol. In it, $REQUEST is the line that it was sent.
func (w *runFixture) agent(script string) session.Agent {
	w.t.Helper()
	options, err := json.Marshal(map[string]any{"command": []string{"bash", "-c", "read -r REQUEST; " + script}, "protocol": "json"})
	if err != nil {
		w.t.Fatal(err)
	}
	normal, err := command.New(nil).Validate(options)
	if err != nil {
		w.t.Fatal(err)
	}
	return session.Agent{ID: "command", Target: described(w.target()), Harness: session.Program{Program: "command", Options: normal}, PermissionMode: agent.AllowAll}
}

// opened is a session that is open.
func (w *runFixture) opened(m *session.Manager, key string, a session.Agent) session.OpenRecord {
	w.t.Helper()
	o, err := m.Open(w.t.Context(), key, session.OpenArgs{Agent: a, Workspace: workspace})
	if err != nil {
		w.t.Fatal(err)
	}
	return o
}

// resumed is the manager of a worker that takes the session up, with what the operations before have left.
func (w *runFixture) resumed(o session.OpenRecord, a session.Agent, turns ...session.TurnRecord) *session.Manager {
	w.t.Helper()
	m := w.worker()
	if err := m.RestoreOpen(o, a); err != nil {
		w.t.Fatal(err)
	}
	for _, t := range turns {
		m.RestoreTurn(o.Key, t)
	}
	return m
}

// operation is one in a journal that survives workers.
type operation struct {
	name     string
	mu       sync.Mutex
	attempts int
	data     json.RawMessage
	cuts     []string
	events   []journal.Event
	started  func() // is called once a start is journaled
}

func (o *operation) Name() string { return o.name }

func (o *operation) Attempts() (int, json.RawMessage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.attempts, o.data
}

func (o *operation) Start(data any) error {
	o.mu.Lock()
	o.attempts++
	o.mu.Unlock()
	if err := o.Advance(data); err != nil {
		return err
	}
	if o.started != nil {
		o.started()
	}
	return nil
}

func (o *operation) Advance(data any) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	b, err := json.Marshal(data)
	o.data = b
	return err
}

func (o *operation) RecordCut(reason string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cuts = append(o.cuts, reason)
	return nil
}

func (o *operation) Event(ev journal.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, ev)
}

func (o *operation) eventTexts(kind string) (texts []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, ev := range o.events {
		if ev.Kind == kind {
			texts = append(texts, ev.Text)
		}
	}
	return texts
}

func (w *runFixture) exec(m *session.Manager, key, script string) (session.ExecResult, error) {
	r, _, err := m.Exec(w.t.Context(), key, session.ExecArgs{Command: script}, &operation{name: fmt.Sprintf("exec:%d", w.execs.Add(1))})
	return r, err
}

// read is a file of the workspace, "" where there is none.
func (w *runFixture) read(name string) string {
	b, _ := os.ReadFile(filepath.Join(w.ws, name))
	return string(b)
}

func (w *runFixture) write(name string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.ws, name), nil, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *runFixture) eventually(what string, is func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(hang); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("it never came to be that %s", what)
		}
	}
}

// killSupervisor kills the supervisor of the last attempt, once it runs something.
func (w *runFixture) killSupervisor() {
	w.t.Helper()
	for _, dir := range w.attempts() {
		v, err := supervise.ReadState(dir)
		if err != nil || v.Started == nil || !v.Locked {
			continue
		}
		if v.Started.Cgroup == "" {
			w.t.Skip("no control groups (cgroup v2) can be made here, so what a killed supervisor leaves is in doubt")
		}
		if err := process.Signal(v.Started.Supervisor, syscall.SIGKILL); err != nil {
			w.t.Fatal(err)
		}
		return
	}
	w.t.Fatal("no supervisor lives")
}

// marked are the processes of a session.
func marked(t *testing.T, claim string) int {
	t.Helper()
	ids, err := process.FindMarked(supervise.MarkVariable, func(mark string) bool { return strings.HasPrefix(mark, claim) })
	if err != nil {
		t.Fatal(err)
	}
	return len(ids)
}

func wantFailure(t *testing.T, err error, kind failure.Kind, words ...string) *failure.Error {
	t.Helper()
	f := failure.As(err)
	if f == nil || f.Kind != kind {
		t.Fatalf("got %v, want %s", err, kind)
	}
	for _, word := range words {
		if text := f.Error() + "\n" + f.Hint; !strings.Contains(text, word) {
			t.Errorf("%q does not say %q", text, word)
		}
	}
	return f
}

func wantCause(t *testing.T, err, cause error) {
	t.Helper()
	if !errors.Is(err, cause) {
		t.Fatalf("got %v, want that the worker leaves: %v", err, cause)
	}
}

func lines(s string) []string { return strings.Split(strings.TrimSuffix(s, "\n"), "\n") }
