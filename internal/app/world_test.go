package app_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/system/process"
)

// world is a project with a home of its own, an agent that counts, and a person who approves.
type world struct {
	t       testing.TB
	dir     string
	project string
	home    string
	counts  string
	env     []string // of every command
	user    []string // in front of every command: setpriv and its arguments where it is another user's
	program string   // laufwerk; "" is this test binary where it lies
}

// The file in counts that keeps the agent in the middle of its turn while it is there.
const hold = "hold"

const jobWorkflow = `
import { all, Clock, defineWorkflow, Human, Session, Workspace } from "@laufwerk/sdk";
import { createCommand } from "@laufwerk/sdk/harness/command";
import { execution } from "../../execution";

const agent = execution.agent({ harness: createCommand({ command: ["bash", "AGENT", "COUNTS"] }) });

export const workflow = defineWorkflow<unknown, unknown>({
  name: "job",
  *run() {
    const workspace = yield* Workspace.open({ source: ".", execution });
    const writer = yield* Session.open({ key: "writer", agent, workspace });
    const began = yield* Clock.now();
    const said = yield* writer.ask({ key: "edit", prompt: "edit" });
    const counted = yield* writer.exec({ key: "count", command: "echo count >> COUNTS/ran; head -c 20000 /dev/zero | tr '\\0' y" });
    yield* all([Human.notify({ key: "a", title: "a" }), Clock.sleep({ key: "b", duration: 1 })]);
    yield* writer.close();
    const approved = yield* Human.confirm({ key: "approve", title: "Write back?", workspace });
    if (!approved) return "declined";
    const written = yield* Workspace.writeBack({ workspace });
    return { said, bytes: counted.stdout.length, approved: written.approved, began: began.getTime() > 0 };
  },
});
`

const jobAgent = `
prompt=$(cat)
echo "begin $prompt" >> "$1/ran"
while [ -e "$1/hold" ]; do sleep 0.02; done
printf 'changed\n' > changed.txt
printf 'new\n' > sub/new.txt
rm gone.txt
chmod +x tool.sh
echo "end $prompt" >> "$1/ended"
echo "edited"
`

// before and after are the project's own files around an approved run: content, and "x" for an executable.
func before() map[string]string {
	return map[string]string{"changed.txt": "original\n", "gone.txt": "gone\n", "tool.sh": "echo tool\n", "sub/kept.txt": "kept\n"}
}

func after() map[string]string {
	return map[string]string{"changed.txt": "changed\n", "tool.sh": "x echo tool\n", "sub/kept.txt": "kept\n", "sub/new.txt": "new\n"}
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return newWorldIn(t, t.TempDir())
}

// newWorldIn is newWorld in a directory that somebody removes.
func newWorldIn(t testing.TB, dir string) *world {
	t.Helper()
	w := &world{t: t, dir: dir, project: filepath.Join(dir, "project"), home: filepath.Join(dir, "home"), counts: filepath.Join(dir, "counts")}
	agent := filepath.Join(dir, "agent.sh")
	w.write(agent, jobAgent)
	w.write(filepath.Join(w.counts, "ran"), "")
	for name, content := range before() {
		w.write(filepath.Join(w.project, name), content)
	}
	w.write(filepath.Join(w.project, "laufwerk/execution.ts"), "import { createLocalExecution } from \"@laufwerk/execution/local\";\nexport const execution = createLocalExecution();\n")
	w.write(filepath.Join(w.project, "laufwerk/laufwerk.config.ts"), "import { defineConfig } from \"@laufwerk/sdk\";\nimport { execution } from \"./execution\";\nexport default defineConfig({ projectId: \"job\", executions: [execution] });\n")
	w.workflow("job", strings.NewReplacer("AGENT", agent, "COUNTS", w.counts).Replace(jobWorkflow))
	t.Cleanup(w.noProcessIsLeft)
	return w
}

func (w *world) write(path, content string) {
	w.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) workflow(name, source string) {
	w.write(filepath.Join(w.project, "laufwerk/workflows", name, "workflow.ts"), source)
}

// flow is a workflow whose run does what body says. COUNTS and AGENT in it are paths.
func (w *world) flow(name, body string) {
	w.workflow(name, strings.NewReplacer("AGENT", filepath.Join(w.dir, "agent.sh"), "COUNTS", w.counts).Replace(strings.NewReplacer("NAME", name, "BODY", body).Replace(`
import { all, Clock, defineWorkflow, Human, Session, Workspace } from "@laufwerk/sdk";
import { createCommand } from "@laufwerk/sdk/harness/command";
import { execution } from "../../execution";

const agent = execution.agent({ harness: createCommand({ command: ["bash", "AGENT", "COUNTS"] }) });

export const workflow = defineWorkflow<unknown, unknown>({
  name: "NAME",
  *run() {
BODY
  },
});
`)))
}

// mark makes a file in counts, unmark removes it.
func (w *world) mark(name string) { w.write(filepath.Join(w.counts, name), "") }

func (w *world) unmark(name string) {
	w.t.Helper()
	if err := os.Remove(filepath.Join(w.counts, name)); err != nil {
		w.t.Fatal(err)
	}
}

// nobody gives the world to a user that may make no control groups.
func (w *world) nobody() {
	w.t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	if _, err := exec.LookPath("setpriv"); err != nil {
		w.t.Fatalf("tests as another user need setpriv: %v", err)
	}
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	w.program = filepath.Join(w.dir, "laufwerk")
	if b, err := os.ReadFile(self); err != nil || os.WriteFile(w.program, b, 0o755) != nil {
		w.t.Fatalf("copy the test binary: %v", err)
	}
	const id = 65534
	err = filepath.WalkDir(w.dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, id, id)
	})
	if err == nil {
		err = os.Chmod(filepath.Dir(w.dir), 0o755)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.user = []string{"setpriv", "--reuid", strconv.Itoa(id), "--regid", strconv.Itoa(id), "--clear-groups", "--"}
}

// command is laufwerk as this test binary, in the project.
func (w *world) command(env []string, args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	if w.program != "" {
		self = w.program
	}
	cmd := exec.Command(self)
	cmd.Args = append([]string{"laufwerk"}, args...)
	if w.user != nil {
		cmd = exec.Command(w.user[0], append(append(w.user[1:len(w.user):len(w.user)], self), args...)...)
	}
	cmd.Dir = w.project
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.dir, "LAUFWERK_HOME=" + w.home, "WORK=" + w.dir}, append(w.env[:len(w.env):len(w.env)], env...)...)
	return cmd
}

// laufwerk runs a command to its end: its exit code (128+n where the signal n ended it) and what it printed.
func (w *world) laufwerk(env []string, args ...string) (code int, stdout, stderr string) {
	w.t.Helper()
	return w.start(env, args...).wait()
}

// running is a command in the background, the leader of a process group as a shell's jobs are.
type running struct {
	t         testing.TB
	cmd       *exec.Cmd
	dir       string // the world's
	out, errs spoken
}

func (w *world) start(env []string, args ...string) *running {
	w.t.Helper()
	r := &running{t: w.t, cmd: w.command(env, args...), dir: w.dir}
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.errs
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := r.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (r *running) pid() int { return r.cmd.Process.Pid }

// kill is SIGKILL, and the end.
func (r *running) kill() {
	r.t.Helper()
	r.signal(syscall.SIGKILL)
	if code, out, errs := r.wait(); code != 128+int(syscall.SIGKILL) {
		r.t.Fatalf("it had ended before it was killed: exit %d\n%s%s", code, out, errs)
	}
}

func (r *running) signal(sig syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(sig); err != nil {
		r.t.Fatalf("signal it: %v\n%s", err, r.errs.String())
	}
}

func (r *running) wait() (code int, stdout, stderr string) {
	r.t.Helper()
	return r.within(hang)
}

// within is wait for what may take as long as limit.
func (r *running) within(limit time.Duration) (code int, stdout, stderr string) {
	r.t.Helper()
	hung := time.AfterFunc(limit, func() { r.hangs(limit) })
	defer hung.Stop()
	err := r.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		r.t.Fatal(err)
	}
	code = r.cmd.ProcessState.ExitCode()
	if ws, ok := r.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		code = 128 + int(ws.Signal())
	}
	return code, r.out.String(), r.errs.String()
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(hang); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it never came to be that %s", what)
		}
	}
}

// begun waits until a line of ran begins with the word for the n-th time.
func (w *world) begun(word string, n int) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("%q ran for the time %d", word, n), func() bool { return w.ran()[word] >= n })
}

// supervisor is one that lives, by its record.
type supervisor struct {
	dir     string
	started supervise.Started
}

func (w *world) supervisors() []supervisor {
	w.t.Helper()
	var live []supervisor
	records, _ := filepath.Glob(filepath.Join(w.home, "runs/*/sessions/*/ops/*/started"))
	for _, path := range records {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		s := supervisor{dir: filepath.Dir(path)}
		if err := json.Unmarshal(b, &s.started); err != nil {
			w.t.Fatal(err)
		}
		if process.Look(s.started.Supervisor) == process.Alive {
			live = append(live, s)
		}
	}
	return live
}

func kill(s supervisor) error { return process.Signal(s.started.Supervisor, syscall.SIGKILL) }

// killSupervisor kills the only one that lives.
func (w *world) killSupervisor() supervisor {
	w.t.Helper()
	live := w.supervisors()
	if len(live) != 1 {
		w.t.Fatalf("%d supervisors live", len(live))
	}
	if err := kill(live[0]); err != nil {
		w.t.Fatal(err)
	}
	return live[0]
}

// onlyRun is the one that there is.
func (w *world) onlyRun() listedRun {
	w.t.Helper()
	list := w.runs()
	if len(list) != 1 {
		w.t.Fatalf("%d runs: %v", len(list), list)
	}
	return list[0]
}

// records is the journal of the only run.
func (w *world) records() []journal.Record {
	w.t.Helper()
	records, err := journal.At(filepath.Join(w.home, "runs", w.onlyRun().ID)).Read()
	if err != nil {
		w.t.Fatal(err)
	}
	return records
}

// journaled counts the records of each operation by type, as "type operation".
func (w *world) journaled() map[string]int {
	w.t.Helper()
	n := map[string]int{}
	for _, r := range w.records() {
		n[strings.TrimSpace(string(r.Type)+" "+r.Op)]++
	}
	return n
}

// must runs a command that ends with one of the codes.
func (w *world) must(codes []int, args ...string) string {
	w.t.Helper()
	code, out, errs := w.laufwerk(nil, args...)
	for _, c := range codes {
		if c == code {
			return out
		}
	}
	w.t.Fatalf("laufwerk %s: exit %d, want %v\n%s%s", strings.Join(args, " "), code, codes, out, errs)
	return ""
}

type listedRun struct {
	ID          string `json:"id"`
	State       string `json:"state"`
	HalfApplied bool   `json:"halfApplied"`
}

func (w *world) runs() []listedRun {
	w.t.Helper()
	var doc struct{ Runs []listedRun }
	if err := json.Unmarshal([]byte(w.must([]int{0}, "runs", "list", "--all", "--json")), &doc); err != nil {
		w.t.Fatal(err)
	}
	return doc.Runs
}

// finish does what a person would: resume what is interrupted, answer what waits, until the run of job is over.
func (w *world) finish() listedRun {
	w.t.Helper()
	return w.finishOf("job")
}

func (w *world) finishOf(workflow string) listedRun {
	w.t.Helper()
	for range 10 {
		list := w.runs()
		if len(list) == 0 {
			w.must([]int{0, 8}, "run", workflow, "--no-input")
			continue
		}
		if len(list) > 1 {
			w.t.Fatalf("%d runs: %v", len(list), list)
		}
		switch r := list[0]; r.State {
		case "running": // what a killed worker was just starting has its lock until it is another program
			eventually(w.t, "nobody holds the run", func() bool { return w.runs()[0].State != "running" })
		case "interrupted":
			w.must([]int{0, 8}, "resume", r.ID, "--no-input")
		case "waiting":
			if code, out, errs := w.laufwerk(nil, "answer", r.ID, "approve", "yes"); code == 5 && strings.Contains(errs, "answered already") {
				w.must([]int{0}, "resume", r.ID)
			} else if code != 0 {
				w.t.Fatalf("answer: exit %d\n%s%s", code, out, errs)
			}
		default:
			return r
		}
	}
	w.t.Fatalf("the run does not come to its end: %v", w.runs())
	return listedRun{}
}

// done checks a job that came to its end: nothing ran more often than most times, the source holds exactly what was
// approved, and nothing is left.
func (w *world) done(most int) {
	w.t.Helper()
	r := w.finish()
	if r.State != "succeeded" {
		w.t.Fatalf("the run is %s", r.State)
	}
	w.ranAtMost(most, map[string]string{"begin": "session.ask[writer]:edit", "count": "session.exec[writer]:count"})

	w.sourceIs(after())
	w.must([]int{0}, "cleanup", "--all", "--discard-changes")
	w.nothingIsLeft()
}

// ranAtMost checks how often operations ran, by the word that each leaves in ran: once, and once more for every attempt that
// the journal says was cut.
func (w *world) ranAtMost(most int, operations map[string]string) {
	w.t.Helper()
	ran, j := w.ran(), w.journaled()
	for word, id := range operations {
		if n := ran[word]; n < 1 || n > most || n > 1+j["cut "+id] {
			w.t.Errorf("%s ran %d times, and was cut %d times", id, n, j["cut "+id])
		}
		if j["completed "+id] != 1 {
			w.t.Errorf("%s was completed %d times", id, j["completed "+id])
		}
	}
}

// ran counts the lines that the agent and the command left, by their first word.
func (w *world) ran() map[string]int {
	w.t.Helper()
	b, err := os.ReadFile(filepath.Join(w.counts, "ran"))
	if err != nil {
		w.t.Fatal(err)
	}
	n := map[string]int{}
	for line := range strings.Lines(string(b)) {
		word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		n[word]++
	}
	return n
}

// files are the project's own files, without laufwerk/.
func (w *world) files() map[string]string {
	w.t.Helper()
	got := map[string]string{}
	err := filepath.WalkDir(w.project, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(w.project, path)
		if rel == "laufwerk" {
			return filepath.SkipDir
		}
		if e.IsDir() {
			if strings.HasPrefix(e.Name(), ".") && rel != "." {
				got[rel] = "a directory that is not the project's"
			}
			return nil
		}
		b, err := os.ReadFile(path)
		info, _ := e.Info()
		if info != nil && info.Mode()&0o111 != 0 {
			b = append([]byte("x "), b...)
		}
		got[rel] = string(b)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

func (w *world) sourceIs(want map[string]string) {
	w.t.Helper()
	if got := w.files(); fmt.Sprint(got) != fmt.Sprint(want) {
		w.t.Errorf("the source is %v, want %v", got, want)
	}
}

type listedClaim struct{ ID, State, Kind string }

// exampleIsWritten approves what the example made of one file, which a line is gone from: the project, a repository, has nothing
// of that before, and nothing else afterwards.
func (w *world) exampleIsWritten(run, file, gone, after string, repairs int) (answered string) {
	w.t.Helper()
	if diff := w.must([]int{0}, "diff", run); !strings.Contains(diff, gone) || strings.Count(diff, "\n+++") != 1 {
		w.t.Errorf("the difference:\n%s", diff)
	}
	changed := func() string { return w.git("status", "--porcelain", "--", ":!laufwerk", ":!.gitignore") }
	if early := changed(); early != "" {
		w.t.Errorf("the source was changed before anybody approved:\n%s", early)
	}
	answered = w.must([]int{0}, "answer", run, "write-back", "yes", "--json")
	var done struct {
		Output struct {
			Status  string
			Repairs int
			Paths   []string
		}
	}
	if err := json.Unmarshal([]byte(answered), &done); err != nil || done.Output.Status != "written" || done.Output.Repairs != repairs || strings.Join(done.Output.Paths, " ") != file {
		w.t.Errorf("%v: %s", err, answered)
	}
	if b, err := os.ReadFile(filepath.Join(w.project, file)); err != nil || string(b) != after {
		w.t.Errorf("written back: %v\n%s", err, b)
	}
	if late := changed(); late != " M "+file+"\n" {
		w.t.Errorf("the repository has changed:\n%s", late)
	}
	return answered
}

func (w *world) claims(args ...string) []listedClaim {
	w.t.Helper()
	var doc struct{ Claims []listedClaim }
	if err := json.Unmarshal([]byte(w.must([]int{0}, append([]string{"claims", "list", "--json"}, args...)...)), &doc); err != nil {
		w.t.Fatal(err)
	}
	return doc.Claims
}

// nothingIsLeft: no claim, no directory, no process.
func (w *world) nothingIsLeft() {
	w.t.Helper()
	if left := w.claims(); len(left) > 0 {
		w.t.Errorf("claims left: %v", left)
	}
	for _, pattern := range []string{"workspaces/*", "workspaces/.*", "runs/*/sessions/*"} {
		if left, _ := filepath.Glob(filepath.Join(w.home, pattern)); len(left) > 0 {
			w.t.Errorf("left: %v", left)
		}
	}
	for _, c := range w.claims("--all") {
		if c.State != "released" {
			w.t.Errorf("claim %s is %s", c.ID, c.State)
		}
		if left := marked(c.ID); len(left) > 0 {
			w.t.Errorf("processes of %s: %v", c.ID, left)
		}
	}
}

// marked are the processes that carry a session's mark.
func marked(session string) []string {
	var left []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		if env, err := os.ReadFile(filepath.Join(dir, "environ")); err == nil && bytes.Contains(env, []byte("LAUFWERK_MARK="+session+"/")) {
			line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
			left = append(left, filepath.Base(dir)+" "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return left
}

// noProcessIsLeft looks for the world's directory in every command line and environment.
func (w *world) noProcessIsLeft() {
	deadline := time.Now().Add(10 * time.Second)
	for {
		var left []int
		dirs, _ := filepath.Glob("/proc/[0-9]*")
		for _, dir := range dirs {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			if pid == os.Getpid() {
				continue
			}
			for _, f := range []string{"cmdline", "environ"} {
				if b, err := os.ReadFile(filepath.Join(dir, f)); err == nil && bytes.Contains(b, []byte(w.dir+"/")) {
					left = append(left, pid)
					break
				}
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			for _, pid := range left {
				line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				w.t.Errorf("process %d outlived the test: %s", pid, bytes.ReplaceAll(line, []byte{0}, []byte(" ")))
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}
