package app_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/testkit"
)

func (w *codexWorld) until(what string, ok func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(hang); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("%s did not come", what)
		}
	}
}

// asked waits until the model server has got n requests.
func (w *codexWorld) asked(n int) {
	w.t.Helper()
	w.until(fmt.Sprintf("request %d", n), func() bool { return len(w.model.Requests("")) >= n })
}

// start is a worker that goes on on its own.
func (w *codexWorld) start(args ...string) (*exec.Cmd, *bytes.Buffer) {
	w.t.Helper()
	cmd := w.command(nil, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd, &out
}

// argumentsOfAll are those of every process on this machine.
func argumentsOfAll() string {
	var all strings.Builder
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		b, _ := os.ReadFile(f)
		all.Write(b)
	}
	return all.String()
}

// goesOn resumes the only run to its end, and checks that it cost one conversation and as many requests as it had to.
func (w *codexWorld) goesOn(says string, requests int) {
	w.t.Helper()
	code, out, errs := w.laufwerk(nil, "resume", w.runs()[0].ID, "--no-input", "--json")
	if code != 0 || !strings.Contains(out, says) {
		w.t.Fatalf("resume: exit %d, want 0 and %q\n%s%s", code, says, out, errs)
	}
	if n := w.model.Threads(); len(n) != 1 || len(w.model.Requests("")) != requests {
		w.t.Errorf("%d requests, want %d in one thread: %v", len(w.model.Requests("")), requests, n)
	}
	w.noSecret(out, errs)
	w.must([]int{0}, "cleanup", "--all", "--discard-changes")
	w.nothingIsLeft()
}

// TestCodexAgainstFailingServers: a clear failure in bounded time, and the same turn goes on once the server is well.
func TestCodexAgainstFailingServers(t *testing.T) {
	cases := map[string]struct {
		step     testkit.Step
		says     string
		requests int // until Codex gives up
	}{
		"401":  {testkit.APIError(401, "invalid_request", "Unauthorized"), "codex login", 4},
		"429":  {testkit.APIError(429, "usage_limit_reached", "limit"), "limit is reached", 1},
		"500":  {testkit.APIError(500, "server_error", "oops"), "the model server fails", 4},
		"hang": {testkit.Hang(), "cannot be reached", 2},
		"drop": {testkit.Drop(), "cannot be reached", 2},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newCodexWorld(t, c.step)
			code, out, errs := w.laufwerk(nil, "run", "turn", "--no-input")
			if code != 4 || !strings.Contains(errs, c.says) || !strings.Contains(errs, "laufwerk resume "+w.onlyRun().ID) {
				t.Fatalf("exit %d, want 4 and %q\n%s%s", code, c.says, out, errs)
			}
			_, hint, _ := strings.Cut(errs, "\nnext: ")
			if check, err := exec.Command("bash", "-n", "-c", hint).CombinedOutput(); err != nil || strings.ContainsAny(hint, "`,") { // it is pasted
				t.Errorf("%v: %s\n%s", err, check, hint)
			}
			w.noSecret(out, errs)
			if n := len(w.model.Requests("")); n != c.requests {
				t.Errorf("%d requests, want %d", n, c.requests)
			}
			w.model.Play(testkit.Say("went on"))
			w.goesOn("went on", c.requests+1)
		})
	}
}

func TestCodexWithoutAServer(t *testing.T) {
	t.Parallel()
	w := newCodexWorld(t)
	w.url = testkit.Refuses(t)
	w.point(nil)
	code, out, errs := w.laufwerk(nil, "run", "turn", "--no-input")
	if code != 4 || !strings.Contains(errs, "cannot be reached") {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	w.model = testkit.NewModelAt(t, strings.TrimPrefix(w.url, "http://"), testkit.Say("went on"))
	w.goesOn("went on", 1)
}

func TestCodexNeedsAProgramAndALogin(t *testing.T) {
	t.Parallel()
	w := newCodexWorld(t, testkit.Say("done"))
	receipt := filepath.Join(w.home, "harness/codex/receipt.json")
	kept, err := os.ReadFile(receipt)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(says ...string) {
		t.Helper()
		args := []string{"run", "turn", "--no-input"}
		if list := w.runs(); len(list) > 0 {
			args = []string{"resume", list[0].ID, "--no-input"}
		}
		code, out, errs := w.laufwerk(nil, args...)
		if code != 4 {
			t.Fatalf("exit %d\n%s%s", code, out, errs)
		}
		for _, s := range says {
			if !strings.Contains(errs, s) {
				t.Errorf("no %q in\n%s", s, errs)
			}
		}
		w.noSecret(out, errs)
	}
	if err := os.Remove(receipt); err != nil {
		t.Fatal(err)
	}
	refused("laufwerk prepare local")
	w.private(receipt, kept)
	w.login(time.Now().Add(-time.Hour))
	refused("expired", "codex login")
	w.private(filepath.Join(w.dir, ".codex/auth.json"), []byte(`{"auth_mode":"apikey","OPENAI_API_KEY":"sk-canary-0123456789"}`))
	refused("API key", "codex login")
	if err := os.Remove(filepath.Join(w.dir, ".codex/auth.json")); err != nil {
		t.Fatal(err)
	}
	refused("not logged in", "codex login")
	for _, c := range w.claims() {
		if c.Kind != "workspace" {
			t.Errorf("%s was allocated", c.Kind)
		}
	}
	w.login(time.Now().Add(time.Hour))
	w.goesOn("done", 1)
}

func TestCodexAnswersWhatIsNoJSON(t *testing.T) {
	t.Parallel()
	w := newCodexWorld(t, testkit.Say("I think so"))
	code, out, errs := w.laufwerk(nil, "run", "schema", "--no-input")
	if code != 7 || !strings.Contains(errs, "does not fit the schema") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	w.must([]int{0}, "cleanup", "--all", "--discard-changes")
	w.nothingIsLeft()
}

func TestCodexLeavesADaemon(t *testing.T) {
	t.Parallel()
	w := newCodexWorld(t, testkit.Shell("setsid sleep 1000 < /dev/null > /dev/null 2>&1 & env -i setsid sleep 1000 < /dev/null > /dev/null 2>&1 & echo started"), testkit.Say("done"))
	w.must([]int{0}, "run", "turn", "--no-input")
	w.must([]int{0}, "cleanup", "--all", "--discard-changes")
	w.nothingIsLeft() // and the end of the test looks for processes in its folders
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if cwd, err := os.Readlink(filepath.Join(dir, "cwd")); err == nil && strings.HasPrefix(cwd, w.dir) {
			t.Errorf("%s %q is left in %s", filepath.Base(dir), line, cwd)
		}
	}
}

// A person who stops the worker stops the turn; it goes on where it was.
func TestCodexIsInterrupted(t *testing.T) {
	t.Parallel()
	w := newCodexWorld(t, testkit.Shell("touch began; sleep 1000"), testkit.Say("went on"))
	cmd, out := w.start("run", "turn", "--no-input")
	w.until("the command", func() bool {
		found, _ := filepath.Glob(filepath.Join(w.home, "workspaces/*/*/began"))
		more, _ := filepath.Glob(filepath.Join(w.home, "workspaces/*/began"))
		return len(found)+len(more) > 0
	})
	_ = cmd.Process.Signal(syscall.SIGINT)
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
		t.Fatalf("exit %d\n%s", cmd.ProcessState.ExitCode(), out)
	}
	w.goesOn("went on", 2)
}

// A worker that is killed in the middle of a turn: the turn goes on without it, and is paid for once.
func TestCodexOutlivesItsWorker(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	w := newCodexWorld(t, testkit.Gate(gate, testkit.Shell("echo hi > hi.txt")), testkit.Say("done"))
	cmd, _ := w.start("run", "turn", "--no-input")
	w.asked(1)
	w.noSecret(argumentsOfAll()) // while the program runs
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	close(gate)
	w.goesOn("done", 2)
}

// killAll kills the worker and the one supervisor.
func (w *codexWorld) killAll(worker *exec.Cmd) {
	w.t.Helper()
	_ = worker.Process.Kill()
	_ = worker.Wait()
	records, _ := filepath.Glob(filepath.Join(w.home, "runs/*/sessions/*/ops/*/started"))
	if len(records) != 1 {
		w.t.Fatalf("records: %v", records)
	}
	b, err := os.ReadFile(records[0])
	if err != nil {
		w.t.Fatal(err)
	}
	var s supervise.Started
	if err := json.Unmarshal(b, &s); err != nil {
		w.t.Fatal(err)
	}
	if err := syscall.Kill(s.Supervisor.PID, syscall.SIGKILL); err != nil {
		w.t.Fatal(err)
	}
}

// If its supervisor is killed too, the thread is continued: what was done is not done again.
func TestCodexIsKilledWithItsSupervisor(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	defer close(gate)
	w := newCodexWorld(t, testkit.Shell("echo hi >> hi.txt"), testkit.Gate(gate, testkit.Say("never")))
	cmd, _ := w.start("run", "turn", "--no-input")
	w.asked(2)
	w.killAll(cmd)
	w.model.Play(testkit.Say("x"), testkit.Say("x"), testkit.Say("went on"))
	w.goesOn("went on", 3)
	if third := w.model.Requests("")[2]; !strings.Contains(third.Raw, "echo hi") {
		t.Error("the thread was not continued")
	}
}

// Before the model has said anything there may be no thread yet.
func TestCodexIsKilledAtItsFirstRequest(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	defer close(gate)
	w := newCodexWorld(t, testkit.Gate(gate, testkit.Say("never")))
	cmd, _ := w.start("run", "turn", "--no-input")
	w.asked(1)
	w.killAll(cmd)
	w.model.Play(testkit.Say("went on"))
	if code, out, errs := w.laufwerk(nil, "resume", w.runs()[0].ID, "--no-input", "--json"); code != 0 || !strings.Contains(out, "went on") {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	if n := len(w.model.Requests("")); n != 2 {
		t.Errorf("%d requests", n)
	}
	t.Logf("threads: %v", w.model.Threads())
	w.must([]int{0}, "cleanup", "--all", "--discard-changes")
	w.nothingIsLeft()
}

// The thread of a turn that was cut can be gone, like that of a program that was killed before it wrote it down: the turn
// is begun anew. The thread of a turn that ended must not be: what was said there is lost.
func TestCodexForgetsItsThread(t *testing.T) {
	t.Parallel()
	forget := func(w *codexWorld) {
		t.Helper()
		for _, pattern := range []string{"sessions", "*.sqlite*", "state*", "thread*"} {
			found, _ := filepath.Glob(filepath.Join(w.home, "runs/*/sessions/*/home/codex", pattern))
			for _, f := range found {
				if err := os.RemoveAll(f); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	w := newCodexWorld(t, testkit.APIError(500, "server_error", "oops"))
	w.must([]int{4}, "run", "turn", "--no-input")
	forget(w)
	asked := len(w.model.Requests(""))
	w.model.Play(testkit.Say("began anew"))
	if code, out, errs := w.laufwerk(nil, "resume", w.runs()[0].ID, "--no-input", "--json"); code != 0 || !strings.Contains(out, "began anew") {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	if len(w.model.Threads()) != 2 || len(w.model.Requests("")) != asked+1 {
		t.Errorf("threads %v", w.model.Threads())
	}

	w = newCodexWorld(t, testkit.Say("first"))
	b, err := os.ReadFile(filepath.Join(w.project, "laufwerk/workflows/turn/workflow.ts"))
	if err != nil {
		t.Fatal(err)
	}
	w.workflow("turn", strings.Replace(string(b), `return yield* s.ask(`, `yield* s.ask({ key: "first", prompt: "do it" });
    yield* Human.confirm({ key: "go", title: "Go on?" });
    return yield* s.ask(`, 1))
	b, _ = os.ReadFile(filepath.Join(w.project, "laufwerk/workflows/turn/workflow.ts"))
	w.workflow("turn", strings.Replace(string(b), "{ defineWorkflow,", "{ defineWorkflow, Human,", 1))
	w.must([]int{8}, "run", "turn", "--no-input")
	forget(w)
	code, out, errs := w.laufwerk(nil, "answer", w.runs()[0].ID, "go", "yes")
	if code != 7 || !strings.Contains(errs, "cannot go on") || len(w.model.Requests("")) != 1 {
		t.Errorf("exit %d, %d requests\n%s%s", code, len(w.model.Requests("")), out, errs)
	}
}

// The worker's memory does not grow with what the agent's commands print, and the answer after it is not lost.
func TestMuchOutputOfCodex(t *testing.T) {
	t.Parallel()
	peak := func(items int) int64 {
		w := newCodexWorld(t)
		fake := filepath.Join(w.dir, "fake-codex")
		item := `{"type":"item.completed","item":{"id":"i","type":"command_execution","command":"x","aggregated_output":"%s","exit_code":0,"status":"completed"}}`
		script := fmt.Sprintf(`#!/bin/bash
[ "$1" = --version ] && { echo codex-cli 0.171.0; exit; }
cat > /dev/null
echo '{"type":"thread.started","thread_id":"01a2286d-63f4-7870-8060-b2e9c0a7cad7"}'
big=$(head -c 1000000 /dev/zero | tr '\0' x)
for ((i = 0; i < %d; i++)); do printf '%s\n' "$big"; done
echo '{"type":"item.completed","item":{"id":"m","type":"agent_message","text":"the end"}}'
echo '{"type":"turn.completed","usage":{"input_tokens":1,"cached_input_tokens":0,"output_tokens":1,"reasoning_output_tokens":0}}'
`, items, item)
		w.write(fake, script)
		if err := os.Chmod(fake, 0o755); err != nil {
			t.Fatal(err)
		}
		w.must([]int{0}, "prepare", "local", "--codex", fake)
		code, kib, out, err := peakOf(w.command(nil, "run", "turn", "--no-input", "--json"))
		if err != nil || code != 0 || !strings.Contains(out, "the end") {
			t.Fatalf("exit %d, %v\n%s", code, err, out)
		}
		return kib
	}
	little, much := peak(1), peak(100)
	t.Logf("the worker's peak: %d KiB with 1 MB, %d KiB with 100 MB of output", little, much)
	if much > little+48<<10 {
		t.Errorf("the worker took %d KiB with 1 MB and %d KiB with 100 MB of output", little, much)
	}
}

func TestFourRunsOfCodexAtOnce(t *testing.T) {
	t.Parallel()
	w := newCodexWorld(t, testkit.Shell("sleep 0.3; echo hi"), testkit.Say("done"))
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if code, out, errs := w.laufwerk(nil, "run", "turn", "--no-input"); code != 0 {
				t.Errorf("exit %d\n%s%s", code, out, errs)
			}
		}()
	}
	wg.Wait()
	n := w.model.Threads()
	for id, requests := range n {
		if requests != 2 {
			t.Errorf("%d requests of %s", requests, id)
		}
	}
	if len(n) != 4 {
		t.Errorf("%d threads", len(n))
	}
	w.must([]int{0}, "cleanup", "--all", "--discard-changes")
	w.nothingIsLeft()
	w.noSecret()
}

// What an agent and commands find out about the login gets into no record, in whatever form they print it.
func TestCodexPrintsItsLogin(t *testing.T) {
	t.Parallel()
	const find = "cat ../../runs/*/sessions/*/home/codex/auth.json ../../../.codex/auth.json $(dirname $(dirname $PWD))/runs/*/sessions/*/home/codex/auth.json"
	w := newCodexWorld(t, testkit.ShellWith(map[string]any{"cmd": find + "; true", "max_output_tokens": 50000}), testkit.Say("TOKENS"))
	w.model.Play(testkit.ShellWith(map[string]any{"cmd": find + "; true", "max_output_tokens": 50000}), testkit.Say("I found "+strings.Join(w.secrets, " and ")+" here"))
	b, err := os.ReadFile(filepath.Join(w.project, "laufwerk/workflows/turn/workflow.ts"))
	if err != nil {
		t.Fatal(err)
	}
	slow := `const shown = yield* s.exec({ key: "show", command: "cat ~/.codex/auth.json | head -c 700; sleep 0.2; cat ~/.codex/auth.json | tail -c +701; echo" });
    const said = yield* s.ask({ key: "ask", prompt: "do it" });
    return { said, shown: shown.stdout };`
	w.workflow("turn", strings.Replace(string(b), `return yield* s.ask({ key: "ask", prompt: "do it" });`, slow, 1))
	code, out, errs := w.laufwerk(nil, "run", "turn", "--no-input", "--json")
	if code != 0 || !strings.Contains(out, "I found [secret] and [secret] and [secret] here") || !strings.Contains(out, `access_token`) {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	run := w.runs()[0].ID
	logs := w.must([]int{0}, "runs", "logs", run)
	if !strings.Contains(logs, "[secret]") {
		t.Errorf("nothing was found:\n%s", logs)
	}
	w.noSecret(out, errs, logs, w.must([]int{0}, "runs", "show", run, "--json"), w.must([]int{0}, "claims", "list", "--all", "--json"))
}
