package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/agent/codex"
	"github.com/laufwerk/laufwerk/internal/agent/command"
	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/guest"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/providers/sessiondir"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/targets"
	"github.com/laufwerk/laufwerk/internal/testkit"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

const (
	busybox = "laufwerk-test/busybox:1"
	base    = "laufwerk-test/base:1"
)

// providerFixture is a provider on a real engine, with a workspace.
type providerFixture struct {
	*Provider
	t         *testing.T
	endpoint  string
	owner     string
	workspace string
	dir       string
	n         int
}

func newProviderFixture(t *testing.T, endpoint string) *providerFixture {
	t.Helper()
	w := &providerFixture{t: t, endpoint: endpoint, owner: "test-" + t.Name(), dir: t.TempDir()}
	w.workspace = filepath.Join(w.dir, "work space:with, \"odd\"\nnames ü")
	if err := os.Mkdir(w.workspace, 0o700); err != nil {
		t.Fatal(err)
	}
	e, err := dockerengine.Connect(w.ctx(), dockerengine.Endpoint{Host: endpoint, Origin: "the test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	w.Provider = New(Config{
		Executable: testkit.Binary(t), Vars: map[string]string{"PATH": os.Getenv("PATH"), "TOLD": "from the host"}, Now: time.Now,
		UID: os.Getuid(), GID: os.Getgid(), State: t.TempDir(), Programs: programs(),
		Connect: func(context.Context, string) (*dockerengine.Engine, error) { return e, nil },
	})
	if os.Getuid() == 0 {
		if err := os.Chown(w.workspace, owned.NobodyID, owned.NobodyID); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { engine.Remove(t, endpoint, owned.LabelOwner+"="+w.owner) })
	return w
}

func (w *providerFixture) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	w.t.Cleanup(cancel)
	return ctx
}

func (w *providerFixture) target(options string) targets.Definition {
	w.t.Helper()
	def, err := validate(json.RawMessage(options))
	if err != nil {
		w.t.Fatal(err)
	}
	return def
}

func (w *providerFixture) intent(def targets.Definition, readOnly bool) resource.Intent {
	w.t.Helper()
	w.n++
	claim := fmt.Sprintf("c%d-%d", w.n, time.Now().UnixNano())
	endpoint, err := w.Endpoint(w.ctx(), def)
	if err != nil {
		w.t.Fatal(err)
	}
	plan, missing, err := w.Plan(w.ctx(), def, providers.Need{}, providers.SessionSpec{
		Key: "k", Dir: filepath.Join(w.dir, "run", "sessions", claim), Workspace: w.workspace, ReadOnly: readOnly, Mark: claim,
	})
	if err != nil || len(missing) > 0 {
		w.t.Fatal(missing, err)
	}
	return resource.Intent{Claim: claim, Name: owned.Name(claim), Owner: w.owner, Run: "r1", Endpoint: endpoint, Spec: plan.Spec, At: time.Now()}
}

// open makes a session and enters it.
func (w *providerFixture) open(def targets.Definition, readOnly bool) (resource.Intent, providers.Sandbox) {
	w.t.Helper()
	in := w.intent(def, readOnly)
	r := w.Create(w.ctx(), in)
	if r.Outcome != resource.Done {
		w.t.Fatalf("%+v", r)
	}
	in.Resource = r.Resource
	sb, err := w.Enter(w.ctx(), in, def)
	if err != nil {
		w.t.Fatal(err)
	}
	return in, sb
}

// start starts a command under a supervisor.
func (w *providerFixture) start(in resource.Intent, sb providers.Sandbox, name string, argv ...string) *supervise.Process {
	w.t.Helper()
	s, _, err := readSpec(in)
	if err != nil {
		w.t.Fatal(err)
	}
	p, err := supervise.Start(w.ctx(), sb.Launcher(), filepath.Join(s.Dir, sessiondir.Ops, name), supervise.Spec{
		Argv: argv, Env: sb.BaseEnv(), Dir: sb.Workdir(), Mark: supervise.Mark(s.Mark, name), MaxOutput: 1 << 20, Grace: time.Second,
		Stdin: []byte("\x00input\xff"),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (w *providerFixture) run(in resource.Intent, sb providers.Sandbox, name string, argv ...string) (string, int) {
	w.t.Helper()
	p := w.start(in, sb, name, argv...)
	exit, err := p.Wait(w.ctx())
	if err != nil {
		w.t.Fatal(err)
	}
	out, _, err := p.Output(supervise.Stdout)
	if err != nil {
		w.t.Fatal(err)
	}
	talk, _, _ := p.Output(supervise.Stderr)
	return string(out) + string(talk), exit.Code
}

// appears waits for a file of the workspace.
func (w *providerFixture) appears(name string) {
	w.t.Helper()
	for ctx := w.ctx(); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(w.workspace, name)); err == nil {
			return
		}
		if ctx.Err() != nil {
			w.t.Fatalf("%s does not appear", name)
		}
	}
}

func (w *providerFixture) absent(in resource.Intent) {
	w.t.Helper()
	if o := w.Observe(w.ctx(), in); o.Presence != resource.Absent || len(o.Evidence) == 0 {
		w.t.Errorf("%+v", o)
	}
	if left := engine.Containers(w.t, w.endpoint, owned.LabelClaim+"="+in.Claim); len(left) > 0 {
		w.t.Errorf("the container is still there: %+v", left)
	}
	s, _, _ := readSpec(in)
	if _, err := os.Lstat(s.Dir); !errors.Is(err, os.ErrNotExist) {
		w.t.Errorf("the directory is still there: %v", err)
	}
}

func TestASessionFromItsMakingToItsAbsence(t *testing.T) {
	w := newProviderFixture(t, engine.Endpoint(t))
	def := w.target(`{"image":"` + busybox + `","env":{"A":"1","B":{"fromHost":"TOLD"}}}`)
	if missing := w.Ready(w.ctx(), def, providers.Need{Workspace: true}); len(missing) > 0 {
		t.Fatalf("%+v", missing)
	}
	in, sb := w.open(def, false)
	for name, c := range map[string]struct {
		script, says string
		code         int
	}{
		"exit-7":   {"echo out; exit 7", "out\n", 7},
		"stdin":    {"od -An -c | tr -d ' \n'", `\0input377`, 0},
		"env":      {"echo $A-$B-$HOME-$TMPDIR-$PWD", "1-from the host-/laufwerk/home-/tmp-/workspace\n", 0},
		"write":    {"echo new >file && ln -s /etc link && cat file", "new\n", 0},
		"no-root":  {"touch /x 2>/dev/null || echo refused", "refused\n", 0},
		"killed":   {"kill -9 $$", "", 137},
		"caps":     {"grep -E '^Cap(Eff|Prm)' /proc/self/status | tr -d '\t'; grep NoNewPrivs /proc/self/status | tr -d '\t'", "CapPrm:0000000000000000\nCapEff:0000000000000000\nNoNewPrivs:1\n", 0},
		"identity": {"ls /laufwerk", "home\nlogin\nops\n", 0},
	} {
		if said, code := w.run(in, sb, name, "sh", "-c", c.script); said != c.says || code != c.code {
			t.Errorf("%s: %q and %d, want %q and %d", name, said, code, c.says, c.code)
		}
	}
	for name, code := range map[string]int{"/nowhere": 127, "/etc/passwd": 126} {
		p := w.start(in, sb, "cannot"+strings.ReplaceAll(name, "/", "-"), name)
		if exit, err := p.Wait(w.ctx()); err != nil || exit.Code != code || exit.Error == "" {
			t.Errorf("%s: %+v %v", name, exit, err)
		}
	}
	if b, err := sb.ReadFile(w.ctx(), "file"); err != nil || string(b) != "new\n" {
		t.Errorf("%q %v", b, err)
	}
	if _, err := sb.ReadFile(w.ctx(), "missing"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if _, err := sb.ReadFile(w.ctx(), "link/passwd"); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("through a link: %v", err)
	}
	if err := sb.WriteFile(w.ctx(), "/workspace/made/by/host", []byte("\x00\xff")); err != nil {
		t.Error(err)
	}
	if said, code := w.run(in, sb, "sees", "sh", "-c", "od -An -tx1 made/by/host && rm -r made"); said != " 00 ff\n" || code != 0 {
		t.Errorf("%q %d", said, code)
	}
	if r := w.Delete(w.ctx(), in); r.Outcome != resource.Done || r.Err != nil {
		t.Fatalf("%+v", r)
	}
	w.absent(in)
	if r := w.Delete(w.ctx(), in); r.Outcome != resource.Done {
		t.Errorf("a second delete: %+v", r)
	}
	if _, err := w.Enter(w.ctx(), in, def); !failure.Is(err, failure.SessionLost) {
		t.Errorf("%v", err)
	}
}

func TestReadOnlyAccessIsAMount(t *testing.T) {
	w := newProviderFixture(t, engine.Endpoint(t))
	def := w.target(`{"image":"` + busybox + `"}`)
	if err := os.WriteFile(filepath.Join(w.workspace, "file"), []byte("kept"), 0o666); err != nil {
		t.Fatal(err)
	}
	in, sb := w.open(def, true)
	said, code := w.run(in, sb, "1", "sh", "-c", "echo x >file; rm file; mount -o remount,rw /workspace; cat file")
	if code != 0 || !strings.HasSuffix(said, "kept") && !strings.HasPrefix(said, "kept") {
		t.Errorf("%q %d", said, code)
	}
	if err := sb.WriteFile(w.ctx(), "file", nil); !failure.Is(err, failure.Unsupported) {
		t.Errorf("%v", err)
	}
	if b, err := os.ReadFile(filepath.Join(w.workspace, "file")); err != nil || string(b) != "kept" {
		t.Errorf("%q %v", b, err)
	}
}

// TestAFenceEndsWhatHidesFromIt: a supervisor is killed from inside, its command has cleared its environment; only the end of
// the container makes the end of that sure, and the session goes on in the same container.
func TestAFenceEndsWhatHidesFromIt(t *testing.T) {
	w := newProviderFixture(t, engine.Endpoint(t))
	def := w.target(`{"image":"` + busybox + `"}`)
	in, sb := w.open(def, false)
	p := w.start(in, sb, "1", "sh", "-c", "env -i setsid sh -c 'while true; do date >>/workspace/beat; sleep 0.1; done' & sleep 0.3; kill -9 -1; sleep 100")
	if _, err := p.Wait(w.ctx()); !errors.Is(err, supervise.ErrLost) {
		t.Fatalf("%v", err)
	}
	if f := p.Fence(w.ctx()); !f.Sure || f.How != supervise.HowContainer {
		t.Fatalf("%+v", f)
	}
	before, _ := os.ReadFile(filepath.Join(w.workspace, "beat"))
	if said, code := w.run(in, sb, "2", "sh", "-c", "sleep 0.5; echo again"); said != "again\n" || code != 0 {
		t.Errorf("%q %d", said, code)
	}
	if after, _ := os.ReadFile(filepath.Join(w.workspace, "beat")); string(before) != string(after) {
		t.Error("it still writes")
	}
	if got := engine.Containers(t, w.endpoint, owned.LabelClaim+"="+in.Claim); len(got) != 1 || got[0].ID != in.Resource {
		t.Errorf("%+v", got)
	}
}

// TestAFenceOfALivingSupervisorKeepsTheContainer, and what an earlier operation left running.
func TestAFenceOfALivingSupervisorKeepsTheContainer(t *testing.T) {
	w := newProviderFixture(t, engine.Endpoint(t))
	in, sb := w.open(w.target(`{"image":"`+busybox+`"}`), false)
	if said, code := w.run(in, sb, "1", "sh", "-c", "sleep 1000 & echo $!"); code != 0 || said == "" {
		t.Fatalf("%q %d", said, code)
	}
	p := w.start(in, sb, "2", "sh", "-c", "trap '' INT TERM; echo ready >ready; while true; do env -i setsid sleep 1000; done")
	w.appears("ready")
	// Another worker, which knows no more than the intent.
	again, err := w.Enter(w.ctx(), in, targets.Definition{})
	if err != nil {
		t.Fatal(err)
	}
	f := again.Launcher().Fence(w.ctx(), p.Dir())
	if !f.Sure || f.How != supervise.HowSubreaper {
		t.Fatalf("%+v", f)
	}
	if said, code := w.run(in, again, "3", "sh", "-c", "ps -o args | grep -c '[s]leep 1000'"); said != "1\n" || code != 0 {
		t.Errorf("%q %d", said, code)
	}
	if f := again.Fence(w.ctx()); !f.Sure {
		t.Errorf("%+v", f)
	}
	if said, code := w.run(in, again, "4", "sh", "-c", "ps -o args | grep -c '[s]leep 1000'"); said != "0\n" || code != 1 {
		t.Errorf("%q %d", said, code)
	}
}

func TestInterrupt(t *testing.T) {
	w := newProviderFixture(t, engine.Endpoint(t))
	in, sb := w.open(w.target(`{"image":"`+busybox+`"}`), false)
	p := w.start(in, sb, "1", "sh", "-c", "trap 'echo asked; exit 3' INT; echo ready >ready; while true; do sleep 0.1; done")
	w.appears("ready")
	if err := p.Interrupt(w.ctx()); err != nil {
		t.Fatal(err)
	}
	exit, err := p.Wait(w.ctx())
	if err != nil || exit.Code != 3 || !exit.Interrupted {
		t.Errorf("%+v %v", exit, err)
	}
	if err := p.Interrupt(w.ctx()); err != nil {
		t.Errorf("of one that has ended: %v", err)
	}
}

// TestLimitsAreEnforcedInside looks at them from within.
func TestLimitsAreEnforcedInside(t *testing.T) {
	w := newProviderFixture(t, engine.Endpoint(t))
	in, sb := w.open(w.target(`{"image":"`+busybox+`","resources":{"cpus":0.5,"memoryBytes":67108864,"swapBytes":0,"pids":40},"network":"none"}`), false)
	if said, code := w.run(in, sb, "memory", "sh", "-c", "head -c 200m /dev/zero | tail -c 200m | wc -c"); code == 0 && strings.TrimSpace(said) == "209715200" {
		t.Errorf("memory: %q %d", said, code)
	}
	quota := "cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu/cpu.cfs_period_us 2>/dev/null || cat /sys/fs/cgroup/cpu.max"
	if said, _ := w.run(in, sb, "cpu", "sh", "-c", quota); strings.Join(strings.Fields(said), " ") != "50000 100000" {
		t.Errorf("cpu: %q", said)
	}
	swap := "cat /sys/fs/cgroup/memory/memory.memsw.limit_in_bytes 2>/dev/null || cat /sys/fs/cgroup/memory.swap.max" // with the memory, or alone
	if said, _ := w.run(in, sb, "swap", "sh", "-c", swap); strings.TrimSpace(said) != "67108864" && strings.TrimSpace(said) != "0" {
		t.Errorf("swap: %q", said)
	}
	if said, _ := w.run(in, sb, "net", "sh", "-c", "ls /sys/class/net"); strings.TrimSpace(said) != "lo" {
		t.Errorf("network: %q", said)
	}
	if said, _ := w.run(in, sb, "pids", "sh", "-c", "i=0; while [ $i -lt 60 ]; do sleep 5 & i=$((i+1)); done 2>&1; echo started $i"); !strings.Contains(said, "fork") {
		t.Errorf("pids: %q", said)
	}
	if r := w.Delete(w.ctx(), in); r.Outcome != resource.Done {
		t.Errorf("%+v", r)
	}
	w.absent(in)
}

// TestAStoppedContainerIsStartedAgain with its memory empty and its home kept.
func TestAStoppedContainerIsStartedAgain(t *testing.T) {
	w := newProviderFixture(t, engine.Endpoint(t))
	def := w.target(`{"image":"` + busybox + `"}`)
	in, sb := w.open(def, false)
	b := sb.(*sandbox)
	if err := b.putSecret(w.ctx(), codex.Name, "auth.json", []byte("one")); err != nil {
		t.Fatal(err)
	}
	if said, code := w.run(in, sb, "1", "sh", "-c", "[ $(cat $HOME/codex/auth.json) = one ] && echo same; echo kept >$HOME/mine"); said != "same\n" || code != 0 {
		t.Fatalf("%q %d", said, code)
	}
	if _, err := b.e.Kill(w.ctx(), in.Resource); err != nil {
		t.Fatal(err)
	}
	if err := b.putSecret(w.ctx(), codex.Name, "auth.json", []byte("canary-2")); err != nil {
		t.Fatal(err)
	}
	if said, code := w.run(in, sb, "2", "sh", "-c", "[ $(cat $HOME/codex/auth.json) = canary-2 ] && cat $HOME/mine"); said != "kept\n" || code != 0 {
		t.Errorf("%q %d", said, code)
	}
	s, _, _ := readSpec(in)
	err := filepath.Walk(s.Dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			if b, err := os.ReadFile(path); err == nil && (strings.Contains(string(b), "canary-2")) {
				t.Errorf("the login is on disk in %s", path)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestStrangersAreNeverTouched: a container of our name, and one with all our labels.
func TestStrangersAreNeverTouched(t *testing.T) {
	w := newProviderFixture(t, engine.Endpoint(t))
	in := w.intent(w.target(`{"image":"`+busybox+`"}`), false)
	e, err := w.c.Connect(w.ctx(), "")
	if err != nil {
		t.Fatal(err)
	}
	want := func() owned.ContainerSpec { s, _, _ := readSpec(in); return s.containerSpec() }()
	cfg := *want.Config
	cfg.Image, cfg.Entrypoint, cfg.Cmd = busybox, []string{"sleep"}, []string{"1000"}
	cfg.Labels = map[string]string{owned.LabelOwner: w.owner, owned.LabelClaim: "another"}
	id, done, err := e.Create(w.ctx(), in.Name, &cfg, &container.HostConfig{})
	if done != resource.Done {
		t.Fatal(err)
	}
	if r := w.Create(w.ctx(), in); r.Outcome != resource.NotDone || !failure.Is(r.Err, failure.AlreadyExists) {
		t.Errorf("%+v", r)
	}
	if o := w.Observe(w.ctx(), in); o.Presence != resource.Foreign {
		t.Errorf("%+v", o)
	}
	if r := w.Delete(w.ctx(), in); r.Outcome == resource.Done {
		t.Errorf("%+v", r)
	}
	if got, presence, err := e.Inspect(w.ctx(), id); presence != resource.Present || got.ID != id {
		t.Errorf("%v %v", presence, err)
	}
}

// TestAnEngineOfAnotherHostRunsNothing: its container has directories of the same names, and what it writes there is not seen here.
func TestAnEngineOfAnotherHostRunsNothing(t *testing.T) {
	proxy := engine.NewProxy(t, engine.Endpoint(t))
	w := newProviderFixture(t, proxy.Endpoint)
	proxy.OnOtherHost(w.dir)
	in, sb := w.open(w.target(`{"image":"`+busybox+`"}`), false)
	ctx, cancel := context.WithTimeout(w.ctx(), 5*time.Second) // of the time that its first process has
	defer cancel()
	s, _, err := readSpec(in)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(s.Dir, sessiondir.Ops, "1")
	err = sb.Launcher().Launch(ctx, dir, supervise.Spec{Argv: []string{"true"}, Env: sb.BaseEnv(), Dir: sb.Workdir(), Mark: supervise.Mark(s.Mark, "1"), MaxOutput: 1})
	if !errors.Is(err, supervise.ErrRefused) || !failure.Is(err, failure.NotReady) || !strings.Contains(err.Error(), "seems to use another file system") || failure.As(err).Hint != "laufwerk doctor --probe" {
		t.Errorf("%v", err)
	}
	if n := proxy.Count(engine.ExecCreate); n > 0 {
		t.Errorf("%d commands were run there", n)
	}
	proxy.Reset()
	if r := w.Delete(w.ctx(), in); r.Outcome != resource.Done {
		t.Errorf("%+v", r)
	}
	w.absent(in)
}

func TestRefusalsBeforeAnythingIsMade(t *testing.T) {
	w := newProviderFixture(t, engine.Endpoint(t))
	for _, c := range []struct{ options, id, says string }{
		{`{"image":"laufwerk-test/absent:1"}`, "docker.image", "docker pull"},
		{`{}`, "docker.image", "laufwerk prepare docker"},
		{`{"image":"` + busybox + `","codexBootstrap":"prepared"}`, "docker.image", "label"},
		{`{"image":"` + busybox + `","env":{"A":{"fromHost":"UNSET"}}}`, "docker.env", "UNSET"},
	} {
		missing := w.Ready(w.ctx(), w.target(c.options), providers.Need{Workspace: true})
		if len(missing) != 1 || missing[0].ID != c.id || !strings.Contains(missing[0].Message+"\n"+missing[0].Hint, c.says) {
			t.Errorf("%s: %+v", c.options, missing)
		}
	}
}

// A build without a program to install runs commands in images of the user's own.
func TestABuildWithNothingToInstall(t *testing.T) {
	w := newProviderFixture(t, engine.Endpoint(t))
	w.c.Programs = agent.Programs{command.New(nil)}
	if missing := w.Ready(w.ctx(), w.target(`{"image":"`+busybox+`"}`), providers.Need{Workspace: true}); len(missing) > 0 {
		t.Errorf("%+v", missing)
	}
	if missing := w.Ready(w.ctx(), w.target(`{}`), providers.Need{Workspace: true}); len(missing) != 1 || missing[0].ID != "docker.image" {
		t.Errorf("%+v", missing)
	}
}

// TestTheArgumentsOfTheSupervisorSayNothing: what runs, with its environment, goes through stdin.
func TestTheArgumentsOfTheSupervisorSayNothing(t *testing.T) {
	argv := strings.Join(guest.Supervise("/laufwerk/ops/1"), " ")
	if argv != guest.Binary+" "+guest.Argument+" supervise /laufwerk/ops/1" {
		t.Errorf("%s", argv)
	}
}
