package openshell

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/agent/codex"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/providers/guestclient"
	"github.com/laufwerk/laufwerk/internal/providers/sessiondir"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/targets"
	"github.com/laufwerk/laufwerk/internal/testkit"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
	"github.com/laufwerk/laufwerk/internal/testkit/gateway"
)

// Sandboxes are no place for root.
func TestAsAnOrdinaryUser(t *testing.T) {
	engine.AsOrdinaryUser(t, "^TestSandbox", "TestSandboxRunsCommands", "TestSandboxFences", "TestSandboxWithoutRecords", "TestSandboxOutlivesItsGateway", "TestSandboxEndsWithItsMainProcess", "TestSandboxGivesPlaceholders", "TestSandboxAsksLittle",
		"TestSandboxIsWhatWasAskedFor", "TestSandboxIsFoundAndEndedOnAnEngine", "TestSandboxOrphansAreRemoved", "TestSandboxWhoseProofIsTakenAway", "TestSandboxWhoseProofIsTakenAwayUnheard", "TestSandboxWithProfilesOfAnAgent", "TestSandboxInWhichAllElseIsStopped",
		"TestSandboxWhoseRecordsAreChanged", "TestSandboxThatIsLeftInAMess")
}

// boxes is a gateway whose sandboxes are containers, and a worker of this user.
type boxes struct {
	t testing.TB
	*worker
	image string
	login string // the provider that sandboxes get
}

func newBoxes(t *testing.T) *boxes {
	t.Helper()
	if os.Getuid() == 0 {
		t.Skip("root runs it in TestAsAnOrdinaryUser")
	}
	endpoint := engine.Endpoint(t)
	w := &gatewayFixture{t: t, g: gateway.Containers(t, gateway.Options{}), config: t.TempDir(), dir: t.TempDir(), owner: "store-" + strings.ToLower(rand.Text()[:10])}
	must(t, os.Mkdir(filepath.Join(w.dir, "work"), 0o700))
	w.g.Register(w.config, here)
	w.engine = w.connect(endpoint)
	r, err := w.registrations().Find(here)
	must(t, err)
	w.endpoint = r.Identity()
	got, err := engine.Client(t, endpoint).ImageInspect(bounded(t), engine.Base)
	must(t, err)
	b := &boxes{t: t, image: got.ID}
	b.worker = w.worker(func(c *Config) { c.Executable, c.UID, c.GID = testkit.Binary(t), os.Getuid(), os.Getgid() })
	b.patient()
	return b
}

// patient bounds waits by what a busy machine takes.
func (b *boxes) patient() {
	b.Provider.w = New(Config{}).w
	b.Provider.w.patience = guestclient.CommandLimit
}

// another is a worker that comes after, and knows what is recorded alone.
func (b *boxes) another() *boxes {
	b.t.Helper()
	next := *b
	next.worker = b.w.worker(func(c *Config) { c.Executable, c.UID, c.GID = testkit.Binary(b.t), os.Getuid(), os.Getgid() })
	next.patient()
	return &next
}

var coding = targets.Definition{Kind: Kind, ID: "secure-coding"} //nolint:gochecknoglobals // a constant

func (b *boxes) open(readOnly bool) (resource.Intent, providers.Sandbox) {
	b.t.Helper()
	in := b.w.intent(func(s *spec) {
		s.Image, s.UID, s.GID, s.Binary, s.ReadOnly, s.Provider = b.image, os.Getuid(), os.Getgid(), testkit.Binary(b.t), readOnly, b.login
	})
	r := b.Create(bounded(b.t), in)
	if r.Outcome != resource.Done {
		b.t.Fatalf("%+v", r)
	}
	in.Resource = r.Resource
	sb, err := b.Enter(bounded(b.t), in, coding)
	must(b.t, err)
	b.t.Cleanup(func() {
		if r := b.another().Delete(context.Background(), in); r.Outcome != resource.Done {
			b.t.Errorf("%+v", r)
		}
	})
	return in, sb
}

func ops(t testing.TB, in resource.Intent, name string) string {
	t.Helper()
	s, err := readSpec(in)
	must(t, err)
	return filepath.Join(s.Dir, sessiondir.Ops, name)
}

func specOf(in resource.Intent, sb providers.Sandbox, name string, argv ...string) supervise.Spec {
	return supervise.Spec{Argv: argv, Env: sb.BaseEnv(), Dir: sb.Workdir(), Mark: supervise.Mark(in.Claim, name), MaxOutput: 1 << 20, Grace: time.Second}
}

func (b *boxes) start(in resource.Intent, sb providers.Sandbox, name, script string) *supervise.Process {
	b.t.Helper()
	p, err := supervise.Start(bounded(b.t), sb.Launcher(), ops(b.t, in, name), specOf(in, sb, name, "bash", "-c", script))
	must(b.t, err)
	return p
}

func (b *boxes) run(in resource.Intent, sb providers.Sandbox, name, script string) (string, int) {
	b.t.Helper()
	return b.ended(b.start(in, sb, name, script))
}

func (b *boxes) ended(p *supervise.Process) (string, int) {
	b.t.Helper()
	exit, err := p.Wait(bounded(b.t))
	must(b.t, err)
	out, _, err := p.Output(supervise.Stdout)
	must(b.t, err)
	talk, _, _ := p.Output(supervise.Stderr)
	return string(out) + string(talk), exit.Code
}

// says waits for the first words of a command.
func (b *boxes) says(p *supervise.Process, what string) {
	b.t.Helper()
	eventually(b.t, what, func() bool { out, _, _ := p.Output(supervise.Stdout); return string(out) == what })
}

// refused makes sure that a session can only be closed.
func (b *boxes) refused(in resource.Intent) {
	b.t.Helper()
	eventually(b.t, "the session is lost", func() bool {
		_, err := b.Enter(bounded(b.t), in, coding)
		return failure.Is(err, failure.SessionLost)
	})
}

func (b *boxes) containers(in resource.Intent) int {
	b.t.Helper()
	_, n := b.w.there(in)
	return n
}

// endStandby ends the supervisor that stands by, once one does. Its own may have stood by, too; where it did not, none does.
const endStandby = `stands() { tr '\0' ' ' <"/proc/$1/cmdline" | grep -q ' standby '; }
stands $PPID || exit 0
for i in $(seq 100); do
	for p in $(pgrep -x laufwerk); do
		if [ "$p" != $PPID ] && stands "$p"; then kill -9 "$p"; exit 0; fi
	done
	sleep 0.1
done
exit 1`

func TestSandboxRunsCommands(t *testing.T) {
	b := newBoxes(t)
	in, sb := b.open(false)
	for name, c := range map[string]struct {
		script, says string
		code         int
	}{
		"done":      {"echo out; echo err >&2", "out\nerr\n", 0},
		"exit-7":    {"exit 7", "", 7},
		"killed":    {"kill -9 $$", "", 137},
		"ended":     {"kill -TERM $$", "", 143},
		"identity":  {"id -u; echo $HOME $TMPDIR $PWD $LAUFWERK_MARK", fmt.Sprintf("%d\n/sandbox/home /tmp /sandbox/work %s/identity\n", os.Getuid(), in.Claim), 0},
		"openshell": {"env | grep -c ^OPENSHELL_; test -n \"$HTTPS_PROXY$https_proxy\" && echo proxy", "0\nproxy\n", 0},
		"write":     {"echo new >file && cat file; touch /sandbox/new 2>/dev/null || echo refused", "new\nrefused\n", 0},
	} {
		if said, code := b.run(in, sb, name, c.script); said != c.says || code != c.code {
			t.Errorf("%s: %q and %d, want %q and %d", name, said, code, c.says, c.code)
		}
	}
	for name, code := range map[string]int{"/nowhere": 127, "/etc/passwd": 126} {
		p, err := supervise.Start(bounded(t), sb.Launcher(), ops(t, in, "no"+name[1:4]), specOf(in, sb, "no", name))
		must(t, err)
		if _, got := b.ended(p); got != code {
			t.Errorf("%s: %d", name, got)
		}
	}
	// What no request of a gateway could hold goes in all the same: values of several lines, and words as they are.
	odd := specOf(in, sb, "odd", "bash", "-c", `printf '%s|' "$LINES_OF_IT" "$@"`, "x", "a b", "", "$x", "*", `'"`, "l1\nl2")
	odd.Env = append(odd.Env, "LINES_OF_IT=1\n2")
	strange, err := supervise.Start(bounded(t), sb.Launcher(), ops(t, in, "odd"), odd)
	must(t, err)
	if said, code := b.ended(strange); said != "1\n2|a b||$x|*|'\"|l1\nl2|" || code != 0 {
		t.Errorf("%q %d", said, code)
	}
	// What does not fit into one request comes all the same, in the order that it was given in: to a supervisor that stands by,
	// and where an agent has ended that one.
	input := make([]byte, 3<<20)
	_, _ = rand.Read(input)
	sum := sha256.Sum256(input)
	for try, inParts := 1, false; !inParts; try++ { // on a busy machine one may stand by late, and be there once more
		name := fmt.Sprintf("large-%d", try)
		large := specOf(in, sb, name, "bash", "-c", "sha256sum | cut -c1-64; ls /dev/shm/laufwerk/input/"+name)
		large.Stdin = input
		p, err := supervise.Start(bounded(t), sb.Launcher(), ops(t, in, name), large)
		must(t, err)
		said, code := b.ended(p)
		inParts = code == 0
		if !strings.HasPrefix(said, hex.EncodeToString(sum[:])+"\n") || try == 1 && inParts || try > 10 {
			t.Fatalf("%s: %q %d", name, said, code)
		}
		if _, code := b.run(in, sb, "end-"+name, endStandby); code != 0 {
			t.Errorf("%s: %d", name, code)
		}
	}
	// A timeout ends what a command has started, and not the session.
	late := specOf(in, sb, "late", "bash", "-c", "trap '' INT; sleep 1001 & setsid sleep 1001 & sleep 1001")
	late.Timeout, late.Grace = 200*time.Millisecond, 200*time.Millisecond
	p, err := supervise.Start(bounded(t), sb.Launcher(), ops(t, in, "late"), late)
	must(t, err)
	if exit, err := p.Wait(bounded(t)); err != nil || !exit.TimedOut {
		t.Errorf("%+v %v", exit, err)
	}
	if said, code := b.run(in, sb, "after", "pgrep -x sleep"); said != "" || code != 1 {
		t.Errorf("%q %d", said, code)
	}
	asked := b.start(in, sb, "asked", "trap 'echo asked; exit 3' INT; echo began; while :; do sleep 0.1; done")
	b.says(asked, "began\n")
	must(t, asked.Interrupt(bounded(t)))
	if said, code := b.ended(asked); said != "began\nasked\n" || code != 3 {
		t.Errorf("%q %d", said, code)
	}
	_, reader := b.open(true)
	if err := reader.WriteFile(bounded(t), "file", nil); !failure.Is(err, failure.Unsupported) {
		t.Errorf("%v", err)
	}
}

func TestSandboxReadsOnly(t *testing.T) {
	b := newBoxes(t)
	in, sb := b.open(true)
	must(t, os.WriteFile(filepath.Join(b.w.dir, "work", "file"), []byte("old\n"), 0o600))
	said, _ := b.run(in, sb, "1", "cat file; echo new >file; rm file; touch other; echo home >$HOME/note && cat $HOME/note")
	if !strings.HasPrefix(said, "old\nhome\n") || strings.Count(said, "Read-only file system") != 3 && strings.Count(said, "ermission denied")+strings.Count(said, "Read-only file system") != 3 {
		t.Errorf("%q", said)
	}
	if got, err := os.ReadFile(filepath.Join(b.w.dir, "work", "file")); err != nil || string(got) != "old\n" {
		t.Errorf("%q %v", got, err)
	}
}

func TestSandboxFiles(t *testing.T) {
	b := newBoxes(t)
	in, sb := b.open(false)
	content := make([]byte, providers.MaxFile)
	_, _ = rand.Read(content)
	sum := sha256.Sum256(content)
	must(t, sb.WriteFile(bounded(t), "a/b/large", content))
	if said, code := b.run(in, sb, "1", "sha256sum a/b/large | cut -c1-64; cp a/b/large /sandbox/work/copy"); said != hex.EncodeToString(sum[:])+"\n" || code != 0 {
		t.Errorf("%q %d", said, code)
	}
	if got, err := sb.ReadFile(bounded(t), "/sandbox/work/copy"); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if err := sb.WriteFile(bounded(t), "more", make([]byte, providers.MaxFile+1)); !failure.Is(err, failure.OutputTooLarge) {
		t.Errorf("%v", err)
	}
	if _, err := sb.ReadFile(bounded(t), "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	must(t, sb.PutFile(bounded(t), "codex", agent.File{Path: "token", Content: []byte("secret"), Mode: 0o600, Secret: true}))
	if said, code := b.run(in, sb, "2", "cat $HOME/codex/token; readlink $HOME/codex/token"); said != "secret/dev/shm/laufwerk/secret/codex/token\n" || code != 0 {
		t.Errorf("%q %d", said, code)
	}
}

func TestSandboxFences(t *testing.T) {
	b := newBoxes(t)
	in, sb := b.open(false)
	// By its supervisor, from another worker, and the sandbox stays.
	p := b.start(in, sb, "1", "trap '' INT TERM; (env -i setsid sleep 1001 &); echo began; while :; do sleep 0.1; done")
	b.says(p, "began\n")
	next := b.another()
	again, err := next.Enter(bounded(t), in, coding)
	must(t, err)
	if f := again.Launcher().Fence(bounded(t), p.Dir()); !f.Sure || f.How != supervise.HowSubreaper {
		t.Fatalf("%+v", f)
	}
	// Nothing that an agent does by accident ends the session.
	if said, code := b.run(in, again, "2", "pkill sleep; pkill -f 'sleep infinity'; pkill -TERM laufwerk; pgrep -x sleep; echo over"); code != 143 && said != "over\n" {
		t.Errorf("%q %d", said, code)
	}
	if said, code := b.run(in, again, "3", "pgrep -x sleep; echo lives"); said != "lives\n" || code != 0 {
		t.Errorf("%q %d", said, code)
	}
	// Of a killed supervisor nothing is sure but the end of the sandbox.
	p = b.start(in, again, "4", "env -i setsid sleep 1002 & echo began; sleep 1003")
	b.says(p, "began\n")
	if _, code := b.run(in, again, "5", "kill -9 $(ps -o ppid= -p $(pgrep -fx 'sleep 1003'))"); code != 0 {
		t.Errorf("%d", code)
	}
	if _, err := p.Wait(bounded(t)); !errors.Is(err, supervise.ErrLost) {
		t.Fatalf("%v", err)
	}
	if f := again.Launcher().Fence(bounded(t), p.Dir()); !f.Sure || f.How != supervise.HowSandbox || b.containers(in) != 0 {
		t.Errorf("%+v", f)
	}
	b.refused(in)
}

// Whoever takes the records of a command away does not make it one that was never started, for no worker.
func TestSandboxWithoutRecords(t *testing.T) {
	b := newBoxes(t)
	in, sb := b.open(false)
	p := b.start(in, sb, "1", "cd /sandbox/ops/1; echo began; rm lock started; sleep 1001")
	if _, err := p.Wait(bounded(t)); !errors.Is(err, supervise.ErrLost) {
		t.Fatalf("%v", err)
	}
	again, err := b.another().Enter(bounded(t), in, coding)
	must(t, err)
	if status, err := supervise.Abandon(p.Dir()); status != supervise.NotStarted || err != nil {
		t.Errorf("%v %v", status, err)
	}
	if f := again.Launcher().Fence(bounded(t), p.Dir()); !f.Sure || f.How != supervise.HowSandbox || b.containers(in) != 0 {
		t.Errorf("%+v", f)
	}
	// One that was never launched is none.
	in, sb = b.open(false)
	if f := sb.Launcher().Fence(bounded(t), ops(t, in, "never")); !f.Sure || f.How != supervise.HowNothing || b.containers(in) != 1 {
		t.Errorf("%+v", f)
	}
}

// A cancelled command takes its sandbox with it, also where its supervisor could end it.
func TestSandboxIsDeletedByCancellation(t *testing.T) {
	b := newBoxes(t)
	in, sb := b.open(false)
	p := b.start(in, sb, "1", "sleep 1001 & echo began; sleep 1001")
	b.says(p, "began\n")
	l := sb.Launcher()
	if f := l.Cancel(bounded(t), p.Dir()); !f.Sure || f.How != supervise.HowSandbox || b.containers(in) != 0 {
		t.Errorf("%+v", f)
	}
	if _, err := p.Wait(bounded(t)); !errors.Is(err, supervise.ErrLost) {
		t.Errorf("%v", err)
	}
	b.refused(in)
	if err := sb.Launcher().Launch(bounded(t), ops(t, in, "2"), specOf(in, sb, "2", "true")); !errors.Is(err, supervise.ErrRefused) || !failure.Is(err, failure.SessionLost) {
		t.Errorf("%v", err)
	}
	// `runs cancel` without a worker knows the intent alone.
	in, _ = b.open(false)
	only, err := b.another().Enter(bounded(t), in, targets.Definition{})
	must(t, err)
	if f := only.Fence(bounded(t)); !f.Sure || b.containers(in) != 0 {
		t.Errorf("%+v", f)
	}
	b.refused(in)
}

func TestSandboxOutlivesItsGateway(t *testing.T) {
	b := newBoxes(t)
	in, sb := b.open(false)
	p := b.start(in, sb, "1", "echo began; while [ ! -e go ]; do sleep 0.05; done; echo over; exit 7")
	b.says(p, "began\n")
	// Killed, it leaves everything as it is; its next life finds the sandbox again after a while.
	b.w.g.Restart()
	if _, err := b.Enter(bounded(t), in, coding); err != nil { // its connection was interrupted
		t.Errorf("%v", err)
	}
	// While the sandbox has not come back to it, what needs the gateway waits for that.
	b.w.g.Restart()
	g, err := b.gateway(bounded(t), here)
	must(t, err)
	eventually(t, "there is a connection again", func() bool { _, presence, _ := g.Get(bounded(t), in.Name); return presence == resource.Present })
	must(t, sb.PutFile(bounded(t), "codex", agent.File{Path: "token", Content: []byte("secret"), Mode: 0o600, Secret: true}))
	next := b.another()
	again, err := next.Enter(bounded(t), in, coding)
	must(t, err)
	joined := supervise.Attach(again.Launcher(), p.Dir(), 1<<20)
	must(t, again.WriteFile(bounded(t), "go", nil))
	if said, code := b.ended(joined); said != "began\nover\n" || code != 7 {
		t.Errorf("%q %d", said, code)
	}
	// Stopped in order, it ends all processes, and is READY with nothing of them afterwards.
	p = b.start(in, again, "2", "env -i setsid sleep 1001 & echo began; sleep 1001")
	b.says(p, "began\n")
	b.w.g.Stop()
	if _, err := p.Wait(bounded(t)); !errors.Is(err, supervise.ErrLost) {
		t.Fatalf("%v", err)
	}
	next.Provider.w.ready = time.Second
	if f := again.Launcher().Fence(bounded(t), p.Dir()); f.Sure || !f.Later {
		t.Errorf("without a gateway nothing is certain: %+v", f)
	}
	b.w.g.Start()
	third, err := b.another().Enter(bounded(t), in, coding)
	must(t, err)
	if f := third.Launcher().Fence(bounded(t), p.Dir()); !f.Sure || f.How != supervise.HowContainer || b.containers(in) != 1 {
		t.Errorf("%+v", f)
	}
	if said, code := b.run(in, third, "3", "pgrep -x sleep; ls; echo goes on"); said != "file\ngo\ngoes on\n" && said != "go\ngoes on\n" || code != 0 {
		t.Errorf("%q %d", said, code)
	}
}

func TestSandboxEndsWithItsMainProcess(t *testing.T) {
	b := newBoxes(t)
	in, sb := b.open(false)
	b.start(in, sb, "1", "pkill -9 -f 'inside hold'; sleep 1001")
	b.refused(in)
	if err := sb.Launcher().Launch(bounded(t), ops(t, in, "2"), specOf(in, sb, "2", "true")); err == nil {
		t.Error("it goes on")
	}
}

// What becomes of a supervisor is told by its records, whatever the gateway says or does not say.
func TestSandboxIsBelievedByItsRecords(t *testing.T) {
	b := newBoxes(t)
	in, sb := b.open(false)
	for i, f := range []gateway.Fault{gateway.CutExec(), gateway.EndExec(), gateway.LoseReply(), gateway.LoseRequest(), gateway.Delay(100 * time.Millisecond)} {
		name := fmt.Sprint("op", i)
		b.w.g.Fault("ExecSandbox", f)
		err := sb.Launcher().Launch(bounded(t), ops(t, in, name), specOf(in, sb, name, "bash", "-c", "echo done; exit 7"))
		b.w.g.Faultless()
		if errors.Is(err, supervise.ErrRefused) {
			if status, err := supervise.Abandon(ops(t, in, name)); status != supervise.NotStarted || err != nil {
				t.Errorf("%d: %v %v", i, status, err)
			}
			continue
		}
		if err != nil && !failure.Is(err, failure.OutcomeUnknown) {
			t.Errorf("%d: %v", i, err)
			continue
		}
		status, aerr := supervise.Abandon(ops(t, in, name))
		if must(t, aerr); status == supervise.NotStarted {
			if err == nil {
				t.Errorf("%d: it was said to run", i)
			}
			continue
		}
		if said, code := b.ended(supervise.Attach(sb.Launcher(), ops(t, in, name), 1<<20)); said != "done\n" || code != 7 {
			t.Errorf("%d: %q %d", i, said, code)
		}
	}
}

func TestSandboxGivesPlaceholders(t *testing.T) {
	b := newBoxes(t)
	g, err := b.gateway(bounded(t), here)
	must(t, err)
	held := map[string]string{"CODEX_AUTH_ACCESS_TOKEN": "real-access", "CODEX_AUTH_REFRESH_TOKEN": "real-refresh", "CODEX_AUTH_ACCOUNT_ID": "real-account"}
	login := func(name string, expires map[string]int64) *wire.Provider {
		return &wire.Provider{Metadata: &wire.ObjectMeta{Name: name}, Type: "codex", Credentials: held, CredentialExpiresAtMs: expires}
	}
	_, err = g.CreateProvider(bounded(t), login("good", nil))
	must(t, err)
	_, err = g.CreateProvider(bounded(t), login("over", map[string]int64{"CODEX_AUTH_ACCESS_TOKEN": 1}))
	must(t, err)
	b.login = "good"
	in, sb := b.open(false)
	got, err := sb.Program(bounded(t), codex.Name)
	must(t, err)
	if got.Home != "/sandbox/home/codex" || !strings.HasPrefix(got.Path, "/sandbox/.harness-bootstrap/codex/node_modules/@openai/") {
		t.Errorf("%+v", got)
	}
	said, code := b.run(in, sb, "1", "cat $HOME/codex/auth.json; grep -rl real- $HOME /proc/self/environ /sandbox/ops 2>/dev/null")
	var auth struct {
		AuthMode string            `json:"auth_mode"`
		Tokens   map[string]string `json:"tokens"`
	}
	if err := json.Unmarshal([]byte(said), &auth); err != nil || code != 1 {
		t.Fatalf("%v %d\n%s", err, code, said)
	}
	for key, suffix := range map[string]string{"access_token": "CODEX_AUTH_ACCESS_TOKEN", "account_id": "CODEX_AUTH_ACCOUNT_ID"} {
		if v := auth.Tokens[key]; !placeholder(v) || !strings.HasSuffix(v, suffix) {
			t.Errorf("%s: %q", key, v)
		}
	}
	part := strings.Split(auth.Tokens["id_token"], ".")
	if payload, err := base64.RawURLEncoding.DecodeString(part[1]); auth.AuthMode != "chatgpt" || auth.Tokens["refresh_token"] != "" || len(part) != 3 || err != nil || !json.Valid(payload) {
		t.Errorf("%+v", auth)
	}
	// What the gateway has of a login is asked for before each turn: a rotation is taken up, and an end in the middle of a session
	// is found before Codex is started without a login.
	rotated := login("good", nil)
	_, err = g.UpdateProvider(bounded(t), rotated)
	must(t, err)
	_, err = sb.Program(bounded(t), codex.Name)
	must(t, err)
	again, _ := b.run(in, sb, "2", "cat $HOME/codex/auth.json")
	was := auth.Tokens["access_token"]
	if err := json.Unmarshal([]byte(again), &auth); err != nil || auth.Tokens["access_token"] == was || !placeholder(auth.Tokens["access_token"]) {
		t.Errorf("after a rotation it is %q, as before: %v", auth.Tokens["access_token"], err)
	}
	rotated.CredentialExpiresAtMs = map[string]int64{"CODEX_AUTH_ACCESS_TOKEN": 1}
	_, err = g.UpdateProvider(bounded(t), rotated)
	must(t, err)
	if _, err := sb.Program(bounded(t), codex.Name); !failure.Is(err, failure.NotReady) || !strings.Contains(failure.As(err).Hint, "--rotate") {
		t.Errorf("it expired in the middle of the session: %v", err)
	}
	b.login = "over"
	_, sb = b.open(false)
	_, err = sb.Program(bounded(t), codex.Name)
	if f := failure.As(err); !failure.Is(err, failure.NotReady) || !strings.Contains(f.Message, "CODEX_AUTH_ACCESS_TOKEN") || f.Hint != "laufwerk provision openshell --target secure-coding --rotate" {
		t.Errorf("%v", err)
	}
	if p, err := sb.Program(bounded(t), "command"); err != nil || p.Path != "" {
		t.Errorf("%+v %v", p, err)
	}
}

func TestWhatIsAPlaceholder(t *testing.T) {
	for value, is := range map[string]bool{
		"openshell:resolve:env:v12_CODEX_AUTH_ACCESS_TOKEN": true, "OPENSHELL-RESOLVE-ENV-CODEX_AUTH_ACCOUNT_ID": true, "eyJhbGciOi": false, "": false,
	} {
		if placeholder(value) != is {
			t.Errorf("%q", value)
		}
	}
	b := &sandbox{l: location{p: New(Config{Programs: programs()})}}
	for kv, not := range map[string]bool{
		"HTTPS_PROXY=http://10.0.0.1:3128": false, "PATH=/usr/bin": false, "SSL_CERT_FILE=/etc/ssl/x": false,
		"OPENSHELL_SANDBOX=1": true, "HOME=/sandbox": true, "OPENAI_API_KEY=k": true, "CODEX_API_KEY=k": true, "SHLVL=1": true, "LAUFWERK_HOME=/x": true,
	} {
		if b.isReservedVariable(kv) != not {
			t.Errorf("%q", kv)
		}
	}
}

// A command takes one look at the sandbox and one exec, and a turn one exec more, which asks for the placeholders of now.
func TestSandboxAsksLittle(t *testing.T) {
	b := newBoxes(t)
	in, sb := b.open(false)
	relieved := func(want int) { // nobody waits for the supervisor that stands by next
		eventually(t, "the next supervisor stands by", func() bool { return b.w.g.Calls()["ExecSandbox"] >= want })
	}
	b.run(in, sb, "1", "true")
	relieved(2)
	asked := func(do func()) map[string]int {
		before := b.w.g.Calls()
		do()
		after := b.w.g.Calls()
		for name, n := range before {
			if after[name] -= n; after[name] == 0 {
				delete(after, name)
			}
		}
		return after
	}
	command := func() {
		sb, err := b.Enter(bounded(t), in, coding)
		must(t, err)
		b.run(in, sb, "2", "true")
		relieved(3)
	}
	if got := asked(command); !maps.Equal(got, map[string]int{"GetSandbox": 1, "ExecSandbox": 1}) {
		t.Errorf("a command: %v", got)
	}
	if got := asked(func() { must(t, b.Delete(bounded(t), in).Err) }); got["DeleteSandbox"] != 1 || got["ExecSandbox"] > 0 {
		t.Errorf("a close: %v", got)
	}
}
