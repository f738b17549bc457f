package gateway

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

const uid, gid = 1234, 1235

// boxed is a sandbox with a policy that was seen to work, and one writable directory of this host.
func boxed(t *testing.T, dir string, change func(r *wire.CreateSandboxRequest)) func(r *wire.CreateSandboxRequest) {
	t.Helper()
	return func(r *wire.CreateSandboxRequest) {
		r.Spec.Template.Image = engine.Base
		r.Spec.Template.DriverConfig = object(t, map[string]any{"docker": map[string]any{"mounts": []any{
			map[string]any{"type": "bind", "source": dir, "target": "/sandbox/work", "read_only": false},
		}}})
		r.Spec.Policy = &wire.SandboxPolicy{
			Version: 1, Landlock: &wire.LandlockPolicy{Compatibility: "hard_requirement"},
			Process: &wire.ProcessPolicy{RunAsUser: fmt.Sprint(uid), RunAsGroup: fmt.Sprint(gid)},
			Filesystem: &wire.FilesystemPolicy{
				ReadOnly:  []string{"/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/opt", "/proc", "/sandbox", "/dev/urandom", "/dev/random", "/dev/zero", "/dev/full"},
				ReadWrite: []string{"/tmp", "/dev/null", "/dev/shm", "/dev/tty", "/dev/pts", "/sandbox/work"},
			},
		}
		if change != nil {
			change(r)
		}
	}
}

// shared is a directory that the sandbox's user has.
func shared(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "work")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if os.Getuid() == 0 {
		must(t, os.Chown(dir, uid, gid))
	} else {
		must(t, os.Chmod(dir, 0o777)) //nolint:gosec // another user's files come there
	}
	return dir
}

func (c consumer) sh(id, script string) (int, string) {
	c.t.Helper()
	code, stdout, stderr, err := c.exec(&wire.ExecSandboxRequest{SandboxId: id, Command: []string{"bash", "-c", script}})
	must(c.t, err)
	return code, stdout + stderr
}

func TestWhatASandboxIs(t *testing.T) {
	g := Containers(t, Options{})
	c, dir := dial(t, g), shared(t)
	began := time.Now()
	s := c.ready("one", boxed(t, dir, func(r *wire.CreateSandboxRequest) {
		r.Spec.Template.Labels = map[string]string{"of": "tests"}
		r.Spec.Template.Resources = object(t, map[string]any{"limits": map[string]any{"cpu": "1500m", "memory": "268435456"}})
		r.Spec.Environment = map[string]string{"GIVEN": "to all"}
	}))
	t.Logf("READY after %v", time.Since(began).Round(time.Millisecond))
	id := s.GetMetadata().GetId()
	list := engine.Containers(t, g.Engine(), "openshell.ai/sandbox-id="+id)
	if len(list) != 1 || list[0].Labels["of"] != "tests" || list[0].Labels["openshell.ai/sandbox-name"] != "one" || list[0].State != running {
		t.Fatalf("%+v", list)
	}
	got, err := engine.Client(t, g.Engine()).ContainerInspect(bounded(t), list[0].ID)
	must(t, err)
	if h := got.HostConfig; h.NanoCPUs != 1500000000 || h.Memory != 268435456 || h.MemorySwap != 536870912 || *h.PidsLimit != 2048 {
		t.Errorf("%+v", h.Resources)
	}
	for _, at := range []struct {
		script string
		code   int
		want   string
	}{
		{"id", 0, "uid=1234 gid=1235 groups=1235,0(root)\n"},
		{"echo $HOME $USER $GIVEN $OPENSHELL_SANDBOX $PWD", 0, "/sandbox 1234 to all 1 /sandbox\n"},
		{"grep -E 'CapEff|CapBnd|NoNewPrivs|Seccomp:' /proc/self/status | tr -d '\\t\\n'", 0, "CapEff:0000000000000000CapBnd:0000000000000000NoNewPrivs:1Seccomp:2"},
		{"stat -c %u:%g /sandbox", 0, "1234:1235\n"},
		{"echo x >/sandbox/new", 1, "bash: line 1: /sandbox/new: Permission denied\n"},
		{"ls /root /var", 2, "ls: cannot open directory '/root': Permission denied\nls: cannot open directory '/var': Permission denied\n"},
		{"echo hello >/sandbox/work/file; cat /sandbox/work/file", 0, "hello\n"},
		{"exit 7", 7, ""},
		{"kill -9 $$", 1, ""},
		{"nosuch", 127, "bash: line 1: nosuch: command not found\n"},
	} {
		if code, out := c.sh(id, at.script); code != at.code || out != at.want {
			t.Errorf("%s: %d %q; want %d %q", at.script, code, out, at.code, at.want)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(b) != "hello\n" {
		t.Errorf("%q %v", b, err)
	}
	args := []string{"printf", "<%s>", "a b", "", "$x", "*", `'"\`, "line\nbreak"}
	code, out, _, err := c.exec(&wire.ExecSandboxRequest{SandboxId: id, Command: args, Workdir: "/tmp"})
	if want := "<" + strings.Join(args[2:], "><") + ">"; err != nil || code != 0 || out != want {
		t.Errorf("%d %q %v; want %q", code, out, err, want)
	}
	code, _, stderr, err := c.exec(&wire.ExecSandboxRequest{SandboxId: id, Command: []string{"true"}, Workdir: "/nosuch"})
	if err != nil || code != 1 || !strings.Contains(stderr, "cd: /nosuch: No such file or directory") {
		t.Errorf("%d %q %v", code, stderr, err)
	}
	stdin := strings.Repeat("0123456789abcdef", 65000)
	code, out, _, err = c.exec(&wire.ExecSandboxRequest{SandboxId: id, Command: []string{"sh", "-c", "wc -c; echo $K"}, Stdin: []byte(stdin), Environment: map[string]string{"K": "a 'b'"}})
	if err != nil || code != 0 || out != "1040000\na 'b'\n" {
		t.Errorf("%d %q %v", code, out, err)
	}
	if !c.delete("one") {
		t.Error("deleted is false")
	}
	c.gone("one")
	if list := engine.Containers(t, g.Engine(), "openshell.ai/sandbox-id="+id); len(list) > 0 {
		t.Errorf("%+v", list)
	}
}

// What a command has begun goes on when nobody waits for it any more, and later ones can end it.
func TestWhatRunsOn(t *testing.T) {
	c, dir := dial(t, Containers(t, Options{})), shared(t)
	id := c.ready("one", boxed(t, dir, nil)).GetMetadata().GetId()
	code, _, _, err := c.exec(&wire.ExecSandboxRequest{SandboxId: id, Command: []string{"bash", "-c", "echo $$ >/sandbox/work/pid; exec sleep 1001"}, TimeoutSeconds: 1})
	if err != nil || code != 124 {
		t.Errorf("%d %v", code, err)
	}
	ctx, cancel := context.WithCancel(bounded(t))
	stream, err := c.ExecSandbox(ctx, &wire.ExecSandboxRequest{SandboxId: id, Command: []string{"bash", "-c", "echo began; exec sleep 1002"}})
	must(t, err)
	_, err = stream.Recv()
	must(t, err)
	cancel()
	running := func(name string) bool { _, out := c.sh(id, "pgrep -f '^"+name+"' || :"); return out != "" }
	if !running("sleep 1001") || !running("sleep 1002") {
		t.Error("a command ended with its client")
	}
	if code, out := c.sh(id, "kill -TERM -- -$(cat /sandbox/work/pid)"); code != 0 {
		t.Errorf("%d %s", code, out)
	}
	eventually(t, "it has ended", func() bool { return !running("sleep 1001") })
	if code, out := c.sh(id, "cat /proc/$(pgrep -f '^sleep 1002')/environ"); code == 0 {
		t.Errorf("another domain's environment: %s", out)
	}
	// Those that a command leaves behind with its output are waited for a moment.
	if code, out := c.sh(id, "sleep 1003 & (sleep 0.1; echo theirs) & echo mine"); code != 0 || out != "mine\ntheirs\n" {
		t.Errorf("%d %q", code, out)
	}
}

func TestTheEndOfTheMainProcess(t *testing.T) {
	c, dir := dial(t, Containers(t, Options{})), shared(t)
	id := c.ready("one", boxed(t, dir, nil)).GetMetadata().GetId()
	_, _, _, _ = c.exec(&wire.ExecSandboxRequest{SandboxId: id, Command: []string{"pkill", "-f", "[s]leep infinity"}}) // it may take its own stream with it
	var s *wire.Sandbox
	eventually(t, "ERROR", func() bool {
		s, _ = c.get("one")
		return s.GetStatus().GetPhase() == wire.SandboxPhase_SANDBOX_PHASE_ERROR
	})
	if reason(s) != "MainProcessExited" || s.GetStatus().GetExitCode() != 143 {
		t.Errorf("%v", s.GetStatus())
	}
	_, _, _, err := c.exec(&wire.ExecSandboxRequest{SandboxId: id, Command: []string{"true"}})
	code(t, codes.FailedPrecondition, err)
	c.delete("one")
	c.gone("one")
}

func TestPoliciesThatAreNotMet(t *testing.T) {
	c, dir := dial(t, Containers(t, Options{})), shared(t)
	for name, at := range map[string]struct {
		phase  wire.SandboxPhase
		reason string
		change func(r *wire.CreateSandboxRequest)
	}{
		"missing-path": {wire.SandboxPhase_SANDBOX_PHASE_ERROR, "ContainerExited", func(r *wire.CreateSandboxRequest) {
			r.Spec.Policy.Filesystem.ReadOnly = append(r.Spec.Policy.Filesystem.ReadOnly, "/nosuch")
		}},
		"link": {wire.SandboxPhase_SANDBOX_PHASE_ERROR, "ContainerExited", func(r *wire.CreateSandboxRequest) {
			r.Spec.Policy.Filesystem.ReadWrite = append(r.Spec.Policy.Filesystem.ReadWrite, "/dev/ptmx")
		}},
		"best-effort": {wire.SandboxPhase_SANDBOX_PHASE_READY, "DependenciesReady", func(r *wire.CreateSandboxRequest) {
			r.Spec.Policy.Landlock.Compatibility = "hard-requirement"
			r.Spec.Policy.Filesystem.ReadOnly = append(r.Spec.Policy.Filesystem.ReadOnly, "/nosuch")
		}},
		"no-image": {wire.SandboxPhase_SANDBOX_PHASE_ERROR, "ImagePullFailed", func(r *wire.CreateSandboxRequest) { r.Spec.Template.Image = "nosuch:1" }},
	} {
		if s := c.create(name, boxed(t, dir, at.change)); s.GetStatus().GetPhase() != at.phase || reason(s) != at.reason {
			t.Errorf("%s: %v", name, s.GetStatus())
		}
	}
}

func TestContainersAndRestarts(t *testing.T) {
	g := Containers(t, Options{})
	c, dir := dial(t, g), shared(t)
	id := c.ready("one", boxed(t, dir, nil)).GetMetadata().GetId()
	c.sh(id, "sleep 1000 >/dev/null 2>&1 & echo kept >/tmp/file")
	g.Restart()
	c.back()
	if s := c.settled("one"); s.GetStatus().GetPhase() != wire.SandboxPhase_SANDBOX_PHASE_READY {
		t.Errorf("%v", s.GetStatus())
	}
	if code, out := c.sh(id, "pgrep -f 'sleep 1000' >/dev/null && cat /tmp/file"); code != 0 || out != "kept\n" {
		t.Errorf("%d %s", code, out)
	}
	g.Stop()
	g.Start()
	c.back()
	if s := c.settled("one"); s.GetStatus().GetPhase() != wire.SandboxPhase_SANDBOX_PHASE_READY || s.GetMetadata().GetId() != id {
		t.Errorf("%v", s.GetStatus())
	}
	if code, out := c.sh(id, "! pgrep -f '^sleep 1000' && cat /tmp/file"); code != 0 || out != "kept\n" {
		t.Errorf("%d %s", code, out)
	}
	engine.Remove(t, g.Engine(), "openshell.ai/sandbox-id="+id)
	c.gone("one")

	// A delete that comes before the container does.
	landed := holdMoment(t, g, Landing)
	made, err := c.CreateSandbox(bounded(t), func() *wire.CreateSandboxRequest { r := request("two"); boxed(t, dir, nil)(r); return r }())
	must(t, err)
	if !c.delete("two") {
		t.Error("deleted is false")
	}
	c.gone("two")
	landed()
	eventually(t, "an orphan", func() bool {
		list := engine.Containers(t, g.Engine(), "openshell.ai/sandbox-id="+made.GetSandbox().GetMetadata().GetId())
		return len(list) == 1 && list[0].State == created
	})
}

func TestSystemCallsThatAreRefused(t *testing.T) {
	c, dir := dial(t, Containers(t, Options{})), shared(t)
	id := c.ready("one", boxed(t, dir, nil)).GetMetadata().GetId()
	const pidfdOpen, notPermitted = 434, 1
	if code, out := c.sh(id, fmt.Sprintf("perl -e 'print syscall(%d, $$, 0), \" \", $!+0'", pidfdOpen)); code != 0 || out != fmt.Sprintf("-1 %d", notPermitted) {
		t.Errorf("%d %s", code, out)
	}
	if code, out := c.sh(id, "unshare --user true"); code == 0 || !strings.Contains(out, "Operation not permitted") {
		t.Errorf("%d %s", code, out)
	}
}

// All of this is the same for a user who may use the engine and is not root.
func TestAsAnOrdinaryUser(t *testing.T) {
	engine.AsOrdinaryUser(t, "^(TestWhatASandboxIs|TestWhatGetsOut|TestContainersAndRestarts)$", "TestWhatASandboxIs", "TestWhatGetsOut", "TestContainersAndRestarts")
}
