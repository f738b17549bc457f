package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/agent/command"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/providers/local"
	"github.com/laufwerk/laufwerk/internal/session"
)

func TestOneWriterAtATime(t *testing.T) {
	t.Parallel()
	w := newRunFixture(t)
	m, a := w.worker(), w.agent("true")
	w.opened(m, "first", a)
	_, err := m.Open(t.Context(), "second", session.OpenArgs{Agent: a, Workspace: workspace})
	wantFailure(t, err, failure.WorkspaceBusy, "first")
	nothing := func() error { return nil }
	wantFailure(t, m.WithoutWriter(t.Context(), workspace, nothing), failure.WorkspaceBusy, `"first"`, "close")
	if err := m.WithoutWriter(t.Context(), "another", nothing); err != nil {
		t.Error(err)
	}
	if err := m.Close(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	opening := make(chan error)
	err = m.WithoutWriter(t.Context(), workspace, func() error {
		go func() {
			_, err := m.Open(t.Context(), "second", session.OpenArgs{Agent: a, Workspace: workspace})
			opening <- err
		}()
		select {
		case err := <-opening:
			t.Errorf("a session was opened meanwhile: %v", err)
		default:
		}
		return nil
	})
	if err = errors.Join(err, <-opening); err != nil {
		t.Error(err)
	}
}

func TestWhatNoSessionCanBeHadWith(t *testing.T) {
	t.Parallel()
	w := newRunFixture(t)
	m, a := w.worker(), w.agent("true")
	other := a
	other.Target.Fingerprint = "another"
	for name, c := range map[string]struct {
		args  session.OpenArgs
		kind  failure.Kind
		words []string
	}{
		"read-only":             {session.OpenArgs{Agent: a, Workspace: workspace, Access: session.ReadOnly}, failure.Unsupported, []string{"read-only", "your permissions"}},
		"another run's":         {session.OpenArgs{Agent: a, Workspace: "x"}, failure.WorkspaceLost, []string{"x"}},
		"another target's":      {session.OpenArgs{Agent: other, Workspace: workspace}, failure.Usage, []string{"target"}},
		"nothing was allocated": {session.OpenArgs{Agent: a, Workspace: workspace}, "", nil},
	} {
		_, err := m.Open(t.Context(), "s", c.args)
		if c.kind == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		wantFailure(t, err, c.kind, c.words...)
	}
	if len(w.attempts()) > 0 {
		t.Error("something ran")
	}
}

// Those who only read a workspace share it; who writes there has it alone. Whoever comes in vain is told who has it.
func TestReadersShareAndAWriterIsAlone(t *testing.T) {
	t.Parallel()
	w := newRunFixture(t)
	w.reads = true
	m, a := w.worker(), w.agent("true")
	open := func(key, access string) error {
		_, err := m.Open(t.Context(), key, session.OpenArgs{Agent: a, Workspace: workspace, Access: access})
		return err
	}
	for _, key := range []string{"r1", "r2", "r3"} {
		if err := open(key, session.ReadOnly); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	wantFailure(t, open("w1", session.ReadWrite), failure.WorkspaceBusy, "session r")
	for _, key := range []string{"r1", "r2", "r3"} {
		if err := m.Close(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	if err := open("w2", session.ReadWrite); err != nil {
		t.Fatal(err)
	}
	wantFailure(t, open("w3", session.ReadWrite), failure.WorkspaceBusy, "session w2")
	wantFailure(t, open("r4", session.ReadOnly), failure.WorkspaceBusy, "session w2")
}

func TestAgentsThatLocalTargetsRefuse(t *testing.T) {
	t.Parallel()
	target := `{"kind":"local","id":"local","options":{"id":"local"},"fingerprint":"f"}`
	for given, words := range map[string][]string{
		`"skills":[{"name":"n","description":"d","content":"c"}]`: {"skills", "your own agent configuration"},
		`"permissionMode":"allow-reads"`:                          {"permissionMode", "a program of your own"},
		`"permissionMode":"ask"`:                                  {"permissionMode", "allow-all"},
		`"activeTools":["x"]`:                                     {"activeTools"},
		`"id":"a b"`:                                              {"id", "letters"},
		`"idd":"x"`:                                               {"idd", "`id`"},
		`"skills":[],"activeTools":[],"instructions":"be brief"`: nil,
	} {
		value := json.RawMessage(`{"target":` + target + `,"harness":{"program":"command","options":{"command":["x"],"protocol":"text"}},` + given + `}`)
		a, err := session.NormalizeAgent(value,
			func(string) (providers.Provider, bool) { return local.New("", nil, nil), true },
			agent.Programs{command.New(nil)})
		if words == nil {
			if err != nil || a.ID != "command" || a.PermissionMode != agent.AllowAll || a.Instructions != "be brief" {
				t.Errorf("%s: %+v, %v", given, a, err)
			}
			continue
		}
		f := failure.As(err)
		if f == nil || len(f.Paths) != 1 || f.Paths[0] != words[0] {
			t.Errorf("%s: %v", given, err)
			continue
		}
		for _, word := range words[1:] {
			if !strings.Contains(f.Error(), word) {
				t.Errorf("%s: %q does not say %q", given, f.Error(), word)
			}
		}
	}
}

// skilled is a provider that says it brings skills along, pliable a program that takes them.
type (
	skilled struct{ *local.Provider }
	pliable struct{ *command.Program }
)

func (p skilled) Info() providers.Info {
	i := p.Provider.Info()
	i.Skills, i.SkillsReason, i.SandboxReason = true, "", "no sandbox in a sandbox"
	return i
}

func (pliable) Accept(agent.Requirements) error { return nil }

// choosy is a provider that runs one program, as a gateway that holds the login of one.
type choosy struct{ *local.Provider }

func (p choosy) Info() providers.Info {
	i := p.Provider.Info()
	i.Kind, i.Programs = "openshell", []string{"codex"}
	return i
}

func TestAgentsThatATargetCannotRun(t *testing.T) {
	t.Parallel()
	_, err := session.NormalizeAgent(json.RawMessage(`{"target":{"kind":"openshell","id":"box","options":{},"fingerprint":"f"},"harness":{"program":"command","options":{"command":["x"],"protocol":"text"}}}`),
		func(string) (providers.Provider, bool) { return choosy{local.New("", nil, nil)}, true },
		agent.Programs{command.New(nil)})
	if f := failure.As(err); f == nil || len(f.Paths) != 1 || f.Paths[0] != "harness" || !strings.Contains(f.Message, `openshell targets cannot run "command"; they run: [codex]`) {
		t.Errorf("%v", err)
	}
}

func TestAgentsOfTargetsThatIsolate(t *testing.T) {
	t.Parallel()
	normalize := func(skills string, h agent.Program) (session.Agent, error) {
		return session.NormalizeAgent(json.RawMessage(`{"target":{"kind":"local","id":"local","options":{"id":"local"},"fingerprint":"f"},"harness":{"program":"command","options":{"command":["x"],"protocol":"text"}},"skills":`+skills+`}`),
			func(string) (providers.Provider, bool) { return skilled{local.New("", nil, nil)}, true },
			agent.Programs{h})
	}
	a, err := normalize(`[{"name":"a-1","description":"Für ü: \"x\"","content":"c","files":{"b/c.sh":"#!/bin/sh\n","b/d":""}},{"name":"b","description":"d","content":""}]`, pliable{command.New(nil)})
	if err != nil || len(a.Skills) != 2 || a.Skills[0].Files["b/c.sh"] != "#!/bin/sh\n" || a.Skills[1].Name != "b" {
		t.Errorf("%+v, %v", a.Skills, err)
	}
	skill := func(fields string) string { return `[{"name":"n","description":"d","content":"c",` + fields + `}]` }
	for given, words := range map[string][]string{
		`{}`:                               {"skills", "a list"},
		`["x"]`:                            {"skills[0]", "description"},
		`[{"name":"n","description":"d"}]`: {"skills[0].content", "a text"},
		`[{"name":"../n","description":"d","content":"c"}]`:                                                      {"skills[0].name", "hyphens"},
		`[{"name":".system","description":"d","content":"c"}]`:                                                   {"skills[0].name", "hyphens"},
		`[{"name":"n","description":"d\ne","content":"c"}]`:                                                      {"skills[0].description", "one line"},
		`[{"name":"n","description":" ","content":"c"}]`:                                                         {"skills[0].description", "one line"},
		`[{"name":"n","description":"d","content":"\u0000"}]`:                                                    {"skills[0].content", "NUL"},
		`[{"name":"n","description":"d","content":"c"},{"name":"n","description":"d","content":"c"}]`:            {"skills[1].name", "earlier"},
		`[{"name":"n","description":"d","content":"` + strings.Repeat("x", 600<<10) + `"}]`:                      {"skills", "together"},
		`[` + strings.TrimSuffix(strings.Repeat(`{"name":"n","description":"d","content":"c"},`, 40), ",") + `]`: {"skills", "at most 32"},
		skill(`"file":{}`):                 {"skills[0].file", "`files`"},
		skill(`"files":["x"]`):             {"skills[0].files", "an object"},
		skill(`"files":{"../x":""}`):       {"skills[0].files", "below"},
		skill(`"files":{"/x":""}`):         {"skills[0].files", "below"},
		skill(`"files":{"a/./x":""}`):      {"skills[0].files", "below"},
		skill(`"files":{"a/":""}`):         {"skills[0].files", "below"},
		skill(`"files":{"":""}`):           {"skills[0].files", "below"},
		skill(`"files":{"skill.md":""}`):   {"skills[0].files", "SKILL.md"},
		skill(`"files":{"a":"","a/b":""}`): {"skills[0].files", "not both"},
		skill(`"files":{"a":1}`):           {"skills[0].files.a", "a text"},
	} {
		_, err := normalize(given, pliable{command.New(nil)})
		if f := failure.As(err); f == nil || len(f.Paths) != 1 || f.Paths[0] != words[0] || !strings.Contains(f.Error(), words[1]) {
			t.Errorf("%.100s: %v", given, err)
		}
	}
	for mode, says := range map[string]string{agent.AllowReads: "no sandbox in a sandbox", agent.AllowAll: ""} {
		_, err := normalize(`[],"permissionMode":"`+mode+`"`, pliable{command.New(nil)})
		if (err != nil) != (says != "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", mode, err)
		}
	}
	if _, err := normalize(`[{"name":"n","description":"d","content":"c"}]`, command.New(nil)); err == nil || !strings.Contains(err.Error(), "`instructions`") {
		t.Errorf("a program of the user's own: %v", err)
	}
}

// A session does one operation at a time, and others queue: also behind its end.
func TestOperationsQueue(t *testing.T) {
	t.Parallel()
	w := newRunFixture(t)
	m := w.worker()
	o := w.opened(m, "s", w.agent("true"))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if _, err := w.exec(m, "s", "echo begin >> order; sleep 0.01; echo end >> order"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := strings.Join(lines(w.read("order")), " "); got != "begin end begin end begin end begin end" {
		t.Error(got)
	}

	closed := make(chan error, 1)
	late := make(chan error, 1)
	go func() {
		_, err := w.exec(m, "s", "touch running; while [ ! -e go ]; do sleep 0.005; done")
		if err != nil {
			t.Error(err)
		}
	}()
	w.eventually("a command runs", func() bool { return exists(w, "running") })
	go func() { closed <- m.Close(t.Context(), "s") }()
	go func() { _, err := w.exec(m, "s", "echo late >> order"); late <- err }()
	w.write("go")
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if err := <-late; err != nil { // it came first, or it finds the session closed
		wantFailure(t, err, failure.Usage, "closed")
	}
	_, err := w.exec(m, "s", "true")
	wantFailure(t, err, failure.Usage, `"s" is closed`)
	if left := marked(t, o.Claim); left > 0 || len(w.attempts()) > 0 {
		t.Errorf("%d processes, %v", left, w.attempts())
	}
	if err := m.Close(t.Context(), "s"); err != nil {
		t.Errorf("closing again: %v", err)
	}
	_, err = w.exec(m, "nobody", "true")
	wantFailure(t, err, failure.Usage, `no session "nobody"`)
}

func exists(w *runFixture, name string) bool {
	_, err := os.Stat(filepath.Join(w.ws, name))
	return err == nil
}

// A branch that is cancelled while it queues does not wait for another branch's operation.
func TestCancelledWhileItQueues(t *testing.T) {
	t.Parallel()
	w := newRunFixture(t)
	m := w.worker()
	w.opened(m, "s", w.agent("true"))
	done := make(chan error, 1)
	go func() {
		_, err := w.exec(m, "s", "touch running; while [ ! -e go ]; do sleep 0.005; done")
		done <- err
	}()
	w.eventually("a command runs", func() bool { return exists(w, "running") })
	ctx, cancel := context.WithCancelCause(t.Context())
	op := &operation{name: "queued"}
	queued := make(chan error, 1)
	go func() {
		_, _, err := m.Exec(ctx, "s", session.ExecArgs{Command: "touch never"}, op)
		queued <- err
	}()
	cancel(session.ErrCancelled)
	wantFailure(t, <-queued, failure.Cancelled)
	w.write("go")
	if err := <-done; err != nil || exists(w, "never") || op.attempts > 0 {
		t.Errorf("%v, %d attempts", err, op.attempts)
	}
}

// Closing acts on the claim: where absence cannot be observed, the claim stays, keeps the workspace, and cleanup is named.
func TestCloseThatCannotBeProved(t *testing.T) {
	t.Parallel()
	w := newRunFixture(t)
	m, a := w.worker(), w.agent("true")
	o := w.opened(m, "s", a)
	if _, err := w.exec(m, "s", "true"); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(w.dir, "sessions", o.Claim)
	w.eventually("its supervisor has ended", func() bool { return marked(t, o.Claim) == 0 })
	if err := os.Rename(dir, dir+".ours"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	wantFailure(t, m.Close(t.Context(), "s"), failure.CloseFailed, "laufwerk cleanup "+w.run)
	_, err := m.Open(t.Context(), "next", session.OpenArgs{Agent: a, Workspace: workspace})
	wantFailure(t, err, failure.WorkspaceBusy)
	if err := m.CloseAll(t.Context()); !failure.Is(err, failure.CloseFailed) {
		t.Errorf("%v", err)
	}
	// The stranger goes, and what was ours comes back.
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir+".ours", dir); err != nil {
		t.Fatal(err)
	}
	if err := m.CloseAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.opened(m, "next", a)
}

// A session whose directory is gone is lost: it can only be closed, and its workspace is usable again.
func TestSessionWhoseDirectoryIsGone(t *testing.T) {
	t.Parallel()
	w := newRunFixture(t)
	m, a := w.worker(), w.agent("true")
	o := w.opened(m, "s", a)
	if _, err := w.exec(m, "s", "true"); err != nil {
		t.Fatal(err)
	}
	w.eventually("its supervisor has ended, and the directory is gone", func() bool {
		return marked(t, o.Claim) == 0 && os.RemoveAll(filepath.Join(w.dir, "sessions", o.Claim)) == nil
	})
	for range 2 {
		_, err := w.exec(m, "s", "touch never")
		wantFailure(t, err, failure.SessionLost, "after it is closed, another session can use the workspace")
	}
	resumed := w.resumed(o, a)
	if _, err := w.exec(resumed, "s", "touch never"); !failure.Is(err, failure.SessionLost) || exists(w, "never") {
		t.Errorf("%v", err)
	}
	if err := resumed.Close(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	w.opened(resumed, "next", a)
}

// What was made on another machine is not looked for here, and its absence here proves nothing.
func TestSessionOfAnotherMachine(t *testing.T) {
	t.Parallel()
	w := newRunFixture(t)
	w.at = "linux/amd64 machine another"
	m, a := w.worker(), w.agent("true")
	o := w.opened(m, "s", a)
	_, err := w.exec(m, "s", "touch never")
	wantFailure(t, err, failure.SessionLost)
	w.at = ""
	resumed := w.resumed(o, a)
	_, err = w.exec(resumed, "s", "touch never")
	wantFailure(t, err, failure.SessionLost, "machine another")
	if exists(w, "never") {
		t.Error("it ran")
	}
	wantFailure(t, resumed.Close(t.Context(), "s"), failure.CloseFailed, "laufwerk cleanup")
}

// A target that is defined otherwise now, or not at all, is not entered.
func TestTargetThatChanged(t *testing.T) {
	t.Parallel()
	w := newRunFixture(t)
	m, a := w.worker(), w.agent("true")
	o := w.opened(m, "s", a)
	resumed := w.resumed(o, a)
	def := resumed.Targets["local"]
	def.Fingerprint = "another"
	resumed.Targets["local"] = def
	_, err := w.exec(resumed, "s", "true")
	wantFailure(t, err, failure.DefinitionChanged, "local")
	delete(resumed.Targets, "local")
	_, err = w.exec(resumed, "s", "true")
	wantFailure(t, err, failure.ProjectInvalid, "executions")
	if err := resumed.Close(t.Context(), "s"); err != nil { // which needs no definition
		t.Error(err)
	}
}

// What each step costs in transactions of the store: updates are commits, unless they write nothing.
func TestTransactions(t *testing.T) {
	t.Parallel()
	w := newRunFixture(t)
	m, a := w.worker(), w.agent("true")
	var o session.OpenRecord
	for _, c := range []struct {
		what           string
		updates, views int
		do             func()
	}{
		{"open", 1, 0, func() { o = w.opened(m, "s", a) }},
		{"first exec", 2, 1, func() { _, _ = w.exec(m, "s", "true") }}, // intent and allocation
		{"second exec", 0, 1, func() { _, _ = w.exec(m, "s", "true") }},
		{"close", 3, 2, func() { _ = m.Close(t.Context(), "s") }}, // asked for, absent, and the locks, of which none are left
		{"close again", 0, 0, func() { _ = m.Close(t.Context(), "s") }},
	} {
		if updates, views := w.store.since(c.do); updates != c.updates || views > c.views+1 {
			t.Errorf("%s: %d updates and %d views, want %d and at most %d", c.what, updates, views, c.updates, c.views+1)
		}
	}
	if left := marked(t, o.Claim); left > 0 {
		t.Errorf("%d processes are left", left)
	}
}
