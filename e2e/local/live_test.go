package local_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/testkit"
)

// pane is a real terminal emulator's screen, with a shell's child on it.
type pane struct {
	t      *testing.T
	socket string
}

// runInPane runs laufwerk on a terminal of its own; the last line on it will be how it ended.
func runInPane(w *e2e.Machine, t *testing.T, columns, rows int, vars string, args ...string) *pane {
	t.Helper()
	_, err := exec.LookPath("tmux")
	testkit.Need(t, "tmux", err == nil, "the live view is looked at in a terminal emulator")
	cmd := w.Command(nil, args...)
	script := filepath.Join(w.Dir, "pane.sh")
	w.WriteFile(script, fmt.Sprintf("cd %s\n(echo $BASHPID >../pane.pid; %s exec -a laufwerk %s %s)\necho \"exit $?\"\nexec cat\n", w.Project, vars, cmd.Path, strings.Join(args, " ")))
	p := &pane{t, filepath.Join(t.TempDir(), "tmux")}
	start := exec.Command("tmux", "-f", "/dev/null", "-u", "-S", p.socket, "new-session", "-d",
		"-x", fmt.Sprint(columns), "-y", fmt.Sprint(rows), "bash", script)
	start.Env = append(cmd.Env, "TERM=xterm-256color", "LANG=C.UTF-8")
	if out, err := start.CombinedOutput(); err != nil {
		t.Fatalf("tmux: %v\n%s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", p.socket, "kill-server").Run() })
	return p
}

func (p *pane) tmux(args ...string) string {
	p.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-u", "-S", p.socket}, args...)...).CombinedOutput()
	if err != nil {
		p.t.Fatalf("tmux %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// shows waits until the screen is as is says.
func (p *pane) shows(what string, is func(screen string) bool) {
	p.t.Helper()
	last := ""
	defer func() {
		if p.t.Failed() {
			p.t.Logf("the screen:\n%s", last)
		}
	}()
	e2e.Eventually(p.t, "the screen shows "+what, func() bool {
		last = p.tmux("capture-pane", "-p")
		return is(last)
	})
}

func (p *pane) matches(re string) {
	p.t.Helper()
	p.shows(re, regexp.MustCompile(re).MatchString)
}

// untouched holds that the terminal is as every program expects it.
func (p *pane) untouched() {
	p.t.Helper()
	if got := strings.TrimSpace(p.tmux("display-message", "-p", "#{cursor_flag} #{alternate_on} #{wrap_flag}")); got != "1 0 1" {
		p.t.Errorf("cursor, alternate screen, wrapping: %s, want 1 0 1", got)
	}
}

const spinners = `[\x{2800}-\x{28ff}]`

var spinning = regexp.MustCompile(spinners) //nolint:gochecknoglobals // compiled once

func TestTheLiveViewOnATerminal(t *testing.T) {
	t.Parallel()
	w := e2e.NewMachine(t)
	w.WriteWorkflowBody("live", `
    const workspace = yield* Workspace.open({ source: ".", execution });
    const s = yield* Session.open({ key: "写手", agent, workspace });
    yield* all([
      s.exec({ key: "check", command: "for i in 1 2 3 4 5; do echo line $i; done; touch COUNTS/began; until [ -e COUNTS/go ]; do sleep 0.02; done; exit 3" }),
      Human.confirm({ key: "ok", title: "Is it ok?" }),
    ]);
    yield* s.exec({ key: "after", command: "echo more; until [ -e COUNTS/end ]; do sleep 0.02; done" });
`)
	p := runInPane(w, t, 60, 24, "", "run", "live")
	if err := e2e.AwaitFile(filepath.Join(w.Counts, "began")); err != nil {
		t.Fatal(err)
	}
	p.shows("the question, and nothing drawn below it", func(s string) bool {
		return strings.HasSuffix(strings.TrimSpace(s), "Is it ok? [y/N]") && !spinning.MatchString(s)
	})
	p.tmux("send-keys", "y", "Enter")
	view := func(name string) string {
		return `(?m)^Is it ok\? \[y/N\] y\n✓ question ok.*\n` + spinners + ` ` + name + ` +\d+s\n  \| line 3\n  \| line 4\n  \| line 5\n\s*$`
	}
	p.matches(view("写手 · check"))
	p.untouched()
	p.tmux("resize-window", "-x", "24")
	p.matches(view("写手 · che…")) // a name has at most half of the columns
	for _, columns := range []string{"100", "60"} {
		p.tmux("resize-window", "-x", columns)
		p.matches(view("写手 · check"))
	}
	w.Mark("go")
	p.matches(`(?m)^Is it ok\? \[y/N\] y\n✓ question ok.*\n✗ 写手 · check  exit 3  .*\n  \| line 1\n(  \| line \d\n){4}` + spinners + ` 写手 · after +\d+s\n  \| more\n\s*$`)
	p.tmux("send-keys", "C-c")
	p.matches(`(?m)\nstopping: (.*\n)+error: run \S+ is interrupted(.*\n)+next: laufwerk resume \S+\nexit 130\n`)
	p.shows("no more of what was drawn", func(s string) bool { return !spinning.MatchString(s) && strings.Count(s, "Is it ok?") == 1 })
	p.untouched()
	w.Mark("end")
}

func TestAKilledWorkerLeavesTheTerminalInOrder(t *testing.T) {
	t.Parallel()
	w := e2e.NewMachine(t)
	w.WriteWorkflowBody("live", `
    const workspace = yield* Workspace.open({ source: ".", execution });
    const s = yield* Session.open({ key: "s", agent, workspace });
    yield* s.exec({ key: "check", command: "echo first; until [ -e COUNTS/end ]; do sleep 0.02; done" });
`)
	p := runInPane(w, t, 60, 24, "", "run", "live")
	p.matches(`(?m)^` + spinners + ` s · check +\d+s\n  \| first\n\s*$`)
	pid, err := os.ReadFile(filepath.Join(w.Dir, "pane.pid"))
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("kill", "-KILL", strings.TrimSpace(string(pid))).CombinedOutput(); err != nil {
		t.Fatalf("kill the worker: %v\n%s", err, out)
	}
	defer w.Mark("end")
	p.matches(`(?m)  \| first\n(.*\n){0,4}exit 137\n`)
	p.untouched()
}

func TestOneColumnAndTerminalsThatAreNotDrawnOn(t *testing.T) {
	t.Parallel()
	for vars, columns := range map[string]int{"COLUMNS=1": 60, "": 1, "NO_COLOR=": 60, "TERM=dumb": 60, "CI=1": 60} {
		t.Run(vars, func(t *testing.T) {
			w := e2e.NewMachine(t)
			w.WriteWorkflowBody("live", `
    const workspace = yield* Workspace.open({ source: ".", execution });
    const s = yield* Session.open({ key: "s", agent, workspace });
    yield* s.exec({ key: "check", command: "echo first; until [ -e COUNTS/end ]; do sleep 0.02; done" });
`)
			p := runInPane(w, t, columns, 24, vars, "run", "live")
			if columns > 1 {
				p.matches(`(?m)^· s · check\n  \| first\n\s*$`)
			}
			w.Mark("end")
			if columns > 1 {
				p.matches(`(?m)^· s · check\n  \| first\n✓ s · check  .*\nrun \S+ succeeded\n(.*\n)*exit 0\n`)
				return
			}
			p.matches(`e\nx\ni\nt\n\n?0\n`)
		})
	}
}
