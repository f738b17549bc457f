package guest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"

	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/system/process"
)

// withoutPidfds is a filter as some sandboxes have it: a process cannot be pinned there.
const withoutPidfds = `{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[
	{"names":["pidfd_open","pidfd_send_signal","pidfd_getfd"],"action":"SCMP_ACT_ERRNO","errnoRet":1}]}`

// newLockedFile is a container whose first process is a stranger's, and whose main process is ours, with the agent's user.
func newLockedFile(t *testing.T) *box {
	t.Helper()
	return newBoxOf(t, "busybox", func(h *container.HostConfig) { h.SecurityOpt = append(h.SecurityOpt, "seccomp="+withoutPidfds) },
		func(ready, nonce string, _ ...string) []string {
			return append([]string{"/bin/sh", "-c", `"$@"; exit $?`, "sh"}, MainProcess(ready, nonce)...)
		})
}

// hit sends a signal to the process of ours that does the named thing.
const hit = `hit() { for p in /proc/[0-9]*; do case "$(tr '\0' ' ' <$p/cmdline)" in "` + Binary + " " + Argument + ` $2 "*) kill $1 ${p#/proc/}; return;; esac; done; echo no $2; return 1; }
`

func TestNoSignalThatCanBeIgnoredEndsTheMainProcess(t *testing.T) {
	t.Parallel()
	b := newLockedFile(t)
	_, out := b.exec("", "sh", "-c", hit+`i=1; while [ $i -le 31 ]; do [ $i = 9 ] || [ $i = 19 ] || hit -$i hold; i=$((i+1)); done; hit -0 hold && echo lives`)
	if seen, err := Observe(b.ops+"/ready", b.nonce); seen != Locked || err != nil || !b.running() || out != "lives\n" {
		t.Errorf("%v %v %s", seen, err, out)
	}
	b.exec("", "sh", "-c", hit+"hit -9 hold") // that is no accident
	eventually(t, "its lock is free", func() bool { seen, _ := Observe(b.ops+"/ready", b.nonce); return seen == Seen })
}

// Where a filter refuses pidfds, a supervisor is found by its identity and signalled by its id, and ends its own children by
// theirs.
func TestASupervisorWithoutPidfds(t *testing.T) {
	t.Parallel()
	b := newLockedFile(t)
	if code, out := b.exec("", "sh", "-c", "grep -c '^Seccomp:.2' /proc/self/status"); code != 0 {
		t.Fatalf("there is no filter: %s", out)
	}
	proc, err := supervise.Start(bounded(t), b, b.dir("op"), run("sh", "-c", "trap 'echo asked; exit 7' INT; env -i setsid sh -c 'sleep 1001; :' & echo begin; while :; do sleep 0.1; done"))
	must(t, err)
	eventually(t, "it runs", func() bool { out, _, _ := proc.Output(supervise.Stdout); return string(out) == "begin\n" })
	must(t, b.Interrupt(bounded(t), proc.Dir()))
	if exit := wait(t, proc); exit.Code != 7 || !exit.Interrupted {
		t.Errorf("%+v", exit)
	}
	if f := proc.Fence(bounded(t)); !f.Sure || f.How != supervise.HowSubreaper {
		t.Errorf("%+v", f)
	}
	if err := b.Interrupt(bounded(t), proc.Dir()); !errors.Is(err, process.ErrGone) {
		t.Errorf("after its end: %v", err)
	}
	stubborn, err := supervise.Start(bounded(t), b, b.dir("stubborn"), run("sh", "-c", "trap '' INT TERM HUP; (setsid sh -c 'setsid sleep 1001 & sleep 1001' &); echo begin; while :; do sleep 0.1; done"))
	must(t, err)
	eventually(t, "it runs", func() bool { out, _, _ := stubborn.Output(supervise.Stdout); return string(out) == "begin\n" })
	if f := stubborn.Fence(bounded(t)); !f.Sure || f.How != supervise.HowSubreaper {
		t.Errorf("%+v", f)
	}
	if _, out := b.exec("", "ps"); strings.Contains(out, "sleep 1001") {
		t.Errorf("it still runs: %s", out)
	}
	// A killed one leaves what cannot be found for certain.
	killed, err := supervise.Start(bounded(t), b, b.dir("killed"), run("sh", "-c", "setsid sleep 1002 & echo begin; sleep 1003"))
	must(t, err)
	eventually(t, "it runs", func() bool { out, _, _ := killed.Output(supervise.Stdout); return string(out) == "begin\n" })
	b.exec("", "sh", "-c", hit+"hit -9 supervise")
	if _, err := killed.Wait(bounded(t)); !errors.Is(err, supervise.ErrLost) {
		t.Fatalf("%v", err)
	}
	if f := killed.Fence(bounded(t)); f.Sure || f.How != supervise.HowMarks || !strings.Contains(f.Why, "cannot be read") {
		t.Errorf("%+v", f)
	}
}

func TestTheEnvironmentInside(t *testing.T) {
	t.Parallel()
	b := newLockedFile(t)
	code, out := b.exec("", "env", "-i", "HTTPS_PROXY=http://10.0.0.1:3128", "EMPTY=", "X=a=b\nc", Binary, Argument, "environment")
	got, err := ReadEnvironment([]byte(out))
	if code != 0 || err != nil || !slices.Equal(got, []string{"EMPTY=", "HTTPS_PROXY=http://10.0.0.1:3128", "X=a=b\nc"}) {
		t.Errorf("%d %q %v", code, out, err)
	}
	code, out = b.exec("", "sh", "-c", `x=0123456789abcdef; x=$x$x$x$x$x$x$x$x; x=$x$x$x$x$x$x$x$x; x=$x$x$x$x$x$x$x$x; A=$x B=$x C=$x D=$x E=$x F=$x G=$x H=$x exec `+strings.Join(Environment(), " "))
	if code != 1 || !strings.Contains(out, "at most 61440 can be reported") {
		t.Errorf("%d %.300q", code, out)
	}
	if _, err := ReadEnvironment([]byte("login banner\n{}")); err == nil {
		t.Error("anything is an answer")
	}
}
