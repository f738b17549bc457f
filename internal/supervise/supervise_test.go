package supervise

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/system/process"
)

// limit is when a test hangs.
const limit = 60 * time.Second

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

// testUser is where supervisors of a test run: with the rights of the test, or as a user who can have no control group.
type testUser struct {
	LocalLauncher
	nobody bool
}

func here() testUser {
	return testUser{LocalLauncher: LocalLauncher{Executable: system.Executable(), Now: time.Now}}
}

// through is a launcher whose supervisor is started by a shell line, as `exec "$@"` would.
func through(t *testing.T, line string) LocalLauncher {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	bin := filepath.Join(dir, "laufwerk") // the build's own folder is closed to others
	if err := os.Link(self, bin); err != nil {
		b, err := os.ReadFile(self)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(bin, b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script := filepath.Join(dir, "start")
	if err := os.WriteFile(script, []byte("#!/bin/bash\nset -- "+bin+" \"$@\"\n"+line+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return LocalLauncher{Executable: script, Now: time.Now}
}

const asNobody = `exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"`

// forEachUser runs a test with a control group (where this machine gives one) and without.
func forEachUser(t *testing.T, test func(t *testing.T, p testUser)) {
	t.Run("own rights", func(t *testing.T) { test(t, here()) })
	t.Run("nobody", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("not root: this user's rights were tried already")
		}
		test(t, testUser{LocalLauncher: through(t, asNobody), nobody: true})
	})
}

// dir makes an operation's directory for the place.
func (p testUser) dir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "op")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if p.nobody {
		if err := os.Chmod(filepath.Dir(filepath.Dir(dir)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// start starts a command and, at the end of the test, ends whatever is left of it.
func (p testUser) start(t *testing.T, spec Spec) *Process {
	t.Helper()
	dir := p.dir(t)
	t.Cleanup(func() { p.Fence(context.Background(), dir) })
	proc, err := Start(bounded(t), p, dir, spec)
	if err != nil {
		t.Fatal(err)
	}
	return proc
}

func start(t *testing.T, spec Spec) *Process { t.Helper(); return here().start(t, spec) }

// bash is a spec that runs a script.
func bash(t *testing.T, script string) Spec {
	t.Helper()
	return Spec{
		Argv: []string{"bash", "-c", script}, Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"}, Dir: "/",
		MaxOutput: 1 << 20, Mark: Mark("test-"+unique(t), "op"),
	}
}

func unique(t *testing.T) string {
	t.Helper()
	b := make([]byte, 8)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(b)
}

// living are the processes with word in their command line, as far as they run.
func living(t *testing.T, word string) (pids []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if b, err := os.ReadFile(f); err == nil && bytes.Contains(b, []byte(word)) && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never came to be: %s", what)
		}
	}
}

func wait(t *testing.T, p *Process) Exit {
	t.Helper()
	exit, err := p.Wait(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	return exit
}

func output(t *testing.T, p *Process, stream int) string {
	t.Helper()
	b, _, err := p.Output(stream)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func supervisorOf(t *testing.T, p *Process) process.Identity {
	t.Helper()
	v, err := ReadState(p.Dir())
	if err != nil || v.Started == nil {
		t.Fatalf("no supervisor: %+v %v", v, err)
	}
	return v.Started.Supervisor
}

// hasCgroup says whether this operation got a control group: where it did not, some fences cannot be sure.
func hasCgroup(t *testing.T, p *Process) bool {
	t.Helper()
	v, err := ReadState(p.Dir())
	if err != nil || v.Started == nil {
		t.Fatalf("not started: %v", err)
	}
	return v.Started.Cgroup != ""
}

func TestTheEndOfACommandIsRecorded(t *testing.T) {
	for name, want := range map[string]struct {
		argv []string
		code int
	}{
		"0":           {[]string{"true"}, 0},
		"7":           {[]string{"bash", "-c", "exit 7"}, 7},
		"not there":   {[]string{"/nowhere/at-all"}, 127},
		"not in PATH": {[]string{"surely-no-such-program"}, 127},
		"directory":   {[]string{"/etc"}, 126},
		"no binary":   {[]string{"/etc/passwd"}, 126},
		"SIGKILL":     {[]string{"bash", "-c", "kill -9 $$"}, 137},
		"SIGTERM":     {[]string{"bash", "-c", "kill -15 $$"}, 143},
	} {
		t.Run(name, func(t *testing.T) {
			spec := bash(t, "")
			spec.Argv = want.argv
			p := start(t, spec)
			exit := wait(t, p)
			if exit.Code != want.code {
				t.Fatalf("code %d, want %d (%+v)", exit.Code, want.code, exit)
			}
			if could := exit.Error == ""; could != (want.code < 126 || want.code > 128) {
				t.Fatalf("error %q for code %d", exit.Error, exit.Code)
			}
			eventually(t, "the record that nothing is left, and a free lock", func() bool {
				v, err := ReadState(p.Dir())
				return err == nil && !v.Locked && v.FinalFence != nil && v.FinalFence.Sure
			})
		})
	}
}

func TestAWorkingDirectoryThatIsGoneIsAnError(t *testing.T) {
	spec := bash(t, "true")
	spec.Dir = "/nowhere/at-all"
	if exit := wait(t, start(t, spec)); exit.Error == "" || exit.Code != 127 {
		t.Fatalf("%+v", exit)
	}
}

func TestBinaryInputAndOutputStayAsTheyAre(t *testing.T) {
	spec := bash(t, "cat; echo oops >&2")
	spec.Stdin = make([]byte, 300<<10)
	if _, err := rand.Read(spec.Stdin); err != nil {
		t.Fatal(err)
	}
	p := start(t, spec)
	exit := wait(t, p)
	if out := output(t, p, Stdout); out != string(spec.Stdin) || exit.StdoutBytes != int64(len(out)) {
		t.Fatalf("%d bytes came back (%d counted)", len(out), exit.StdoutBytes)
	}
	if got := output(t, p, Stderr); got != "oops\n" {
		t.Fatalf("stderr %q", got)
	}
}

func TestInputThatNobodyReadsIsNoError(t *testing.T) {
	spec := bash(t, "exit 0")
	spec.Stdin = make([]byte, 1<<20)
	if exit := wait(t, start(t, spec)); exit.Code != 0 || exit.Error != "" {
		t.Fatalf("%+v", exit)
	}
}

func TestOutputPastTheLimitIsCountedAndDropped(t *testing.T) {
	const written = 100 << 20
	p := start(t, bash(t, fmt.Sprintf("sleep 1000 & head -c %d /dev/zero", written)))
	exit := wait(t, p)
	if exit.StdoutBytes != written || exit.Code != 0 {
		t.Fatalf("%+v", exit)
	}
	if stored, total, err := p.Output(Stdout); err != nil || len(stored) != 1<<20 || total != written {
		t.Fatalf("stored %d of %d: %v", len(stored), total, err)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", supervisorOf(t, p).PID))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(b), "VmHWM:")
	if kib, err := strconv.Atoi(strings.Fields(after)[0]); err != nil || kib > 64<<10 {
		t.Fatalf("the supervisor took %d KiB: %v", kib, err)
	}
}

func TestTheCommandHasItsEnvironmentAndNothingElse(t *testing.T) {
	t.Setenv("SECRET_OF_THE_WORKER", "x")
	spec := bash(t, `env | sort; grep SigIgn /proc/self/status; cut -d' ' -f5,6 /proc/$$/stat; echo $$`)
	spec.Env = append(spec.Env, "A=1", "A=2", MarkVariable+"=forged")
	l := through(t, `trap "" INT HUP QUIT PIPE TERM USR1; exec 7</etc/passwd 9>/dev/null; exec "$@"`)
	p := testUser{LocalLauncher: l}.start(t, spec)
	wait(t, p)
	got := output(t, p, Stdout)
	for _, bad := range []string{"SECRET", "forged", "A=1"} {
		if strings.Contains(got, bad) {
			t.Errorf("%q is in\n%s", bad, got)
		}
	}
	// 32 and 33 are the C library's own signals: what started the tests may ignore them, and no program of ours can tell.
	got = regexp.MustCompile(`SigIgn:\t0000000[01][08]0000000`).ReplaceAllString(got, "SigIgn:\t0000000000000000")
	lines := strings.Split(strings.TrimSpace(got), "\n")
	pid := lines[len(lines)-1]
	for _, want := range []string{"\nA=2\n", "\n" + MarkVariable + "=" + spec.Mark + "\n", "\nSigIgn:\t0000000000000000\n" + pid + " " + pid + "\n"} {
		if !strings.Contains("\n"+got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	spec = bash(t, "")
	spec.Argv = []string{"ls", "/proc/self/fd"} // which opens one itself
	p = testUser{LocalLauncher: l}.start(t, spec)
	wait(t, p)
	if got := output(t, p, Stdout); got != "0\n1\n2\n3\n" {
		t.Errorf("descriptors:\n%s", got)
	}
}

func TestATimeoutEndsTheWholeTree(t *testing.T) {
	forEachUser(t, func(t *testing.T, at testUser) {
		word := unique(t)
		spec := bash(t, strings.ReplaceAll(`trap '' INT TERM HUP; env -i setsid bash -c 'exec -a W sleep 1001' & (trap '' INT; exec -a W sleep 1002); sleep 1003`, "W", word))
		spec.Timeout, spec.Grace = 300*time.Millisecond, 100*time.Millisecond
		exit := wait(t, at.start(t, spec))
		if !exit.TimedOut || exit.Code != 137 || exit.Signal != 9 {
			t.Fatalf("%+v", exit)
		}
		if left := living(t, word); len(left) > 0 {
			t.Fatalf("%v live after the end was recorded", left)
		}
	})
}

func TestAnInterruptedCommandStopsInItsOwnWay(t *testing.T) {
	word := unique(t)
	spec := bash(t, strings.ReplaceAll(`trap 'echo bye; exit 3' INT; setsid bash -c 'exec -a W sleep 1001' & echo ready; while :; do sleep 0.01; done`, "W", word))
	spec.Grace = limit
	p := start(t, spec)
	eventually(t, "output", func() bool { return output(t, p, Stdout) == "ready\n" })
	if err := p.Interrupt(bounded(t)); err != nil {
		t.Fatal(err)
	}
	exit := wait(t, p)
	if !exit.Interrupted || exit.TimedOut || exit.Code != 3 || output(t, p, Stdout) != "ready\nbye\n" {
		t.Fatalf("%+v %q", exit, output(t, p, Stdout))
	}
	if left := living(t, word); len(left) > 0 {
		t.Fatalf("%v live", left)
	}
}

func TestABackgroundProcessDelaysNothingAndLivesUntilTheFence(t *testing.T) {
	forEachUser(t, func(t *testing.T, at testUser) {
		word := unique(t)
		p := at.start(t, bash(t, strings.ReplaceAll(`bash -c 'while :; do echo noise; sleep 0.002; done' W & echo mine`, "W", word)))
		exit := wait(t, p)
		if exit.Code != 0 || exit.Interrupted {
			t.Fatalf("%+v", exit)
		}
		first := output(t, p, Stdout)
		eventually(t, "more output of the background process", func() bool {
			st, err := os.Stat(filepath.Join(p.Dir(), "stdout"))
			return err == nil && st.Size() > exit.StdoutBytes
		})
		if again := output(t, p, Stdout); again != first || !strings.Contains(first, "mine\n") {
			t.Fatalf("the output changed after the end: %q, then %q", first, again)
		}
		if err := p.Interrupt(bounded(t)); err != nil || len(living(t, word)) == 0 {
			t.Fatalf("an interrupt after the end must not reach it (%v)", err)
		}
		v, err := ReadState(p.Dir())
		if err != nil || v.Status != Ended || !v.Locked {
			t.Fatalf("%+v %v", v, err)
		}
		if f := p.Fence(bounded(t)); !f.Sure || len(living(t, word)) > 0 {
			t.Fatalf("%+v, %v live", f, living(t, word))
		}
	})
}

// daemons leave the process group and the session, clear their environment, ignore what they can, and start themselves anew.
const daemons = `
env -i setsid bash -c 'exec -a W sleep 1001' &
env -i setsid bash -c 'trap "" INT TERM HUP; (env -i setsid bash -c "exec -a W sleep 1002" &) ; exec -a W sleep 1003' &
env -i setsid bash -c 'respawn() { ( sleep 0.01; respawn W ) & exit; }; respawn W' W &
exec -a W sleep 1004 &
`

func TestDaemonsAreFenced(t *testing.T) {
	forEachUser(t, func(t *testing.T, at testUser) {
		for _, ended := range []bool{true, false} {
			word := unique(t)
			script := strings.ReplaceAll(daemons, "W", word)
			if !ended {
				script += "\nsleep 1005"
			}
			p := at.start(t, bash(t, script))
			eventually(t, "all daemons", func() bool { return len(living(t, word)) >= 5 })
			if ended {
				wait(t, p)
			}
			f := p.Fence(bounded(t))
			if !f.Sure || f.How == HowMarks {
				t.Errorf("%+v", f)
			}
			if left := living(t, word); len(left) > 0 {
				t.Errorf("%v live", left)
			}
			if exit := wait(t, p); exit.Interrupted == ended {
				t.Errorf("%+v", exit)
			}
			if again := p.Fence(bounded(t)); !again.Sure {
				t.Errorf("a second fence: %+v", again)
			}
		}
	})
}

func TestASupervisorThatIsKilled(t *testing.T) {
	forEachUser(t, func(t *testing.T, at testUser) {
		word := unique(t)
		p := at.start(t, bash(t, strings.ReplaceAll(daemons, "W", word)+"\nsleep 1005"))
		eventually(t, "all daemons", func() bool { return len(living(t, word)) >= 5 })
		t.Cleanup(func() {
			eventually(t, "the end of what the fence could not be sure of", func() bool {
				pids := living(t, word)
				for _, pid := range pids {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
				return len(pids) == 0
			})
		})
		cgroup := hasCgroup(t, p)
		if err := process.Signal(supervisorOf(t, p), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_, err := p.Wait(bounded(t))
		if !errors.Is(err, ErrLost) || !failure.Is(err, failure.OutcomeUnknown) {
			t.Fatalf("%v", err)
		}
		if st, err := Abandon(p.Dir()); err != nil || st != Lost {
			t.Fatalf("%v %v", st, err)
		}
		f := p.Fence(bounded(t))
		switch {
		case cgroup && (!f.Sure || f.How != HowCgroup || len(living(t, word)) > 0):
			t.Fatalf("%+v, %v live", f, living(t, word))
		case !cgroup && (f.Sure || f.Why == ""):
			t.Fatalf("nothing can be sure here: %+v", f)
		}
	})
}

func TestASupervisorThatIsStoppedIsFencedAllTheSame(t *testing.T) {
	p := start(t, bash(t, "sleep 1000"))
	if err := process.Signal(supervisorOf(t, p), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if f := p.Fence(bounded(t)); !f.Sure {
		t.Fatalf("%+v", f)
	}
}

// A command can remove the records of its own operation. It is not taken for one that was never started.
func TestACommandThatRemovesItsRecordsIsEnded(t *testing.T) {
	forEachUser(t, func(t *testing.T, at testUser) {
		for name, remove := range map[string]string{"some": "rm $DIR/lock $DIR/started", "all": "rm -r $DIR"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				word, dir := unique(t), at.dir(t)
				spec := bash(t, "env -i setsid bash -c 'exec -a "+word+" sleep 1000' & sleep 0.1; "+strings.ReplaceAll(remove, "$DIR", dir)+"; exec env -i bash -c 'exec -a "+word+" sleep 1001'")
				p, err := Start(bounded(t), at, dir, spec)
				if err != nil {
					t.Fatal(err)
				}
				eventually(t, "both without a mark and without records", func() bool {
					_, err := os.Lstat(dir + "/started")
					return len(living(t, word)) == 2 && err != nil
				})
				session := filepath.Base(filepath.Dir(filepath.Dir(dir)))
				if found, err := FindRemaining(session); err != nil || !strings.Contains(strings.Join(found, " "), "supervisor") {
					t.Errorf("%v %v", found, err)
				}
				if f := p.Fence(bounded(t)); f.Sure || f.Why == "" || len(f.Survivors) > 0 {
					t.Errorf("%+v", f)
				}
				if pids := living(t, word); len(pids) > 0 {
					t.Errorf("%v live", pids)
				}
				if found, err := FindRemaining(session); err != nil || len(found) > 0 {
					t.Errorf("%v %v", found, err)
				}
				if f := p.Fence(bounded(t)); !f.Sure {
					t.Errorf("a second fence: %+v", f)
				}
			})
		}
	})
}

func TestAfterAbandonASupervisorThatComesLateRunsNothing(t *testing.T) {
	dir := here().dir(t)
	ran := filepath.Join(t.TempDir(), "ran")
	for range 2 {
		if st, err := Abandon(dir); err != nil || st != NotStarted {
			t.Fatalf("%v %v", st, err)
		}
	}
	_, err := Start(bounded(t), here(), dir, bash(t, "touch "+ran))
	if !errors.Is(err, ErrRefused) {
		t.Fatalf("%v", err)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Fatal("it ran")
	}
	if f := here().Fence(bounded(t), dir); !f.Sure || f.How != HowNothing {
		t.Fatalf("%+v", f)
	}
}

func TestAMissingDirectoryIsNothingStarted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "never")
	if st, err := Abandon(dir); err != nil || st != NotStarted {
		t.Fatalf("%v %v", st, err)
	}
	if f := here().Fence(bounded(t), dir); !f.Sure {
		t.Fatalf("%+v", f)
	}
	if _, err := ReadState(dir); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("%v", err)
	}
}

func TestADirectoryServesOneAttempt(t *testing.T) {
	p := start(t, bash(t, "sleep 1000"))
	if st, err := Abandon(p.Dir()); err != nil || st != Running {
		t.Fatalf("%v %v", st, err)
	}
	if _, err := Start(bounded(t), here(), p.Dir(), bash(t, "true")); !errors.Is(err, ErrRefused) {
		t.Fatalf("a second supervisor beside the first: %v", err)
	}
	p.Fence(bounded(t))
	if _, err := Start(bounded(t), here(), p.Dir(), bash(t, "true")); !errors.Is(err, ErrRefused) {
		t.Fatalf("a second supervisor after the first: %v", err)
	}
	if st, err := Abandon(p.Dir()); err != nil || st != Ended {
		t.Fatalf("%v %v", st, err)
	}
}

func TestASpecThatIsNotWholeRunsNothing(t *testing.T) {
	for _, in := range []string{"", "{", `{"argv":["touch","/tmp/x"],"dir":"/","mark":"m"`, `{"argv":[],"dir":"/","mark":"m"}`, `{"argv":["true"],"dir":"/","mark":"m"} x`, "null"} {
		dir := here().dir(t)
		cmd := exec.Command(system.Executable(), Argument, dir)
		cmd.Stdin = strings.NewReader(in)
		if out, err := cmd.CombinedOutput(); err == nil {
			t.Errorf("%q was accepted: %s", in, out)
		}
		if names, _ := os.ReadDir(dir); len(names) > 0 {
			t.Errorf("%q left %v", in, names)
		}
	}
}

func TestAWorkerThatComesBackFollowsFromWhereItWas(t *testing.T) {
	p := start(t, bash(t, `for i in $(seq 200); do echo $i; [ $((i % 20)) = 0 ] && sleep 0.01; done; echo end >&2`))
	want := ""
	for i := 1; i <= 200; i++ {
		want += fmt.Sprintln(i)
	}
	var got, errs strings.Builder
	ctx, leave := context.WithCancel(bounded(t))
	err := p.Follow(ctx, Offsets{}, func(stream int, chunk []byte, offset int64) {
		if stream != Stdout || offset != int64(got.Len()) {
			t.Errorf("stream %d at %d, want 1 at %d", stream, offset, got.Len())
		}
		got.Write(chunk)
		leave()
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	again := Attach(here(), p.Dir(), 1<<20)
	err = again.Follow(bounded(t), Offsets{Stdout: int64(got.Len())}, func(stream int, chunk []byte, _ int64) {
		if stream == Stdout {
			got.Write(chunk)
		} else {
			errs.Write(chunk)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != want || errs.String() != "end\n" {
		t.Fatalf("%q %q", got.String(), errs.String())
	}
}

func TestAStrangerWithARecordedIDIsNeverTouched(t *testing.T) {
	stranger := exec.Command("sleep", "1000")
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stranger.Process.Kill(); _, _ = stranger.Process.Wait() })
	id, err := process.IdentityOf(stranger.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	id.StartTime--
	for _, held := range []bool{false, true} {
		dir := here().dir(t)
		r, err := openRecords(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer r.close()
		if err := r.write(startedName, StartRecord{Supervisor: id, Mark: "s/o", NoCgroup: "none"}); err != nil {
			t.Fatal(err)
		}
		ctx := bounded(t)
		if held {
			l, err := r.acquireLock("a stranger")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Release()
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
		}
		if f := here().Fence(ctx, dir); f.Sure {
			t.Errorf("held %t: %+v", held, f)
		}
		if process.Probe(process.Identity{PID: id.PID, StartTime: id.StartTime + 1, BootID: id.BootID, PIDNS: id.PIDNS}) != process.Alive {
			t.Fatal("the stranger was ended")
		}
	}
}

func TestAnotherBootIsAbsence(t *testing.T) {
	dir := here().dir(t)
	r, err := openRecords(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	if err := r.write(startedName, StartRecord{Supervisor: process.Identity{PID: os.Getpid(), StartTime: 1, BootID: "another", PIDNS: "pid:[1]"}, Mark: "s/o"}); err != nil {
		t.Fatal(err)
	}
	if f := here().Fence(bounded(t), dir); !f.Sure || f.How != HowBoot {
		t.Fatalf("%+v", f)
	}
}

func TestAForgedControlGroupIsNotEnded(t *testing.T) {
	self, err := process.Self()
	if err != nil {
		t.Fatal(err)
	}
	self.StartTime--
	dir := here().dir(t)
	r, err := openRecords(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	if err := r.write(startedName, StartRecord{Supervisor: self, Mark: "s/o", Cgroup: "/sys/fs/cgroup/unified"}); err != nil {
		t.Fatal(err)
	}
	if f := here().Fence(bounded(t), dir); f.Sure {
		t.Fatalf("%+v", f)
	}
}

// In a sandbox the agent can write where the records are.
func TestPlantedRecordsAreNotFollowed(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{lockName, startedName, exitName, "stdout"} {
		t.Run(name, func(t *testing.T) {
			dir := here().dir(t)
			if err := os.Symlink(victim, filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
			if name == "stdout" {
				if b, _, err := Attach(here(), dir, 1<<20).Output(Stdout); err == nil {
					t.Errorf("read %q through a link", b)
				}
			} else if _, err := Abandon(dir); err == nil {
				t.Error("a link was followed")
			}
			if b, err := os.ReadFile(victim); err != nil || string(b) != "secret" {
				t.Errorf("the file behind the link is now %q", b)
			}
		})
	}
}

func TestAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=128k,mode=0700", "none", dir).CombinedOutput(); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
	op := filepath.Join(dir, "op")
	t.Cleanup(func() { here().Fence(context.Background(), op) })
	p, err := Start(bounded(t), here(), op, bash(t, "head -c 1000000 /dev/zero; exit 5"))
	if err != nil {
		t.Fatal(err)
	}
	exit := wait(t, p)
	if exit.Code != 5 || exit.StdoutBytes != 1000000 || !strings.Contains(exit.Incomplete, "no space") {
		t.Fatalf("%+v", exit)
	}
	if _, _, err := p.Output(Stdout); err == nil {
		t.Fatal("output that is not whole was taken for it")
	}
	eventually(t, "the record that nothing is left", func() bool {
		v, err := ReadState(op)
		return err == nil && v.FinalFence != nil && !v.Locked
	})
	next := filepath.Join(dir, "next")
	if _, err := Start(bounded(t), here(), next, bash(t, "true")); !errors.Is(err, ErrRefused) {
		t.Fatalf("without space for its records nothing may start: %v", err)
	}
}

func TestALaunchThatIsCancelledLeavesADecision(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	dir := here().dir(t)
	t.Cleanup(func() { here().Fence(context.Background(), dir) })
	_, err := Start(ctx, here(), dir, bash(t, "sleep 1000"))
	st, aerr := Abandon(dir)
	if aerr != nil {
		t.Fatal(aerr)
	}
	if started := st == Running; started != (err == nil) && !failure.Is(err, failure.OutcomeUnknown) {
		t.Fatalf("%v after %v", st, err)
	}
}
