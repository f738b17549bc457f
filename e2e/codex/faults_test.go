package codex_test

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

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/testkit"
)

func awaitThat(w *e2e.CodexMachine, what string, ok func() bool) {
	w.T.Helper()
	for deadline := time.Now().Add(e2e.HangLimit); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.T.Fatalf("%s did not come", what)
		}
	}
}

// awaitRequests waits until the model server has got n requests.
func awaitRequests(w *e2e.CodexMachine, n int) {
	w.T.Helper()
	awaitThat(w, fmt.Sprintf("request %d", n), func() bool { return len(w.Model.Requests("")) >= n })
}

// startWorker is a worker that goes on on its own.
func startWorker(w *e2e.CodexMachine, args ...string) (*exec.Cmd, *bytes.Buffer) {
	w.T.Helper()
	cmd := w.Command(nil, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
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

// resumeAndCheck resumes the only run to its end, and checks that it cost one conversation and as many requests as it had to.
func resumeAndCheck(w *e2e.CodexMachine, says string, requests int) {
	w.T.Helper()
	code, out, errs := w.Run(nil, "resume", w.ListRuns()[0].ID, "--no-input", "--json")
	if code != 0 || !strings.Contains(out, says) {
		w.T.Fatalf("resume: exit %d, want 0 and %q\n%s%s", code, says, out, errs)
	}
	if n := w.Model.Threads(); len(n) != 1 || len(w.Model.Requests("")) != requests {
		w.T.Errorf("%d requests, want %d in one thread: %v", len(w.Model.Requests("")), requests, n)
	}
	w.CheckNoSecret(out, errs)
	w.MustRun([]int{0}, "cleanup", "--all", "--discard-changes")
	w.CheckNothingLeft()
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
			w := e2e.NewCodexMachine(t, c.step)
			code, out, errs := w.Run(nil, "run", "turn", "--no-input")
			if code != 4 || !strings.Contains(errs, c.says) || !strings.Contains(errs, "laufwerk resume "+w.OnlyRun().ID) {
				t.Fatalf("exit %d, want 4 and %q\n%s%s", code, c.says, out, errs)
			}
			_, hint, _ := strings.Cut(errs, "\nnext: ")
			if check, err := exec.Command("bash", "-n", "-c", hint).CombinedOutput(); err != nil || strings.ContainsAny(hint, "`,") { // it is pasted
				t.Errorf("%v: %s\n%s", err, check, hint)
			}
			w.CheckNoSecret(out, errs)
			if n := len(w.Model.Requests("")); n != c.requests {
				t.Errorf("%d requests, want %d", n, c.requests)
			}
			w.Model.Play(testkit.Say("went on"))
			resumeAndCheck(w, "went on", c.requests+1)
		})
	}
}

func TestCodexWithoutAServer(t *testing.T) {
	t.Parallel()
	w := e2e.NewCodexMachine(t)
	w.ModelURL = testkit.Refuses(t)
	w.WriteWorkflows(nil)
	code, out, errs := w.Run(nil, "run", "turn", "--no-input")
	if code != 4 || !strings.Contains(errs, "cannot be reached") {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	w.Model = testkit.NewModelAt(t, strings.TrimPrefix(w.ModelURL, "http://"), testkit.Say("went on"))
	resumeAndCheck(w, "went on", 1)
}

func TestCodexNeedsAProgramAndALogin(t *testing.T) {
	t.Parallel()
	w := e2e.NewCodexMachine(t, testkit.Say("done"))
	receipt := filepath.Join(w.Home, "harness/codex/receipt.json")
	kept, err := os.ReadFile(receipt)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(says ...string) {
		t.Helper()
		args := []string{"run", "turn", "--no-input"}
		if list := w.ListRuns(); len(list) > 0 {
			args = []string{"resume", list[0].ID, "--no-input"}
		}
		code, out, errs := w.Run(nil, args...)
		if code != 4 {
			t.Fatalf("exit %d\n%s%s", code, out, errs)
		}
		for _, s := range says {
			if !strings.Contains(errs, s) {
				t.Errorf("no %q in\n%s", s, errs)
			}
		}
		w.CheckNoSecret(out, errs)
	}
	if err := os.Remove(receipt); err != nil {
		t.Fatal(err)
	}
	refused("laufwerk prepare local")
	w.WritePrivate(receipt, kept)
	w.WriteLogin(time.Now().Add(-time.Hour))
	refused("expired", "codex login")
	w.WritePrivate(filepath.Join(w.Dir, ".codex/auth.json"), []byte(`{"auth_mode":"apikey","OPENAI_API_KEY":"sk-canary-0123456789"}`))
	refused("API key", "codex login")
	if err := os.Remove(filepath.Join(w.Dir, ".codex/auth.json")); err != nil {
		t.Fatal(err)
	}
	refused("not logged in", "codex login")
	for _, c := range w.ListClaims() {
		if c.Kind != "workspace" {
			t.Errorf("%s was allocated", c.Kind)
		}
	}
	w.WriteLogin(time.Now().Add(time.Hour))
	resumeAndCheck(w, "done", 1)
}

func TestCodexAnswersWhatIsNoJSON(t *testing.T) {
	t.Parallel()
	w := e2e.NewCodexMachine(t, testkit.Say("I think so"))
	code, out, errs := w.Run(nil, "run", "schema", "--no-input")
	if code != 7 || !strings.Contains(errs, "does not match the schema") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	w.MustRun([]int{0}, "cleanup", "--all", "--discard-changes")
	w.CheckNothingLeft()
}

func TestCodexLeavesADaemon(t *testing.T) {
	t.Parallel()
	w := e2e.NewCodexMachine(t, testkit.Shell("setsid sleep 1000 < /dev/null > /dev/null 2>&1 & env -i setsid sleep 1000 < /dev/null > /dev/null 2>&1 & echo started"), testkit.Say("done"))
	w.MustRun([]int{0}, "run", "turn", "--no-input")
	w.MustRun([]int{0}, "cleanup", "--all", "--discard-changes")
	w.CheckNothingLeft() // and the end of the test looks for processes in its folders
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if cwd, err := os.Readlink(filepath.Join(dir, "cwd")); err == nil && strings.HasPrefix(cwd, w.Dir) {
			t.Errorf("%s %q is left in %s", filepath.Base(dir), line, cwd)
		}
	}
}

// A person who stops the worker stops the turn; it goes on where it was.
func TestCodexIsInterrupted(t *testing.T) {
	t.Parallel()
	w := e2e.NewCodexMachine(t, testkit.Shell("touch began; sleep 1000"), testkit.Say("went on"))
	cmd, out := startWorker(w, "run", "turn", "--no-input")
	awaitThat(w, "the command", func() bool {
		found, _ := filepath.Glob(filepath.Join(w.Home, "workspaces/*/*/began"))
		more, _ := filepath.Glob(filepath.Join(w.Home, "workspaces/*/began"))
		return len(found)+len(more) > 0
	})
	_ = cmd.Process.Signal(syscall.SIGINT)
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
		t.Fatalf("exit %d\n%s", cmd.ProcessState.ExitCode(), out)
	}
	resumeAndCheck(w, "went on", 2)
}

// A worker that is killed in the middle of a turn: the turn goes on without it, and is paid for once.
func TestCodexOutlivesItsWorker(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	w := e2e.NewCodexMachine(t, testkit.Gate(gate, testkit.Shell("echo hi > hi.txt")), testkit.Say("done"))
	cmd, _ := startWorker(w, "run", "turn", "--no-input")
	awaitRequests(w, 1)
	w.CheckNoSecret(argumentsOfAll()) // while the program runs
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	close(gate)
	resumeAndCheck(w, "done", 2)
}

// killAll kills the worker and the one supervisor.
func killAll(w *e2e.CodexMachine, worker *exec.Cmd) {
	w.T.Helper()
	_ = worker.Process.Kill()
	_ = worker.Wait()
	records, _ := filepath.Glob(filepath.Join(w.Home, "runs/*/sessions/*/ops/*/started"))
	if len(records) != 1 {
		w.T.Fatalf("records: %v", records)
	}
	b, err := os.ReadFile(records[0])
	if err != nil {
		w.T.Fatal(err)
	}
	var s supervise.StartRecord
	if err := json.Unmarshal(b, &s); err != nil {
		w.T.Fatal(err)
	}
	if err := syscall.Kill(s.Supervisor.PID, syscall.SIGKILL); err != nil {
		w.T.Fatal(err)
	}
}

// If its supervisor is killed too, the thread is continued: what was done is not done again.
func TestCodexIsKilledWithItsSupervisor(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	defer close(gate)
	w := e2e.NewCodexMachine(t, testkit.Shell("echo hi >> hi.txt"), testkit.Gate(gate, testkit.Say("never")))
	cmd, _ := startWorker(w, "run", "turn", "--no-input")
	awaitRequests(w, 2)
	killAll(w, cmd)
	w.Model.Play(testkit.Say("x"), testkit.Say("x"), testkit.Say("went on"))
	resumeAndCheck(w, "went on", 3)
	if third := w.Model.Requests("")[2]; !strings.Contains(third.Raw, "echo hi") {
		t.Error("the thread was not continued")
	}
}

// Before the model has said anything there may be no thread yet.
func TestCodexIsKilledAtItsFirstRequest(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	defer close(gate)
	w := e2e.NewCodexMachine(t, testkit.Gate(gate, testkit.Say("never")))
	cmd, _ := startWorker(w, "run", "turn", "--no-input")
	awaitRequests(w, 1)
	killAll(w, cmd)
	w.Model.Play(testkit.Say("went on"))
	if code, out, errs := w.Run(nil, "resume", w.ListRuns()[0].ID, "--no-input", "--json"); code != 0 || !strings.Contains(out, "went on") {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	if n := len(w.Model.Requests("")); n != 2 {
		t.Errorf("%d requests", n)
	}
	t.Logf("threads: %v", w.Model.Threads())
	w.MustRun([]int{0}, "cleanup", "--all", "--discard-changes")
	w.CheckNothingLeft()
}

// The thread of a turn that was cut can be gone, like that of a program that was killed before it wrote it down: the turn
// is begun anew. The thread of a turn that ended must not be: what was said there is lost.
func TestCodexForgetsItsThread(t *testing.T) {
	t.Parallel()
	forget := func(w *e2e.CodexMachine) {
		t.Helper()
		for _, pattern := range []string{"sessions", "*.sqlite*", "state*", "thread*"} {
			found, _ := filepath.Glob(filepath.Join(w.Home, "runs/*/sessions/*/home/codex", pattern))
			for _, f := range found {
				if err := os.RemoveAll(f); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	w := e2e.NewCodexMachine(t, testkit.APIError(500, "server_error", "oops"))
	w.MustRun([]int{4}, "run", "turn", "--no-input")
	forget(w)
	asked := len(w.Model.Requests(""))
	w.Model.Play(testkit.Say("began anew"))
	if code, out, errs := w.Run(nil, "resume", w.ListRuns()[0].ID, "--no-input", "--json"); code != 0 || !strings.Contains(out, "began anew") {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	if len(w.Model.Threads()) != 2 || len(w.Model.Requests("")) != asked+1 {
		t.Errorf("threads %v", w.Model.Threads())
	}

	w = e2e.NewCodexMachine(t, testkit.Say("first"))
	b, err := os.ReadFile(filepath.Join(w.Project, "laufwerk/workflows/turn/workflow.ts"))
	if err != nil {
		t.Fatal(err)
	}
	w.WriteWorkflow("turn", strings.Replace(string(b), `return yield* s.ask(`, `yield* s.ask({ key: "first", prompt: "do it" });
    yield* Human.confirm({ key: "go", title: "Go on?" });
    return yield* s.ask(`, 1))
	b, _ = os.ReadFile(filepath.Join(w.Project, "laufwerk/workflows/turn/workflow.ts"))
	w.WriteWorkflow("turn", strings.Replace(string(b), "{ defineWorkflow,", "{ defineWorkflow, Human,", 1))
	w.MustRun([]int{8}, "run", "turn", "--no-input")
	forget(w)
	code, out, errs := w.Run(nil, "answer", w.ListRuns()[0].ID, "go", "yes")
	if code != 7 || !strings.Contains(errs, "cannot continue") || len(w.Model.Requests("")) != 1 {
		t.Errorf("exit %d, %d requests\n%s%s", code, len(w.Model.Requests("")), out, errs)
	}
}

// The worker's memory does not grow with what the agent's commands print, and the answer after it is not lost.
func TestMuchOutputOfCodex(t *testing.T) {
	t.Parallel()
	peak := func(items int) int64 {
		w := e2e.NewCodexMachine(t)
		fake := filepath.Join(w.Dir, "fake-codex")
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
		w.WriteFile(fake, script)
		if err := os.Chmod(fake, 0o755); err != nil {
			t.Fatal(err)
		}
		w.MustRun([]int{0}, "prepare", "local", "--codex", fake)
		code, kib, out, err := e2e.MeasurePeak(w.Command(nil, "run", "turn", "--no-input", "--json"))
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
	w := e2e.NewCodexMachine(t, testkit.Shell("sleep 0.3; echo hi"), testkit.Say("done"))
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if code, out, errs := w.Run(nil, "run", "turn", "--no-input"); code != 0 {
				t.Errorf("exit %d\n%s%s", code, out, errs)
			}
		}()
	}
	wg.Wait()
	n := w.Model.Threads()
	for id, requests := range n {
		if requests != 2 {
			t.Errorf("%d requests of %s", requests, id)
		}
	}
	if len(n) != 4 {
		t.Errorf("%d threads", len(n))
	}
	w.MustRun([]int{0}, "cleanup", "--all", "--discard-changes")
	w.CheckNothingLeft()
	w.CheckNoSecret()
}

// What an agent and commands find out about the login gets into no record, in whatever form they print it.
func TestCodexPrintsItsLogin(t *testing.T) {
	t.Parallel()
	const find = "cat ../../runs/*/sessions/*/home/codex/auth.json ../../../.codex/auth.json $(dirname $(dirname $PWD))/runs/*/sessions/*/home/codex/auth.json"
	w := e2e.NewCodexMachine(t, testkit.ShellWith(map[string]any{"cmd": find + "; true", "max_output_tokens": 50000}), testkit.Say("TOKENS"))
	w.Model.Play(testkit.ShellWith(map[string]any{"cmd": find + "; true", "max_output_tokens": 50000}), testkit.Say("I found "+strings.Join(w.Secrets, " and ")+" here"))
	b, err := os.ReadFile(filepath.Join(w.Project, "laufwerk/workflows/turn/workflow.ts"))
	if err != nil {
		t.Fatal(err)
	}
	slow := `const shown = yield* s.exec({ key: "show", command: "cat ~/.codex/auth.json | head -c 700; sleep 0.2; cat ~/.codex/auth.json | tail -c +701; echo" });
    const said = yield* s.ask({ key: "ask", prompt: "do it" });
    return { said, shown: shown.stdout };`
	w.WriteWorkflow("turn", strings.Replace(string(b), `return yield* s.ask({ key: "ask", prompt: "do it" });`, slow, 1))
	code, out, errs := w.Run(nil, "run", "turn", "--no-input", "--json")
	if code != 0 || !strings.Contains(out, "I found [secret] and [secret] and [secret] here") || !strings.Contains(out, `access_token`) {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	run := w.ListRuns()[0].ID
	logs := w.MustRun([]int{0}, "runs", "logs", run)
	if !strings.Contains(logs, "[secret]") {
		t.Errorf("nothing was found:\n%s", logs)
	}
	w.CheckNoSecret(out, errs, logs, w.MustRun([]int{0}, "runs", "show", run, "--json"), w.MustRun([]int{0}, "claims", "list", "--all", "--json"))
}
