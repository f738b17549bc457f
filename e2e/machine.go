package e2e

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

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/agent/codex"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/system/process"
)

// Machine is a project with a home of its own, an agent that counts, and a person who approves.
type Machine struct {
	T          testing.TB
	Dir        string
	Project    string
	Home       string
	Counts     string
	Env        []string // of every command
	UserPrefix []string // in front of every command: setpriv and its arguments where it is another user's
	Program    string   // laufwerk; "" is this test binary where it lies
}

// The file in counts that keeps the agent in the middle of its turn while it is there.
const HoldFile = "hold"

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

const JobAgent = `
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

// SourceBefore and after are the project's own files around an approved run: content, and "x" for an executable.
func SourceBefore() map[string]string {
	return map[string]string{"changed.txt": "original\n", "gone.txt": "gone\n", "tool.sh": "echo tool\n", "sub/kept.txt": "kept\n"}
}

func SourceAfter() map[string]string {
	return map[string]string{"changed.txt": "changed\n", "tool.sh": "x echo tool\n", "sub/kept.txt": "kept\n", "sub/new.txt": "new\n"}
}

func NewMachine(t testing.TB) *Machine {
	t.Helper()
	return NewMachineIn(t, t.TempDir())
}

// NewMachineIn is NewMachine in a directory that somebody removes.
func NewMachineIn(t testing.TB, dir string) *Machine {
	t.Helper()
	w := &Machine{T: t, Dir: dir, Project: filepath.Join(dir, "project"), Home: filepath.Join(dir, "home"), Counts: filepath.Join(dir, "counts")}
	agent := filepath.Join(dir, "agent.sh")
	w.WriteFile(agent, JobAgent)
	w.WriteFile(filepath.Join(w.Counts, "ran"), "")
	for name, content := range SourceBefore() {
		w.WriteFile(filepath.Join(w.Project, name), content)
	}
	w.WriteFile(filepath.Join(w.Project, "laufwerk/execution.ts"), "import { createLocalExecution } from \"@laufwerk/execution/local\";\nexport const execution = createLocalExecution();\n")
	w.WriteFile(filepath.Join(w.Project, "laufwerk/laufwerk.config.ts"), "import { defineConfig } from \"@laufwerk/sdk\";\nimport { execution } from \"./execution\";\nexport default defineConfig({ projectId: \"job\", executions: [execution] });\n")
	w.WriteWorkflow("job", strings.NewReplacer("AGENT", agent, "COUNTS", w.Counts).Replace(jobWorkflow))
	t.Cleanup(w.checkNoProcessLeft)
	return w
}

func (w *Machine) WriteFile(path, content string) {
	w.T.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.T.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		w.T.Fatal(err)
	}
}

func (w *Machine) WriteWorkflow(name, source string) {
	w.WriteFile(filepath.Join(w.Project, "laufwerk/workflows", name, "workflow.ts"), source)
}

// WriteWorkflowBody is a workflow whose run does what body says. COUNTS and AGENT in it are paths.
func (w *Machine) WriteWorkflowBody(name, body string) {
	w.WriteWorkflow(name, strings.NewReplacer("AGENT", filepath.Join(w.Dir, "agent.sh"), "COUNTS", w.Counts).Replace(strings.NewReplacer("NAME", name, "BODY", body).Replace(`
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

// Mark makes a file in counts, unmark removes it.
func (w *Machine) Mark(name string) { w.WriteFile(filepath.Join(w.Counts, name), "") }

func (w *Machine) Unmark(name string) {
	w.T.Helper()
	if err := os.Remove(filepath.Join(w.Counts, name)); err != nil {
		w.T.Fatal(err)
	}
}

// BecomeNobody gives the machine to a user that may make no control groups.
func (w *Machine) BecomeNobody() {
	w.T.Helper()
	if os.Geteuid() != 0 {
		return
	}
	if _, err := exec.LookPath("setpriv"); err != nil {
		w.T.Fatalf("tests as another user need setpriv: %v", err)
	}
	self, err := os.Executable()
	if err != nil {
		w.T.Fatal(err)
	}
	w.Program = filepath.Join(w.Dir, "laufwerk")
	if b, err := os.ReadFile(self); err != nil || os.WriteFile(w.Program, b, 0o755) != nil {
		w.T.Fatalf("copy the test binary: %v", err)
	}
	const id = 65534
	err = filepath.WalkDir(w.Dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, id, id)
	})
	if err == nil {
		err = os.Chmod(filepath.Dir(w.Dir), 0o755)
	}
	if err != nil {
		w.T.Fatal(err)
	}
	w.UserPrefix = []string{"setpriv", "--reuid", strconv.Itoa(id), "--regid", strconv.Itoa(id), "--clear-groups", "--"}
}

// Command is laufwerk as this test binary, in the project.
func (w *Machine) Command(env []string, args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		w.T.Fatal(err)
	}
	if w.Program != "" {
		self = w.Program
	}
	cmd := exec.Command(self)
	cmd.Args = append([]string{"laufwerk"}, args...)
	if w.UserPrefix != nil {
		cmd = exec.Command(w.UserPrefix[0], append(append(w.UserPrefix[1:len(w.UserPrefix):len(w.UserPrefix)], self), args...)...)
	}
	cmd.Dir = w.Project
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.Dir, "LAUFWERK_HOME=" + w.Home, "WORK=" + w.Dir}, append(w.Env[:len(w.Env):len(w.Env)], env...)...)
	return cmd
}

// Run runs a command to its end: its exit code (128+n where the signal n ended it) and what it printed.
func (w *Machine) Run(env []string, args ...string) (code int, stdout, stderr string) {
	w.T.Helper()
	return w.Start(env, args...).Wait()
}

// Process is a command in the background, the leader of a process group as a shell's jobs are.
type Process struct {
	T              testing.TB
	Cmd            *exec.Cmd
	dir            string // the machine's
	Stdout, Stderr Output
}

func (w *Machine) Start(env []string, args ...string) *Process {
	w.T.Helper()
	r := &Process{T: w.T, Cmd: w.Command(env, args...), dir: w.Dir}
	r.Cmd.Stdout, r.Cmd.Stderr = &r.Stdout, &r.Stderr
	r.Cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := r.Cmd.Start(); err != nil {
		w.T.Fatal(err)
	}
	return r
}

func (r *Process) PID() int { return r.Cmd.Process.Pid }

// Kill is SIGKILL, and the end.
func (r *Process) Kill() {
	r.T.Helper()
	r.Signal(syscall.SIGKILL)
	if code, out, errs := r.Wait(); code != 128+int(syscall.SIGKILL) {
		r.T.Fatalf("it had ended before it was killed: exit %d\n%s%s", code, out, errs)
	}
}

func (r *Process) Signal(sig syscall.Signal) {
	r.T.Helper()
	if err := r.Cmd.Process.Signal(sig); err != nil {
		r.T.Fatalf("signal it: %v\n%s", err, r.Stderr.String())
	}
}

func (r *Process) Wait() (code int, stdout, stderr string) {
	r.T.Helper()
	return r.WaitWithin(HangLimit)
}

// WaitWithin is wait for what may take as long as limit.
func (r *Process) WaitWithin(limit time.Duration) (code int, stdout, stderr string) {
	r.T.Helper()
	hung := time.AfterFunc(limit, func() { r.reportHang(limit) })
	defer hung.Stop()
	err := r.Cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		r.T.Fatal(err)
	}
	code = r.Cmd.ProcessState.ExitCode()
	if ws, ok := r.Cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		code = 128 + int(ws.Signal())
	}
	return code, r.Stdout.String(), r.Stderr.String()
}

func Eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(HangLimit); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it never came to be that %s", what)
		}
	}
}

// AwaitRan waits until a line of ran begins with the word for the n-th time.
func (w *Machine) AwaitRan(word string, n int) {
	w.T.Helper()
	Eventually(w.T, fmt.Sprintf("%q ran for the time %d", word, n), func() bool { return w.CountRan()[word] >= n })
}

// LiveSupervisor is one that lives, by its record.
type LiveSupervisor struct {
	Dir     string
	Started supervise.StartRecord
}

func (w *Machine) LiveSupervisors() []LiveSupervisor {
	w.T.Helper()
	var live []LiveSupervisor
	records, _ := filepath.Glob(filepath.Join(w.Home, "runs/*/sessions/*/ops/*/started"))
	for _, path := range records {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		s := LiveSupervisor{Dir: filepath.Dir(path)}
		if err := json.Unmarshal(b, &s.Started); err != nil {
			w.T.Fatal(err)
		}
		if process.Probe(s.Started.Supervisor) == process.Alive {
			live = append(live, s)
		}
	}
	return live
}

func KillSupervisor(s LiveSupervisor) error {
	return process.Signal(s.Started.Supervisor, syscall.SIGKILL)
}

// KillSupervisor kills the only one that lives.
func (w *Machine) KillSupervisor() LiveSupervisor {
	w.T.Helper()
	live := w.LiveSupervisors()
	if len(live) != 1 {
		w.T.Fatalf("%d supervisors live", len(live))
	}
	if err := KillSupervisor(live[0]); err != nil {
		w.T.Fatal(err)
	}
	return live[0]
}

// OnlyRun is the one that there is.
func (w *Machine) OnlyRun() listedRun {
	w.T.Helper()
	list := w.ListRuns()
	if len(list) != 1 {
		w.T.Fatalf("%d runs: %v", len(list), list)
	}
	return list[0]
}

// JournalRecords is the journal of the only run.
func (w *Machine) JournalRecords() []journal.Record {
	w.T.Helper()
	records, err := journal.Open(filepath.Join(w.Home, "runs", w.OnlyRun().ID)).Read()
	if err != nil {
		w.T.Fatal(err)
	}
	return records
}

// CountRecords counts the records of each operation by type, as "type operation".
func (w *Machine) CountRecords() map[string]int {
	w.T.Helper()
	n := map[string]int{}
	for _, r := range w.JournalRecords() {
		n[strings.TrimSpace(string(r.Type)+" "+r.Op)]++
	}
	return n
}

// MustRun runs a command that ends with one of the codes.
func (w *Machine) MustRun(codes []int, args ...string) string {
	w.T.Helper()
	code, out, errs := w.Run(nil, args...)
	for _, c := range codes {
		if c == code {
			return out
		}
	}
	w.T.Fatalf("laufwerk %s: exit %d, want %v\n%s%s", strings.Join(args, " "), code, codes, out, errs)
	return ""
}

type listedRun struct {
	ID          string `json:"id"`
	State       string `json:"state"`
	HalfApplied bool   `json:"halfApplied"`
}

func (w *Machine) ListRuns() []listedRun {
	w.T.Helper()
	var doc struct{ Runs []listedRun }
	if err := json.Unmarshal([]byte(w.MustRun([]int{0}, "runs", "list", "--all", "--json")), &doc); err != nil {
		w.T.Fatal(err)
	}
	return doc.Runs
}

// Finish does what a person would: resume what is interrupted, answer what waits, until the run of job is over.
func (w *Machine) Finish() listedRun {
	w.T.Helper()
	return w.FinishWorkflow("job")
}

func (w *Machine) FinishWorkflow(workflow string) listedRun {
	w.T.Helper()
	for range 10 {
		list := w.ListRuns()
		if len(list) == 0 {
			w.MustRun([]int{0, 8}, "run", workflow, "--no-input")
			continue
		}
		if len(list) > 1 {
			w.T.Fatalf("%d runs: %v", len(list), list)
		}
		switch r := list[0]; r.State {
		case "running": // what a killed worker was just starting has its lock until it is another program
			Eventually(w.T, "nobody holds the run", func() bool { return w.ListRuns()[0].State != "running" })
		case "interrupted":
			w.MustRun([]int{0, 8}, "resume", r.ID, "--no-input")
		case "waiting":
			if code, out, errs := w.Run(nil, "answer", r.ID, "approve", "yes"); code == 5 && strings.Contains(errs, "answered already") {
				w.MustRun([]int{0}, "resume", r.ID)
			} else if code != 0 {
				w.T.Fatalf("answer: exit %d\n%s%s", code, out, errs)
			}
		default:
			return r
		}
	}
	w.T.Fatalf("the run does not come to its end: %v", w.ListRuns())
	return listedRun{}
}

// FinishAndCheck checks a job that came to its end: nothing ran more often than most times, the source holds exactly what was
// approved, and nothing is left.
func (w *Machine) FinishAndCheck(most int) {
	w.T.Helper()
	r := w.Finish()
	if r.State != "succeeded" {
		w.T.Fatalf("the run is %s", r.State)
	}
	w.CheckRanAtMost(most, map[string]string{"begin": "session.ask[writer]:edit", "count": "session.exec[writer]:count"})

	w.CheckSource(SourceAfter())
	w.MustRun([]int{0}, "cleanup", "--all", "--discard-changes")
	w.CheckNothingLeft()
}

// CheckRanAtMost checks how often operations ran, by the word that each leaves in ran: once, and once more for every attempt that
// the journal says was cut.
func (w *Machine) CheckRanAtMost(most int, operations map[string]string) {
	w.T.Helper()
	ran, j := w.CountRan(), w.CountRecords()
	for word, id := range operations {
		if n := ran[word]; n < 1 || n > most || n > 1+j["cut "+id] {
			w.T.Errorf("%s ran %d times, and was cut %d times", id, n, j["cut "+id])
		}
		if j["completed "+id] != 1 {
			w.T.Errorf("%s was completed %d times", id, j["completed "+id])
		}
	}
}

// CountRan counts the lines that the agent and the command left, by their first word.
func (w *Machine) CountRan() map[string]int {
	w.T.Helper()
	b, err := os.ReadFile(filepath.Join(w.Counts, "ran"))
	if err != nil {
		w.T.Fatal(err)
	}
	n := map[string]int{}
	for line := range strings.Lines(string(b)) {
		word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		n[word]++
	}
	return n
}

// ProjectFiles are the project's own files, without laufwerk/.
func (w *Machine) ProjectFiles() map[string]string {
	w.T.Helper()
	got := map[string]string{}
	err := filepath.WalkDir(w.Project, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(w.Project, path)
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
		w.T.Fatal(err)
	}
	return got
}

func (w *Machine) CheckSource(want map[string]string) {
	w.T.Helper()
	if got := w.ProjectFiles(); fmt.Sprint(got) != fmt.Sprint(want) {
		w.T.Errorf("the source is %v, want %v", got, want)
	}
}

type ListedClaim struct{ ID, State, Kind string }

// ApproveExample approves what the example made of one file, which a line is gone from: the project, a repository, has nothing
// of that before, and nothing else afterwards.
func (w *Machine) ApproveExample(run, file, gone, after string, repairs int) (answered string) {
	w.T.Helper()
	if diff := w.MustRun([]int{0}, "diff", run); !strings.Contains(diff, gone) || strings.Count(diff, "\n+++") != 1 {
		w.T.Errorf("the difference:\n%s", diff)
	}
	changed := func() string { return w.Git("status", "--porcelain", "--", ":!laufwerk", ":!.gitignore") }
	if early := changed(); early != "" {
		w.T.Errorf("the source was changed before anybody approved:\n%s", early)
	}
	answered = w.MustRun([]int{0}, "answer", run, "write-back", "yes", "--json")
	var done struct {
		Output struct {
			Status  string
			Repairs int
			Paths   []string
		}
	}
	if err := json.Unmarshal([]byte(answered), &done); err != nil || done.Output.Status != "written" || done.Output.Repairs != repairs || strings.Join(done.Output.Paths, " ") != file {
		w.T.Errorf("%v: %s", err, answered)
	}
	if b, err := os.ReadFile(filepath.Join(w.Project, file)); err != nil || string(b) != after {
		w.T.Errorf("written back: %v\n%s", err, b)
	}
	if late := changed(); late != " M "+file+"\n" {
		w.T.Errorf("the repository has changed:\n%s", late)
	}
	return answered
}

func (w *Machine) ListClaims(args ...string) []ListedClaim {
	w.T.Helper()
	var doc struct{ Claims []ListedClaim }
	if err := json.Unmarshal([]byte(w.MustRun([]int{0}, append([]string{"claims", "list", "--json"}, args...)...)), &doc); err != nil {
		w.T.Fatal(err)
	}
	return doc.Claims
}

// nothingIsLeft: no claim, no directory, no process.
func (w *Machine) CheckNothingLeft() {
	w.T.Helper()
	if left := w.ListClaims(); len(left) > 0 {
		w.T.Errorf("claims left: %v", left)
	}
	for _, pattern := range []string{"workspaces/*", "workspaces/.*", "runs/*/sessions/*"} {
		if left, _ := filepath.Glob(filepath.Join(w.Home, pattern)); len(left) > 0 {
			w.T.Errorf("left: %v", left)
		}
	}
	for _, c := range w.ListClaims("--all") {
		if c.State != "released" {
			w.T.Errorf("claim %s is %s", c.ID, c.State)
		}
		if left := markedProcesses(c.ID); len(left) > 0 {
			w.T.Errorf("processes of %s: %v", c.ID, left)
		}
	}
}

// markedProcesses are the processes that carry a session's mark.
func markedProcesses(session string) []string {
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

// checkNoProcessLeft looks for the machine's directory in every command line and environment.
func (w *Machine) checkNoProcessLeft() {
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
				if b, err := os.ReadFile(filepath.Join(dir, f)); err == nil && bytes.Contains(b, []byte(w.Dir+"/")) {
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
				w.T.Errorf("process %d outlived the test: %s", pid, bytes.ReplaceAll(line, []byte{0}, []byte(" ")))
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func AwaitFile(path string) error {
	for deadline := time.Now().Add(HangLimit); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s did not come about within %s", path, HangLimit)
		}
	}
}

// CleanupReport is what cleanup says.
type CleanupReport struct {
	Released, Kept, Retained []struct{ Claim, Kind, LastObservation, Next string }
	Error                    struct{ Code, Message, Hint string }
}

// DoctorCheck is one of doctor's.
type DoctorCheck struct {
	ID, Status, Message, Fix string
	Evidence                 []string
}

func (c DoctorCheck) String() string {
	return fmt.Sprintf("%s %s: %s %q; %s", c.Status, c.ID, c.Message, c.Evidence, c.Fix)
}

func (r *Process) CheckExit(codes ...int) {
	r.T.Helper()
	code, out, errs := r.Wait()
	for _, c := range codes {
		if c == code {
			return
		}
	}
	r.T.Fatalf("exit %d, want %v\n%s%s", code, codes, out, errs)
}

// ReplaceInFile replaces what is there once in a file of the project.
func (w *Machine) ReplaceInFile(name, old, with string) {
	w.T.Helper()
	path := filepath.Join(w.Project, name)
	b, err := os.ReadFile(path)
	if err != nil || strings.Count(string(b), old) != 1 {
		w.T.Fatalf("%s does not say %q once: %v\n%s", name, old, err, b)
	}
	w.WriteFile(path, strings.Replace(string(b), old, with, 1))
}

// Git runs git in the project, without the configuration of whoever runs the test.
func (w *Machine) Git(args ...string) string {
	w.T.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = w.Project
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + w.Dir, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b",
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.T.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// StoreOwner is the id of the machine's store.
func (w *Machine) StoreOwner() string {
	b, err := os.ReadFile(filepath.Join(w.Home, "owner"))
	if err != nil {
		w.T.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func (w *Machine) HasControlGroups() bool {
	_, why := process.CgroupPath("laufwerk-test")
	return why == "" && w.UserPrefix == nil
}

// HasAttached says whether a worker joined an attempt of another one.
func (w *Machine) HasAttached(run string) bool {
	b, _ := os.ReadFile(filepath.Join(w.Home, "runs", run, "events.ndjson"))
	return strings.Contains(string(b), `"attached"`)
}

// CheckPrepared checks that exactly one tree is there, and that the receipt names its program.
func (w *Machine) CheckPrepared() {
	w.T.Helper()
	installed, err := agent.ReadInstalled(w.Home, codex.New(), "")
	if err != nil {
		w.T.Fatal(err)
	}
	trees, err := os.ReadDir(filepath.Join(w.Home, "harness", codex.Name))
	if err != nil {
		w.T.Fatal(err)
	}
	var names []string
	for _, e := range trees {
		names = append(names, e.Name())
	}
	if len(names) != 2 || !strings.HasPrefix(installed.Path, filepath.Join(w.Home, "harness", codex.Name, names[0])+"/") {
		w.T.Errorf("prepared as %s among %v", installed.Path, names)
	}
}

// FindProcesses finds the processes that carry a path of a script in their environment: agents have HOME from it.
func FindProcesses(work string) map[int]string {
	left := map[int]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		env, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil || !bytes.Contains(env, []byte("="+work+"/")) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && pid != os.Getpid() {
			line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
			left[pid] = strings.ReplaceAll(string(line), "\x00", " ")
		}
	}
	return left
}

// CheckSignalled checks how a worker left that got signals.
func (w *Machine) CheckSignalled(sigs []syscall.Signal, code int, out, errs string) {
	w.T.Helper()
	fits := code == 0
	for _, sig := range sigs {
		fits = fits || code == 128+int(sig)
	}
	list := w.ListRuns()
	if !fits || len(list) > 1 || code == 0 && len(list) == 0 {
		w.T.Fatalf("exit %d, %d runs\n%s%s", code, len(list), out, errs)
	}
	if len(list) == 0 {
		return // it had not begun
	}
	killed := code == 128+int(syscall.SIGKILL)
	switch r := list[0]; {
	case code == 0 && r.State != "succeeded", r.State != "succeeded" && r.State != "interrupted":
		w.T.Fatalf("exit %d, and the run is %s\n%s%s", code, r.State, out, errs)
	case killed: // nobody can say anything
	case r.State == "interrupted" && !strings.Contains(errs, "laufwerk resume "+r.ID):
		w.T.Errorf("exit %d, and nobody says how to go on\n%s%s", code, out, errs)
	case r.State == "interrupted" && !strings.Contains(errs, "kept") && !strings.Contains(errs, "under their supervisors"):
		w.T.Errorf("exit %d, and nobody says what is kept\n%s%s", code, out, errs)
	}
}
