package openshell

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/testkit/gateway"
)

// appears waits for a file of the workspace.
func (b *boxes) appears(name string) {
	b.t.Helper()
	eventually(b.t, name+" appears", func() bool {
		_, err := os.Lstat(filepath.Join(b.w.dir, "work", name))
		return err == nil
	})
}

// The proof that a sandbox has this host's files is made before an agent gets there, which can take it away: the session goes on.
func TestSandboxWhoseProofIsTakenAway(t *testing.T) {
	b := newBoxes(t)
	in, sb := b.open(false)
	for i, script := range []string{"rm /sandbox/ops/ready", "mkdir -p /sandbox/ops/ready/x /sandbox/ops/.new-ready/y", "rm -r /sandbox/ops/ready; mkfifo /sandbox/ops/ready"} {
		if said, code := b.run(in, sb, string(rune('a'+i)), script); code != 0 {
			t.Fatalf("%s: %q %d", script, said, code)
		}
		b = b.another()
		b.Provider.w.ready = 15 * time.Second
		var err error
		if sb, err = b.Enter(bounded(t), in, coding); err != nil {
			t.Fatalf("%s: %v", script, err)
		}
	}
	b.w.g.Stop() // the main process starts again among it
	b.w.g.Start()
	sb, err := b.another().Enter(bounded(t), in, coding)
	must(t, err)
	if said, code := b.run(in, sb, "last", "echo well"); said != "well\n" || code != 0 {
		t.Errorf("%q %d", said, code)
	}
}

// That a supervisor was started may not have been heard of, by a worker that was killed as well: what it ran was there.
func TestSandboxWhoseProofIsTakenAwayUnheard(t *testing.T) {
	b := newBoxes(t)
	in, sb := b.open(false)
	b.w.g.Fault("ExecSandbox", gateway.LoseReply())
	_ = sb.Launcher().Launch(bounded(t), ops(t, in, "1"), specOf(in, sb, "1", "bash", "-c", "rm /sandbox/ops/ready; echo >gone"))
	b.appears("gone")
	b = b.another()
	b.Provider.w.ready = 5 * time.Second
	if _, err := b.Enter(bounded(t), in, coding); err != nil {
		t.Error(err)
	}
}

// The gateway runs all commands under a login shell: what an agent writes is never what that reads.
func TestSandboxWithProfilesOfAnAgent(t *testing.T) {
	b := newBoxes(t)
	in, sb := b.open(false)
	script := `for d in /sandbox /sandbox/home /sandbox/work /etc/profile.d; do for f in .bash_profile .bash_login .profile .bashrc .bash_logout x.sh; do
(echo 'touch /sandbox/work/owned; exit 99' >$d/$f) 2>/dev/null; done; done
chmod 0777 /sandbox; mv /sandbox/home /sandbox/other 2>/dev/null && echo moved; ln -s /sandbox/home/.profile /sandbox/.profile 2>/dev/null && echo linked; ls -A /sandbox`
	if said, code := b.run(in, sb, "1", script); said != "home\nops\nwork\n" || code != 0 {
		t.Errorf("%q %d", said, code)
	}
	again, err := b.another().Enter(bounded(t), in, coding)
	must(t, err)
	if said, code := b.run(in, again, "2", "echo well; env | grep -c -e BASH_ENV -e LD_PRELOAD"); said != "well\n0\n" || code != 1 {
		t.Errorf("%q %d", said, code)
	}
	if _, err := os.Lstat(filepath.Join(b.w.dir, "work", "owned")); err == nil {
		t.Error("a profile of the agent's was read")
	}
}

// Everything that laufwerk starts in the sandbox is stopped by the agent: it comes to an end all the same, and tells what the
// matter may be; where no supervisor comes up, the sandbox goes.
func TestSandboxInWhichAllElseIsStopped(t *testing.T) {
	b := newBoxes(t)
	b.Provider.w.patience = 3 * time.Second
	in, sb := b.open(false)
	b.start(in, sb, "1", "echo begun >begun; "+
		`env -i setsid sh -c 'while :; do for p in /proc/[0-9]*; do p=${p#/proc/}; [ $p = 1 ] || [ $p = $$ ] || kill -STOP $p; done; done' >/dev/null 2>&1 & sleep 1000`)
	b.appears("begun")
	eventually(t, "it meets laufwerk's own", func() bool {
		err := sb.PutFile(bounded(t), "codex", agent.File{Path: "token", Content: []byte("secret"), Mode: 0o600, Secret: true})
		return err != nil && failure.Is(err, failure.NotReady) && strings.Contains(err.Error(), "did not end within 3s: another process there may prevent it")
	})
	n := 1
	eventually(t, "the session is given up", func() bool {
		n++ // one that is quicker comes up
		name := strconv.Itoa(n)
		return failure.Is(sb.Launcher().Launch(bounded(t), ops(t, in, name), specOf(in, sb, name, "true")), failure.SessionLost)
	})
	if b.containers(in) != 0 {
		t.Error("it is there")
	}
}

// Whatever the agent makes of its records, waiting ends, and so does what it ran.
func TestSandboxWhoseRecordsAreChanged(t *testing.T) {
	b := newBoxes(t)
	for name, script := range map[string]string{
		"taken-away": "cd /; mv /sandbox/ops/taken-away /sandbox/home/; kill -9 $PPID",
		"closed":     "chmod 000 /sandbox/ops/closed /sandbox/ops; kill -9 $PPID",
		"link":       "cd /; mv /sandbox/ops/link /tmp/; ln -s /etc /sandbox/ops/link; kill -9 $PPID",
		"endless":    "rm stdout; truncate -s 1000G stdout; echo '{\"code\":0,\"stdoutBytes\":1000000000000}' >e; mv e exit",
		"gone":       "echo '{\"sure\":false}' >gone; kill -9 $PPID",
		"fifos":      "for f in *; do rm -f $f; mkfifo $f; done; mkfifo exit gone; kill -9 $PPID",
	} {
		in, sb := b.open(false)
		p := b.start(in, sb, name, "cd /sandbox/ops/"+name+"; env -i setsid sh -c 'while :; do date >>/sandbox/work/"+name+"; sleep 0.1; done' >/dev/null 2>&1 & while [ ! -e /sandbox/work/"+name+" ]; do sleep 0.05; done; "+script+"; sleep 1000")
		ctx := bounded(t)
		if _, err := p.Wait(ctx); ctx.Err() != nil {
			t.Errorf("%s: %v", name, err)
		}
		if out, _, err := p.Output(supervise.Stdout); err == nil && len(out) > 1<<20 {
			t.Errorf("%s: %d bytes", name, len(out))
		}
		if f := p.Fence(bounded(t)); !f.Sure {
			t.Errorf("%s: %+v", name, f)
		}
		before, _ := os.ReadFile(filepath.Join(b.w.dir, "work", name))
		time.Sleep(300 * time.Millisecond)
		if after, _ := os.ReadFile(filepath.Join(b.w.dir, "work", name)); len(after) != len(before) {
			t.Errorf("%s: it still writes", name)
		}
	}
}

// What an agent leaves everywhere that it can write is removed with the session, and nothing that it points to.
func TestSandboxThatIsLeftInAMess(t *testing.T) {
	b := newBoxes(t)
	in, sb := b.open(false)
	outside := filepath.Join(b.w.dir, "outside")
	must(t, os.MkdirAll(filepath.Join(outside, "kept"), 0o700))
	b.start(in, sb, "mess", `set -e
for d in /sandbox/home /sandbox/ops; do
  cd $d
  ln -s `+outside+` out; ln -s / root; mkfifo fifo; truncate -s 1000G big; cp /bin/ls setuid; chmod 6777 setuid
  mkdir -p closed/in/it; touch closed/in/it/file; chmod 000 closed/in/it closed/in closed
  touch $(printf %0255d 0) "$(printf 'a
b\033[31m\377')"
  deep=$(printf 'd/%.0s' $(seq 1500)); mkdir -p a/$deep b/$deep; mv a b/$deep
done
chmod 000 /sandbox/home /sandbox/ops; touch /sandbox/work/done`)
	b.appears("done")
	b = b.another()
	_, err := b.Enter(bounded(t), in, coding)
	must(t, err)
	if r := b.Delete(bounded(t), in); r.Outcome != resource.Done {
		t.Errorf("%+v", r)
	}
	if o := b.Observe(bounded(t), in); o.Presence != resource.Absent {
		t.Errorf("%+v", o)
	}
	if _, err := os.Lstat(filepath.Join(outside, "kept")); err != nil {
		t.Error(err)
	}
}

// What a gateway says of a sandbox goes into one line of bounded length, whatever it is.
func TestConditions(t *testing.T) {
	t.Parallel()
	said := func(phase wire.SandboxPhase, of ...*wire.SandboxCondition) string {
		return condition(&wire.Sandbox{Status: &wire.SandboxStatus{Phase: phase, Conditions: of}})
	}
	long := said(wire.SandboxPhase_SANDBOX_PHASE_ERROR, &wire.SandboxCondition{Reason: "ContainerExited", Message: "\x1b[31m\nlog: " + strings.Repeat("é", 1<<20)})
	if len(long) > 1100 || strings.ContainsAny(long, "\x1b\n") || !strings.HasPrefix(long, "ERROR, ContainerExited: ") {
		t.Errorf("%d bytes: %.100q", len(long), long)
	}
	if got := said(99); got != "99" {
		t.Errorf("%q", got)
	}
	if got := condition(nil); got != "UNSPECIFIED" {
		t.Errorf("%q", got)
	}
}
