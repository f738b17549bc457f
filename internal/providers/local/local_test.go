package local

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/agent/codex"
	"github.com/laufwerk/laufwerk/internal/agent/command"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/providers/sessiondir"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/targets"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == supervise.Argument {
		env := system.FromOS()
		os.Exit(supervise.Main(env, env.Args[1:]))
	}
	os.Exit(m.Run())
}

func provider(host map[string]string) *Provider {
	return New(system.Executable(), host, time.Now).WithPrograms(agent.Programs{codex.New(), command.New(host)}, "")
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// intent is one for a session in a folder of its own.
func intent(t *testing.T, p *Provider) resource.Intent {
	t.Helper()
	endpoint, err := p.Endpoint(bounded(t), targets.Definition{})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "run", "sessions", "c1")
	mark := strings.NewReplacer("/", "-").Replace(dir)
	plan, err := p.plan(providers.SessionSpec{Key: "k", Dir: dir, Workspace: "/", Mark: mark})
	if err != nil {
		t.Fatal(err)
	}
	return resource.Intent{Claim: "c1", Name: "laufwerk-c1", Owner: "store", Run: "r", Endpoint: endpoint, Spec: plan.Spec, At: time.Now()}
}

func dirOf(t *testing.T, in resource.Intent) string {
	t.Helper()
	var s spec
	if err := json.Unmarshal(in.Spec, &s); err != nil {
		t.Fatal(err)
	}
	return s.Dir
}

func TestValidate(t *testing.T) {
	p := provider(nil)
	for _, c := range []struct{ given, path, message string }{
		{`{}`, "", ""},
		{``, "", ""},
		{`{"id":"x.y_z-1","credentials":["codex-subscription","claude-subscription","codex-subscription"],"env":{"A":"1","B":{"fromHost":"C"}}}`, "", ""},
		{`[]`, "", "expected an object, got an array"},
		{`{"ID":"x"}`, "ID", "did you mean `id`?"},
		{`{"evn":{}}`, "evn", "did you mean `env`?"},
		{`{"resources":{}}`, "resources", "there is no such option"},
		{`{"id":7}`, "id", "got 7"},
		{`{"id":"a b"}`, "id", `got "a b"`},
		{`{"id":""}`, "id", `expected 1 to 63`},
		{`{"id":"` + strings.Repeat("x", 64) + `"}`, "id", "expected 1 to 63"},
		{`{"credentials":"api-key"}`, "credentials", `expected "codex-subscription" or "claude-subscription", got "api-key"`},
		{`{"credentials":["codex-subscription",true]}`, "credentials[1]", "got true"},
		{`{"env":["A"]}`, "env", "expected an object of variables, got an array"},
		{`{"env":{"A B":"x"}}`, "env.A B", "expected a name of letters"},
		{`{"env":{"1A":"x"}}`, "env.1A", "expected a name of letters"},
		{`{"env":{"":"x"}}`, "env.", "an empty one"},
		{`{"env":{"A":1}}`, "env.A", "expected a string or { fromHost"},
		{`{"env":{"A":null}}`, "env.A", "got null"},
		{`{"env":{"A":{}}}`, "env.A.fromHost", "got nothing"},
		{`{"env":{"A":{"fromhost":"B"}}}`, "env.A.fromhost", "did you mean `fromHost`?"},
		{`{"env":{"A":"x\u0000y"}}`, "env.A", "without NUL"},
		{`{"env":{"OPENAI_API_KEY":"sk"}}`, "env.OPENAI_API_KEY", "billing"},
		{`{"env":{"CODEX_API_KEY":"sk"}}`, "env.CODEX_API_KEY", "billing"},
		{`{"env":{"KEY":{"fromHost":"ANTHROPIC_API_KEY"}}}`, "env.KEY.fromHost", "billing"},
		{`{"env":{"CODEX_HOME":"/x"}}`, "env.CODEX_HOME", "expected no CODEX_HOME: every session has one of its own"},
		{`{"env":{"HOME":"/x","TMPDIR":"/y"}}`, "", ""},
		{`{"env":{"LAUFWERK_MARK":"x"}}`, "env.LAUFWERK_MARK", "laufwerk's own"},
	} {
		def, err := p.Validate(json.RawMessage(c.given))
		if c.message == "" {
			if err != nil {
				t.Errorf("%s: %v", c.given, err)
				continue
			}
			again, err := p.Validate(def.Options)
			if err != nil || again.Fingerprint != def.Fingerprint || string(again.Options) != string(def.Options) || def.Kind != Kind {
				t.Errorf("%s: the normalised form changed: %s %v", c.given, again.Options, err)
			}
			continue
		}
		f := failure.As(err)
		if f == nil || len(f.Paths) != 1 || f.Paths[0] != c.path || !strings.Contains(f.Message, c.message) {
			t.Errorf("%s: %v at %v", c.given, err, f)
		}
		if err != nil && strings.Contains(err.Error(), "sk\"") {
			t.Errorf("a value is told: %v", err)
		}
	}
}

func TestFingerprint(t *testing.T) {
	p := provider(nil)
	of := func(s string) string {
		def, err := p.Validate(json.RawMessage(s))
		if err != nil {
			t.Fatal(err)
		}
		return def.Fingerprint
	}
	base := of(`{"env":{"A":"1","B":"2"},"credentials":["codex-subscription","claude-subscription"]}`)
	if base != of(`{"credentials":["claude-subscription","codex-subscription"],"id":"local","env":{"B":"2","A":"1"}}`) {
		t.Error("order counts")
	}
	for _, other := range []string{`{"env":{"A":"1","B":"3"},"credentials":["codex-subscription","claude-subscription"]}`, `{"env":{"A":"1","B":"2"},"credentials":"codex-subscription"}`, `{}`} {
		if base == of(other) {
			t.Errorf("%s has the same fingerprint", other)
		}
	}
}

func TestReadOnlyAndSkillsAreRefusedWithTheReason(t *testing.T) {
	p := provider(nil)
	info := p.Info()
	if info.ReadOnly || info.ReadOnlyReason == "" || info.Skills || info.SkillsReason == "" || !info.Direct || len(info.Limits) > 0 || !strings.HasPrefix(info.Isolation, "none") {
		t.Errorf("%+v", info)
	}
	_, err := p.plan(providers.SessionSpec{Dir: "/x", ReadOnly: true})
	if !failure.Is(err, failure.Unsupported) || !strings.Contains(err.Error(), info.ReadOnlyReason) {
		t.Errorf("%v", err)
	}
}

func TestReady(t *testing.T) {
	def, err := provider(nil).Validate(json.RawMessage(`{"env":{"A":{"fromHost":"WANTED"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	path := os.Getenv("PATH")
	for _, c := range []struct {
		host map[string]string
		want []string
	}{
		{map[string]string{"PATH": path, "WANTED": ""}, nil},
		{map[string]string{"PATH": path}, []string{"local.env"}},
		{map[string]string{"PATH": "/nowhere", "WANTED": "x"}, []string{"local.bash"}},
	} {
		var got []string
		for _, cond := range provider(c.host).Ready(bounded(t), def, providers.Need{}) {
			got = append(got, cond.ID)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.host, got, c.want)
		}
	}
}

// What is missing is said with what to type.
func TestAnAgentProgramThatCannotBeRun(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	path := dir + ":" + os.Getenv("PATH")
	for program, want := range map[string]struct{ says, hint string }{
		"bash": {}, "./in/the/workspace": {},
		"nosuchprogram": {"nosuchprogram is not in PATH (" + path + ")", `export PATH=/directory/of/nosuchprogram:"$PATH"`},
		dir + "/nosuch": {dir + "/nosuch does not exist", ""},
		"plain":         {"plain may not be run", `export PATH=/directory/of/plain:"$PATH"`},
		plain:           {plain + " may not be run", "chmod a+x " + plain},
	} {
		got := provider(map[string]string{"PATH": path}).Ready(bounded(t), targets.Definition{}, providers.Need{Executable: program})
		if want.says == "" {
			if len(got) > 0 {
				t.Errorf("%s: %+v", program, got)
			}
			continue
		}
		if len(got) != 1 || !strings.Contains(got[0].Message, want.says) || !strings.HasPrefix(got[0].Hint, want.hint) || (want.hint == "") != (got[0].Hint == "") {
			t.Errorf("%s: %+v", program, got)
		}
	}
}

func TestToolsGetAnAllowListOfTheEnvironment(t *testing.T) {
	host := map[string]string{
		"HOME": "/home/x", "PATH": "/bin", "LC_ALL": "C", "TZ": "UTC", "GOPROXY": "https://proxy.example", "FROM": "here",
		"https_proxy": "http://user:secret@proxy:1", "HTTP_PROXY": "user:secret@proxy:1", "no_proxy": "localhost,.example",
		"SSH_AUTH_SOCK": "/s", "GPG_AGENT_INFO": "/s", "DBUS_SESSION_BUS_ADDRESS": "x", "XDG_RUNTIME_DIR": "/run", "AWS_SECRET_ACCESS_KEY": "x",
		"GOOGLE_APPLICATION_CREDENTIALS": "x", "DOCKER_HOST": "x", "KUBECONFIG": "x", "LAUFWERK_HOME": "x", "GITHUB_TOKEN": "x",
		"OPENAI_API_KEY": "x", "ANTHROPIC_API_KEY": "x", "NODE_OPTIONS": "x", "LD_PRELOAD": "x", "MAKEFLAGS": "x",
	}
	p := provider(host)
	def, err := p.Validate(json.RawMessage(`{"env":{"A":"1","B":{"fromHost":"FROM"},"TZ":"CET"}}`))
	if err != nil {
		t.Fatal(err)
	}
	in := intent(t, p)
	if r := p.Create(bounded(t), in); r.Outcome != resource.Done {
		t.Fatalf("%+v", r)
	}
	sb, err := p.Enter(bounded(t), in, def)
	if err != nil {
		t.Fatal(err)
	}
	var s spec
	_ = json.Unmarshal(in.Spec, &s)
	want := []string{"GOPROXY=https://proxy.example", "HOME=/home/x", "LC_ALL=C", "PATH=/bin", "TZ=UTC", "no_proxy=localhost,.example", "A=1", "B=here", "TZ=CET", "LAUFWERK_MARK=" + s.Mark}
	if got := sb.BaseEnv(); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	if sb.Workdir() != "/" || sb.Home() != filepath.Join(s.Dir, "home") {
		t.Errorf("%s %s", sb.Workdir(), sb.Home())
	}
	delete(host, "FROM")
	if _, err := provider(host).Enter(bounded(t), in, def); !failure.Is(err, failure.NotReady) || !strings.Contains(err.Error(), "FROM") {
		t.Errorf("%v", err)
	}
}

func TestASessionFromItsMakingToItsAbsence(t *testing.T) {
	p := provider(map[string]string{"PATH": os.Getenv("PATH")})
	in, ctx := intent(t, p), bounded(t)
	dir := dirOf(t, in)
	if o := p.Observe(ctx, in); o.Presence != resource.Absent || len(o.Evidence) == 0 {
		t.Fatalf("%+v", o)
	}
	if _, err := p.Enter(ctx, in, targets.Definition{}); !failure.Is(err, failure.SessionLost) {
		t.Fatalf("%v", err)
	}
	for range 2 { // a second one finds the first
		if r := p.Create(ctx, in); r.Outcome != resource.Done || r.Resource != dir {
			t.Fatalf("%+v", r)
		}
	}
	if o := p.Observe(ctx, in); o.Presence != resource.Present {
		t.Fatalf("%+v", o)
	}
	sb, err := p.Enter(ctx, in, targets.Definition{})
	if err != nil {
		t.Fatal(err)
	}
	var s spec
	_ = json.Unmarshal(in.Spec, &s)
	word := filepath.Base(filepath.Dir(filepath.Dir(filepath.Dir(dir)))) + "-daemon"
	proc, err := supervise.Start(ctx, sb.Launcher(), filepath.Join(dir, "ops", "1"), supervise.Spec{
		Argv: []string{"bash", "-c", "mkdir $0/d; chmod 0 $0/d; ln -s / $0/link; mkfifo $0/fifo; env -i setsid bash -c 'exec -a " + word + " sleep 1000' & true", sb.Home()},
		Env:  sb.BaseEnv(), Dir: sb.Workdir(), Mark: supervise.Mark(s.Mark, "1"), MaxOutput: 1000,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := proc.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if err := exec.Command("pgrep", "-f", word).Run(); err != nil {
		t.Fatalf("the background process is not there: %v", err)
	}
	r := p.Delete(ctx, in)
	if r.Outcome != resource.Done || r.Err != nil {
		t.Fatalf("%+v", r)
	}
	if o := p.Observe(ctx, in); o.Presence != resource.Absent {
		t.Fatalf("%+v", o)
	}
	if out, err := exec.Command("pgrep", "-f", word).Output(); err == nil {
		t.Fatalf("%s still lives", out)
	}
	if left, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(left) > 0 {
		t.Fatalf("%v %v", left, err)
	}
	if r := p.Delete(ctx, in); r.Outcome != resource.Done {
		t.Fatalf("a second delete: %+v", r)
	}
}

func TestAStrangersDirectoryIsNeverTouched(t *testing.T) {
	plant := map[string]func(dir string) error{
		"empty":  func(dir string) error { return os.MkdirAll(dir, 0o755) },
		"a file": func(dir string) error { return os.WriteFile(dir, []byte("x"), 0o600) },
		"a link": func(dir string) error { return os.Symlink("/etc", dir) },
		"another claim": func(dir string) error {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, "session.json"), []byte(`{"claim":"c2","name":"laufwerk-c1","owner":"store"}`), 0o600)
		},
		"garbage": func(dir string) error {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, "session.json"), []byte("{"), 0o600)
		},
	}
	for name, put := range plant {
		t.Run(name, func(t *testing.T) {
			p := provider(nil)
			in, ctx := intent(t, p), bounded(t)
			dir := dirOf(t, in)
			if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := put(dir); err != nil {
				t.Fatal(err)
			}
			before, err := os.Lstat(dir)
			if err != nil {
				t.Fatal(err)
			}
			if r := p.Create(ctx, in); r.Outcome != resource.NotDone || !failure.Is(r.Err, failure.AlreadyExists) {
				t.Errorf("create: %+v", r)
			}
			if o := p.Observe(ctx, in); o.Presence != resource.Foreign {
				t.Errorf("observe: %+v", o)
			}
			if r := p.Delete(ctx, in); r.Outcome != resource.NotDone || r.Err == nil {
				t.Errorf("delete: %+v", r)
			}
			if _, err := p.Enter(ctx, in, targets.Definition{}); !failure.Is(err, failure.SessionLost) {
				t.Errorf("enter: %v", err)
			}
			if after, err := os.Lstat(dir); err != nil || !os.SameFile(before, after) || !before.ModTime().Equal(after.ModTime()) {
				t.Errorf("it was touched: %v", err)
			}
		})
	}
}

func TestHalfMadeAndHalfEndedSessions(t *testing.T) {
	for _, suffix := range []string{".making", ".ending"} {
		p := provider(nil)
		in, ctx := intent(t, p), bounded(t)
		dir := dirOf(t, in)
		half := dir + suffix
		if err := os.MkdirAll(filepath.Join(half, sessiondir.Home), 0o700); err != nil {
			t.Fatal(err)
		}
		if o := p.Observe(ctx, in); o.Presence != resource.Unobserved {
			t.Errorf("%s: %+v", suffix, o)
		}
		if suffix == ".making" {
			if r := p.Resolve(ctx, in); r.Outcome != resource.Done {
				t.Errorf("%+v", r)
			}
		}
		if r := p.Delete(ctx, in); r.Outcome != resource.Done || r.Err != nil {
			t.Errorf("%s: %+v", suffix, r)
		}
		if o := p.Observe(ctx, in); o.Presence != resource.Absent {
			t.Errorf("%s: %+v", suffix, o)
		}
	}
}

func TestAnotherMachineSeesNothing(t *testing.T) {
	p := provider(nil)
	in, ctx := intent(t, p), bounded(t)
	if r := p.Create(ctx, in); r.Outcome != resource.Done {
		t.Fatalf("%+v", r)
	}
	in.Endpoint = "linux/amd64 machine another"
	if o := p.Observe(ctx, in); o.Presence != resource.Unobserved || o.Err == nil {
		t.Errorf("%+v", o)
	}
	if r := p.Delete(ctx, in); r.Outcome != resource.NotDone {
		t.Errorf("%+v", r)
	}
	if _, err := p.Enter(ctx, in, targets.Definition{}); !failure.Is(err, failure.SessionLost) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(dirOf(t, in)); err != nil {
		t.Error(err)
	}
}

func TestWhatCannotBeFencedIsKept(t *testing.T) {
	p := provider(nil)
	in, ctx := intent(t, p), bounded(t)
	if r := p.Create(ctx, in); r.Outcome != resource.Done {
		t.Fatalf("%+v", r)
	}
	op := filepath.Join(dirOf(t, in), sessiondir.Ops, "1")
	if err := os.Mkdir(op, 0o700); err != nil {
		t.Fatal(err)
	}
	// A supervisor without a control group that somebody killed.
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Skip(err)
	}
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	var started supervise.StartRecord
	started.Supervisor.PID, started.Supervisor.StartTime = 1<<22-1, 1
	started.Supervisor.BootID, started.Supervisor.PIDNS = strings.TrimSpace(string(boot)), ns
	started.Mark = "m/1"
	b, err := json.Marshal(started)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(op, "started"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	r := p.Delete(ctx, in)
	if r.Outcome != resource.NotDone || !failure.Is(r.Err, failure.OutcomeUnknown) {
		t.Fatalf("%+v", r)
	}
	if o := p.Observe(ctx, in); o.Presence != resource.Present {
		t.Fatalf("%+v", o)
	}
	if _, err := os.Stat(op); errors.Is(err, os.ErrNotExist) {
		t.Fatal("its records are gone")
	}
}
