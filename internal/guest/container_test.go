package guest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/system/process"
	"github.com/laufwerk/laufwerk/internal/testkit"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

const limit = time.Minute // when a test hangs

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never came to be: %s", what)
		}
	}
}

// binaryVariable is where the binary of a test that started this one is.
const binaryVariable = "INSIDE_TEST_BINARY"

// binary is laufwerk, built once, in a directory that others may enter.
var binary = sync.OnceValues(func() (string, error) { //nolint:gochecknoglobals // built once
	if path := os.Getenv(binaryVariable); path != "" {
		return path, nil
	}
	built = true
	dir, err := os.MkdirTemp("", "inside")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // that is the point
		return "", err
	}
	build := exec.Command("go", "build", "-o", dir+"/laufwerk", "github.com/laufwerk/laufwerk/cmd/laufwerk")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return dir + "/laufwerk", nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if built {
		path, _ := binary()
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

var built bool //nolint:gochecknoglobals // says whether there is something to remove

// All of this is the same for a user who may use the engine and is not root, and whose containers run as that user.
func TestAsAnOrdinaryUser(t *testing.T) {
	endpoint := engine.Endpoint(t)
	testkit.Need(t, "root", os.Getuid() == 0, "it becomes another user")
	setpriv, err := exec.LookPath("setpriv")
	testkit.Need(t, "setpriv", err == nil, "it becomes another user")
	bin, err := binary()
	must(t, err)
	info, err := os.Stat(strings.TrimPrefix(endpoint, "unix://"))
	must(t, err)
	socket, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		t.Fatal("the socket has no group")
	}
	dir, err := os.MkdirTemp("", "user")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	self, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	must(t, os.WriteFile(dir+"/test", self, 0o755)) //nolint:gosec // another user runs it
	must(t, os.Mkdir(dir+"/tmp", 0o777))
	must(t, os.Chmod(dir, 0o755))        //nolint:gosec // another user enters it
	must(t, os.Chmod(dir+"/tmp", 0o777)) //nolint:gosec // another user writes it
	cmd := exec.Command(setpriv, "--reuid", "1234", "--regid", "1234", "--groups", strconv.Itoa(int(socket.Gid)), "--",
		dir+"/test", "-test.v", "-test.skip", "^"+t.Name()+"$")
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir + "/tmp", "TMPDIR=" + dir + "/tmp", binaryVariable + "=" + bin,
		"LAUFWERK_TEST_DOCKER=" + endpoint, "LAUFWERK_CI=1"}
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: TestInAnImageWithNothingInIt")) {
		t.Errorf("%v\n%s", err, out)
	}
}

// box is a hardened container whose first process is ours. Where the test is root, nobody works in it.
type box struct {
	t     *testing.T
	cli   *client.Client
	id    string
	user  string
	uid   int
	ops   string // on this host, /laufwerk/ops inside
	nonce string
}

func newBox(t *testing.T, image string, change func(h *container.HostConfig)) *box {
	t.Helper()
	return newBoxOf(t, image, change, Init)
}

// newBoxOf makes one whose first process is another.
func newBoxOf(t *testing.T, image string, change func(h *container.HostConfig), first func(ready, nonce string, mounts ...string) []string) *box {
	t.Helper()
	endpoint := engine.Endpoint(t)
	bin, err := binary()
	must(t, err)
	random := make([]byte, 8)
	_, _ = rand.Read(random)
	b := &box{t: t, cli: engine.Client(t, endpoint), nonce: hex.EncodeToString(random), uid: os.Getuid()}
	gid := os.Getgid()
	if b.uid == 0 {
		b.uid, gid = 65534, 65534
	}
	b.user = fmt.Sprintf("%d:%d", b.uid, gid)
	b.ops = filepath.Join(t.TempDir(), "ops")
	must(t, os.Mkdir(b.ops, 0o700))
	if b.uid != os.Getuid() {
		must(t, os.Chown(b.ops, b.uid, gid))
	}
	h := &container.HostConfig{
		ReadonlyRootfs: true, CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"}, NetworkMode: "none",
		Mounts: []mount.Mount{
			{Type: mount.TypeBind, Source: bin, Target: Binary, ReadOnly: true},
			{Type: mount.TypeBind, Source: b.ops, Target: "/laufwerk/ops"},
		},
		Tmpfs: map[string]string{"/laufwerk/login": fmt.Sprintf("mode=0700,uid=%d,gid=%d", b.uid, gid)},
	}
	if change != nil {
		change(h)
	}
	argv := first("/laufwerk/ops/ready", b.nonce)
	made, err := b.cli.ContainerCreate(bounded(t), &container.Config{
		Image: "laufwerk-test/" + image + ":1", User: b.user, Entrypoint: argv[:1], Cmd: argv[1:],
		Labels: map[string]string{"laufwerk-test-inside": b.nonce},
	}, h, nil, nil, "")
	must(t, err)
	b.id = made.ID
	t.Cleanup(func() { engine.Remove(t, endpoint, "laufwerk-test-inside="+b.nonce) })
	b.start()
	return b
}

func (b *box) start() {
	b.t.Helper()
	must(b.t, b.cli.ContainerStart(bounded(b.t), b.id, container.StartOptions{}))
	eventually(b.t, "the first process is seen", func() bool {
		seen, _ := Observe(b.ops+"/ready", b.nonce)
		return seen == Locked
	})
}

func (b *box) running() bool {
	b.t.Helper()
	got, err := b.cli.ContainerInspect(bounded(b.t), b.id)
	must(b.t, err)
	return got.State.Running
}

// end kills the container from outside.
func (b *box) end() {
	b.t.Helper()
	must(b.t, b.cli.ContainerKill(bounded(b.t), b.id, "KILL"))
	eventually(b.t, "it has ended", func() bool { return !b.running() })
}

// open starts a command inside, attached.
func (b *box) open(ctx context.Context, argv ...string) (supervise.Pipe, func() int, *bytes.Buffer, error) {
	made, err := b.cli.ContainerExecCreate(ctx, b.id, container.ExecOptions{User: b.user, AttachStdin: true, AttachStdout: true, AttachStderr: true, Cmd: argv})
	if err != nil {
		return supervise.Pipe{}, nil, nil, errors.Join(err, supervise.ErrRefused)
	}
	at, err := b.cli.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
	if err != nil {
		return supervise.Pipe{}, nil, nil, err
	}
	talk := &bytes.Buffer{}
	r, w := io.Pipe()
	go func() {
		_, err := stdcopy.StdCopy(w, talk, at.Reader)
		_ = w.CloseWithError(err)
	}()
	code := func() int {
		got, err := b.cli.ContainerExecInspect(context.Background(), made.ID)
		if err != nil {
			return -1
		}
		return got.ExitCode
	}
	return supervise.Pipe{In: halfClosing{at.Conn, at.CloseWrite}, Out: r, Close: func() { at.Close(); _ = r.Close() }}, code, talk, nil
}

type halfClosing struct {
	io.Writer
	close func() error
}

func (h halfClosing) Close() error { return h.close() }

// exec runs a command inside to its end.
func (b *box) exec(stdin string, argv ...string) (code int, out string) {
	b.t.Helper()
	p, ended, talk, err := b.open(bounded(b.t), argv...)
	must(b.t, err)
	defer p.Close()
	_, _ = io.WriteString(p.In, stdin)
	_ = p.In.Close()
	got, _ := io.ReadAll(p.Out)
	return ended(), string(got) + talk.String()
}

// Launch, Interrupt and Fence reach the supervisors inside.
func (b *box) Launch(ctx context.Context, dir string, spec supervise.Spec) error {
	return supervise.Handshake(ctx, dir, spec, func(ctx context.Context, _ []byte) (supervise.Pipe, error) {
		p, _, _, err := b.open(ctx, Supervise("/laufwerk/ops/"+filepath.Base(dir))...)
		return p, err
	})
}

func (b *box) Interrupt(_ context.Context, dir string) error {
	_, out := b.exec("", Interrupt("/laufwerk/ops/"+filepath.Base(dir))...)
	return ReadInterrupt([]byte(out))
}

func (b *box) Fence(_ context.Context, dir string) supervise.FenceResult {
	_, out := b.exec("", Fence("/laufwerk/ops/"+filepath.Base(dir))...)
	f, err := ReadFence([]byte(out))
	if err != nil {
		f.Why = err.Error()
	}
	return f
}

func (b *box) Cancel(ctx context.Context, dir string) supervise.FenceResult { return b.Fence(ctx, dir) }

// dir is an operation's directory, made by the worker for who works inside.
func (b *box) dir(name string) string {
	b.t.Helper()
	dir := filepath.Join(b.ops, name)
	must(b.t, os.Mkdir(dir, 0o700))
	if b.uid != os.Getuid() {
		must(b.t, os.Chown(dir, b.uid, b.uid))
	}
	return dir
}

func run(argv ...string) supervise.Spec {
	return supervise.Spec{Argv: argv, Env: []string{"PATH=/bin:/usr/bin"}, Dir: "/", MaxOutput: 1 << 20, Mark: supervise.Mark("session", "op"), Grace: 5 * time.Second}
}

func wait(t *testing.T, p *supervise.Process) supervise.Exit {
	t.Helper()
	exit, err := p.Wait(bounded(t))
	must(t, err)
	return exit
}

func TestInAnImageWithNothingInIt(t *testing.T) {
	t.Parallel()
	b := newBox(t, "bare", nil)
	code, out := b.exec("", Probe()...)
	p, err := ReadProbe([]byte(out))
	if code != 0 || err != nil || len(p.Tools) > 0 || p.UID != b.uid || p.Kernel == "" {
		t.Errorf("%d %s %v", code, out, err)
	}
	if code, out := b.exec("the login", PutFile("/laufwerk/login/codex/auth.json", 0o600, 9)...); code != 0 {
		t.Errorf("%d %s", code, out)
	}
	for i, c := range []struct {
		argv []string
		code int
	}{{[]string{"sleep", "0"}, 0}, {[]string{"nosuch"}, 127}, {[]string{"/laufwerk/login"}, 126}} {
		proc, err := supervise.Start(bounded(t), b, b.dir(strconv.Itoa(i)), run(c.argv...))
		must(t, err)
		if exit := wait(t, proc); exit.Code != c.code {
			t.Errorf("%q: %+v", c.argv, exit)
		}
		if f := proc.Fence(bounded(t)); !f.Sure || f.How != supervise.HowSubreaper {
			t.Errorf("%q: %+v", c.argv, f)
		}
	}
}

func TestWhatASupervisorInsideOutlives(t *testing.T) {
	t.Parallel()
	b := newBox(t, "busybox", nil)
	// Its connection is closed once it runs; it goes on, and is found again.
	proc, err := supervise.Start(bounded(t), b, b.dir("op"), run("sh", "-c", "trap 'echo asked; exit 7' INT; echo begin; while :; do sleep 0.1; done"))
	must(t, err)
	again := supervise.Attach(b, proc.Dir(), 1<<20)
	eventually(t, "it says something", func() bool { out, _, _ := again.Output(supervise.Stdout); return string(out) == "begin\n" })
	must(t, again.Interrupt(bounded(t)))
	if exit := wait(t, again); exit.Code != 7 || !exit.Interrupted {
		t.Errorf("%+v", exit)
	}
	eventually(t, "nothing is left of it", func() bool {
		f, settled := supervise.NeedsNoFence(proc.Dir())
		return settled && f.Sure
	})
	if err := b.Interrupt(bounded(t), proc.Dir()); !errors.Is(err, process.ErrGone) {
		t.Errorf("after its end: %v", err)
	}
	if log, err := os.ReadFile(supervise.LogPath(proc.Dir())); err != nil || len(log) > 0 {
		t.Errorf("%q %v", log, err)
	}
	daemon, err := supervise.Start(bounded(t), b, b.dir("daemon"), run("sh", "-c", "env -i setsid sleep 1000 >/dev/null 2>&1 &"))
	must(t, err)
	wait(t, daemon)
	if f := daemon.Fence(bounded(t)); !f.Sure || f.How != supervise.HowSubreaper {
		t.Errorf("%+v", f)
	}
	if _, out := b.exec("", "ps"); strings.Contains(out, "sleep 1000") {
		t.Errorf("it still runs: %s", out)
	}
}

func TestNoSignalFromInsideEndsTheFirstProcess(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]func(ready, nonce string, mounts ...string) []string{
		"init": Init, "serve": Serve, "hold": func(ready, nonce string, _ ...string) []string { return MainProcess(ready, nonce) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBoxOf(t, "busybox", nil, first)
			var handled uint64 // signals left at their default may end it at a moment when its first thread blocks them
			_, out := b.exec("", "grep", "-E", "^Sig(Ign|Cgt)", "/proc/1/status")
			for _, set := range strings.Fields(out) {
				bits, _ := strconv.ParseUint(set, 16, 64)
				handled |= bits
			}
			if handled |= 1<<(syscall.SIGKILL-1) | 1<<(syscall.SIGSTOP-1); ^handled != 0 {
				t.Errorf("left at their default: %x of\n%s", ^handled, out)
			}
			if code, out := b.exec("", "sh", "-c", "i=1; while [ $i -le 64 ]; do kill -$i 1 || echo cannot $i; i=$((i+1)); done; kill -9 -1"); strings.Contains(out, "cannot") {
				t.Errorf("%d %s", code, out)
			}
			// Orphans do not stay as zombies, and nobody else's end is taken away: the shell sees its own children's.
			code, out := b.exec("", "sh", "-c", `for i in 1 2 3 4 5 6 7 8 9 10; do (sleep 0.05 & sleep 0.02 & :) & wait $!; done
				sh -c 'exit 9'; echo $?; for i in $(seq 100); do sleep 0.1; cat /proc/[0-9]*/status 2>/dev/null | grep -q '^State:.Z' || exit 0; done; echo zombies`)
			if name != "hold" && (code != 0 || out != "9\n") {
				t.Errorf("%d %q", code, out)
			}
			if seen, err := Observe(b.ops+"/ready", b.nonce); seen != Locked || err != nil || !b.running() {
				t.Errorf("%v %v", seen, err)
			}
		})
	}
}

// With its supervisor, what a command has started passes to the first process, and may have taken its mark off: only the end of
// all of the container is sure.
func TestAKilledSupervisorInside(t *testing.T) {
	t.Parallel()
	b := newBox(t, "busybox", nil)
	proc, err := supervise.Start(bounded(t), b, b.dir("op"), run("sh", "-c", "env -i setsid sleep 1001 & setsid sleep 1002 & echo begin; sleep 1003"))
	must(t, err)
	eventually(t, "it runs", func() bool { out, _, _ := proc.Output(supervise.Stdout); return string(out) == "begin\n" })
	// The shell would find itself, too, if it had the pattern as it is: and end itself before the supervisor where its id comes first.
	b.exec("", "sh", "-c", `for p in /proc/[0-9]*; do case "$(tr '\0' ' ' <$p/cmdline)" in *supervise\ /laufwerk/ops*) kill -9 ${p#/proc/};; esac; done`)
	if _, err := proc.Wait(bounded(t)); !errors.Is(err, supervise.ErrLost) {
		t.Fatalf("%v", err)
	}
	if f := proc.Fence(bounded(t)); f.Sure || f.Later || f.Why == "" {
		t.Errorf("%+v", f)
	}
	if f, settled := supervise.NeedsNoFence(proc.Dir()); settled {
		t.Errorf("%+v", f)
	}
	_, out := b.exec("", "ps")
	if !strings.Contains(out, "sleep 1001") || strings.Contains(out, "sleep 1002") || strings.Contains(out, "sleep 1003") {
		t.Errorf("what is hidden lives on, and what is not was ended: %s", out)
	}
	b.exec("", "sh", "-c", "kill -9 -1")
	if !b.running() {
		t.Fatal("an agent has ended its container")
	}
	b.end()
	if seen, err := Observe(b.ops+"/ready", b.nonce); seen != Seen || err != nil {
		t.Errorf("%v %v", seen, err)
	}
	// An agent can leave what it wants there. The next start is seen all the same.
	must(t, os.Remove(b.ops+"/ready"))
	must(t, os.MkdirAll(b.ops+"/ready/x", 0o755))
	must(t, os.Chmod(b.ops+"/ready", 0o777)) //nolint:gosec // as one of the agent's would be
	if b.uid != os.Getuid() {
		must(t, os.Chown(b.ops+"/ready", b.uid, b.uid))
		must(t, os.Chown(b.ops+"/ready/x", b.uid, b.uid))
	}
	b.start()
	if f := proc.Fence(bounded(t)); f.Sure {
		t.Errorf("from inside a lost supervisor stays one: %+v", f)
	}
}

// The worker may decide before a supervisor comes, also where it is another user.
func TestASupervisorInsideThatComesLate(t *testing.T) {
	t.Parallel()
	b := newBox(t, "bare", nil)
	dir := b.dir("op")
	if status, err := supervise.Abandon(dir); status != supervise.NotStarted || err != nil {
		t.Fatalf("%v %v", status, err)
	}
	if _, err := supervise.Start(bounded(t), b, dir, run("sleep", "0")); !errors.Is(err, supervise.ErrRefused) {
		t.Errorf("%v", err)
	}
	f, settled := supervise.NeedsNoFence(dir)
	for ctx := bounded(t); !settled && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) { // it says that it was refused before it is gone
		f, settled = supervise.NeedsNoFence(dir)
	}
	if !settled || !f.Sure || f.How != supervise.HowNothing {
		t.Errorf("%+v", f)
	}
	if _, err := supervise.Start(bounded(t), b, b.ops+"/missing", run("sleep", "0")); err == nil {
		t.Error("it ran without a place for its records")
	}
}

func TestALoginStaysInTheMemoryThatItIsPutInto(t *testing.T) {
	t.Parallel()
	b := newBox(t, "busybox", nil)
	for _, c := range []struct{ plant, path, says string }{
		{"true", "/laufwerk/login/codex/auth.json", ""},
		{"rm -r codex; ln -s /laufwerk/ops codex", "/laufwerk/login/codex/auth.json", "codex"},
		{"rm -r codex; mkdir codex; ln -s /laufwerk/ops/stolen codex/auth.json; ln -s /laufwerk/ops/stolen codex/.new-auth.json", "/laufwerk/login/codex/auth.json", ""},
		{"rm codex/auth.json; mkdir -p codex/auth.json/x", "/laufwerk/login/codex/auth.json", ""},
		{"true", "/etc/auth.json", "read-only"},
	} {
		if code, out := b.exec("", "sh", "-c", "cd /laufwerk/login; "+c.plant); code != 0 {
			t.Fatalf("%s: %s", c.plant, out)
		}
		code, out := b.exec("secret", PutFile(c.path, 0o600, 6)...)
		if (code == 0) != (c.says == "") || !strings.Contains(out, c.says) {
			t.Errorf("%s: %d %s", c.plant, code, out)
		}
		if c.says == "" {
			if _, got := b.exec("", "sh", "-c", "cat "+c.path+"; stat -c ' %a %F' "+c.path); got != "secret 600 regular file\n" {
				t.Errorf("%s: %q", c.plant, got)
			}
		}
		if left, err := filepath.Glob(b.ops + "/*"); err != nil || len(left) != 1 {
			t.Errorf("%s: on disk: %q", c.plant, left)
		}
	}
}

// Many small processes together take all memory: they go, and the larger two of ours, without which nothing is known, stay.
func TestWhereMemoryRunsOutTheCommandGoes(t *testing.T) {
	t.Parallel()
	b := newBox(t, "busybox", func(h *container.HostConfig) { h.Memory, h.MemorySwap = 36<<20, 36<<20 })
	proc, err := supervise.Start(bounded(t), b, b.dir("op"), run("sh", "-c",
		`n=0; while [ $n -lt 60 ]; do n=$((n+1)); (x=$(head -c 1000000 /dev/zero | tr '\0' x); sleep 1000; :) & sleep 0.02; done; echo over`))
	must(t, err)
	if exit := wait(t, proc); exit.Error != "" {
		t.Errorf("%+v", exit)
	}
	if code, out := b.exec("", "ps"); code != 0 || strings.Count(out, "sh -c n=0") > 50 {
		t.Errorf("memory did not run out: %d %s", code, out)
	}
	got, err := b.cli.ContainerInspect(bounded(t), b.id)
	must(t, err)
	if !got.State.Running {
		t.Fatalf("the container ended: %+v", got.State)
	}
	if f := proc.Fence(bounded(t)); !f.Sure {
		t.Errorf("%+v", f)
	}
}

// The least memory with which a session can be had, and some room: docker.memoryBytes is refused below it.
func TestLittleMemory(t *testing.T) {
	t.Parallel()
	b := newBox(t, "bare", func(h *container.HostConfig) { h.Memory, h.MemorySwap, h.PidsLimit = 16<<20, 16<<20, ptr(int64(48)) })
	proc, err := supervise.Start(bounded(t), b, b.dir("op"), run("sleep", "1000"))
	must(t, err)
	if code, out := b.exec("", Probe()...); code != 0 {
		t.Errorf("%d %s", code, out)
	}
	if f := proc.Fence(bounded(t)); !f.Sure {
		t.Errorf("%+v", f)
	}
	if exit := wait(t, proc); exit.Signal != 9 {
		t.Errorf("%+v", exit)
	}
}

func ptr[T any](v T) *T { return &v }
