package openshell_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/agent/codex"
	"github.com/laufwerk/laufwerk/internal/openshell/policy"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/testkit"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
	"github.com/laufwerk/laufwerk/internal/testkit/gateway"
)

// runSuite runs TestOpenShellGateway as `make test-openshell` does for the worker.
func runSuite(s *e2e.OpenShellMachine, vars ...string) (said string) {
	s.T.Helper()
	self, err := os.Executable()
	if err != nil {
		s.T.Fatal(err)
	}
	program := filepath.Join(s.Dir, "suite")
	s.CopyDir(self, program)
	temporary := filepath.Join(s.Dir, "tmp")
	if err := os.Mkdir(temporary, 0o700); err != nil {
		s.T.Fatal(err)
	}
	s.GiveToWorker()
	args := append(slices.Clone(s.UserPrefix), program, "-test.v", "-test.run", "^TestOpenShellGateway$")
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = s.Project
	cmd.Env = append(s.Command(nil).Env, append(vars, "TMPDIR="+temporary, ofGateway+"="+s.Alias, ofProvider+"="+s.Provider, ofImages+"="+s.ImageCache, testkit.BinaryVariable+"="+s.Program)...)
	out, err := cmd.CombinedOutput()
	s.T.Logf("%s", out)
	if err != nil || !strings.Contains(string(out), "--- PASS: TestOpenShellGateway") {
		s.T.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(temporary, "*")); len(left) > 0 {
		s.T.Errorf("left: %v", left)
	}
	return string(out)
}

// The suite, with an agent that calls no model, as the worker of a gateway that it has provisioned itself.
func TestOpenShellSuiteWithACommand(t *testing.T) {
	t.Parallel()
	s, g := e2e.NewOpenShellMachine(t)
	s.WriteLogin()
	s.RegisterGateway(g)
	s.WriteTarget()
	s.MustRun([]int{0}, "provision", "openshell")
	if made := s.PrepareImage().Targets[0]; made.Probe.Status != "passed" {
		t.Fatalf("%+v", made)
	}
	if said := runSuite(s, ofAgent+"=command"); strings.Count(said, "verified: ") != 16 {
		t.Error("it does not say all that it verifies")
	}
}

// The suite, with the real Codex and a model server of one's own, to which the profile of the login lets it.
func TestOpenShellSuiteWithCodex(t *testing.T) {
	t.Parallel()
	s, g := e2e.NewOpenShellMachine(t)
	secrets := s.WriteLogin()
	s.RegisterGateway(g)
	s.ModelURL = "https://models.example.com"
	m := testkit.NewModel(t)
	g.Lead("models.example.com", 443, m.URL)
	own, presence, err := s.Gateway.Profile(t.Context(), "codex")
	if presence != resource.Present {
		t.Fatal(presence, err)
	}
	adapted := proto.CloneOf(own)
	adapted.Id, adapted.Source, adapted.Scope, adapted.ResourceVersion = codex.Profile, "", "", 0
	adapted.Binaries = append(adapted.Binaries, &wire.NetworkBinary{Path: policy.Binaries(codex.Name)})
	adapted.Endpoints = append(adapted.Endpoints, &wire.NetworkEndpoint{Host: "models.example.com", Port: 443, Protocol: "rest", Access: "read-write", Enforcement: "enforce"})
	if _, err := s.Gateway.ImportProfile(t.Context(), adapted, "a test"); err != nil {
		t.Fatal(err)
	}
	s.WriteTarget()
	s.MustRun([]int{0}, "provision", "openshell")
	if made := s.PrepareImage().Targets[0]; made.Probe.Status != "passed" {
		t.Fatalf("%+v", made)
	}
	m.PlayEach(
		[]testkit.Step{testkit.Shell("echo one > edited.txt"), testkit.Say("done"), testkit.Shell("echo two >> edited.txt"), testkit.Say("done")},
		[]testkit.Step{testkit.Shell("echo intruder > intruder.txt; env | sort"), testkit.Say("It is not possible.")})
	said := runSuite(s, ofModel+"="+s.ModelURL)
	sent := m.Requests("")
	if len(sent) != 6 || len(m.Threads()) != 2 {
		t.Fatalf("%d requests in %v", len(sent), m.Threads())
	}
	for i, r := range sent {
		if r.Auth != "Bearer "+secrets[1] {
			t.Errorf("request %d came with %q", i, r.Auth)
		}
	}
	if !strings.Contains(sent[5].Raw, "Read-only file system") {
		t.Errorf("what the reviewer could do: %v", e2e.LastInput(sent[5]))
	}
	checkNoSecret(s, secrets, sent[5].Raw, said)
}

// checkNoSecret looks for the login wherever laufwerk writes: it is nowhere, also not in the sessions' own directories.
func checkNoSecret(s *e2e.OpenShellMachine, secrets []string, texts ...string) {
	s.T.Helper()
	for _, secret := range secrets {
		for _, text := range texts {
			if strings.Contains(text, secret) {
				s.T.Error("a value of the login was shown")
			}
		}
		_ = filepath.WalkDir(s.Home, func(path string, e os.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return nil //nolint:nilerr // what is gone holds nothing
			}
			if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), secret) {
				s.T.Errorf("a value of the login is in %s", path)
			}
			return nil
		})
	}
}

// From nothing to an approved change, by the commands of the manual and as init writes the files: a login is handed over, an
// image is made, the example runs with the real Codex, whose worker is killed in the middle of its first turn.
func TestOpenShellFromInitToCleanup(t *testing.T) {
	t.Parallel()
	s, g := e2e.NewOpenShellMachine(t)
	secrets := s.WriteLogin()
	for name, content := range map[string]string{"fields.js": e2e.BrokenJS, "check.js": e2e.CheckJS} {
		s.WriteFile(filepath.Join(s.Project, name), content)
	}
	s.GiveToWorker()
	said := ""
	does := func(code int, args ...string) string {
		t.Helper()
		got, out, errs := s.Start(nil, append(args, "--json")...).WaitWithin(10 * time.Minute)
		if got != code {
			t.Fatalf("laufwerk %s: exit %d, want %d\n%s%s", strings.Join(args, " "), got, code, out, errs)
		}
		said += out + errs
		return out
	}
	read := func(out string, into any) {
		t.Helper()
		if err := json.Unmarshal([]byte(out), into); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}

	var made struct{ Target, Example string }
	read(does(0, "init", "--execution", "openshell", "--example", "issue-to-fix"), &made)
	if made.Target != "secure-coding" {
		t.Errorf("%+v", made)
	}
	if calls := g.Calls(); len(calls) > 1 || calls["Health"] > 1 { // the test's own
		delete(calls, "Health")
		delete(calls, "GetGatewayInfo")
		if len(calls) > 0 {
			t.Errorf("init asked the gateway: %v", calls)
		}
	}

	// Without a gateway the image is made, and nothing else can be.
	first := s.PrepareImage("--target", "secure-coding").Targets[0]
	if first.Probe.Status != "pending" || first.Probe.Next == "" || len(first.Probe.Waiting) == 0 {
		t.Errorf("%+v", first)
	}
	input := []string{"--no-input", "--input", `{"issue":"parse drops the last field when the line ends in a comment","check":"node check.js"}`}
	refused := func(why string) {
		t.Helper()
		if out := does(4, append([]string{"run", "issue-to-fix"}, input...)...); !strings.Contains(out, why) {
			t.Error(out)
		}
		does(0, "runs", "cancel", s.OnlyRunIn("interrupted"))
	}
	refused("openshell gateway add")
	s.RegisterGateway(g)
	refused("laufwerk provision openshell")

	type provisioned struct {
		Targets []struct {
			DryRun            bool
			Profile, Provider struct{ ID, Name, Done string }
		}
	}
	var would, did, again provisioned
	read(does(0, "provision", "openshell", "--target", "secure-coding", "--dry-run"), &would)
	if calls := g.Calls(); len(would.Targets) != 1 || !would.Targets[0].DryRun || would.Targets[0].Provider.Done != "created" || calls["CreateProvider"]+calls["ImportProviderProfiles"] > 0 {
		t.Errorf("%+v %v", would, calls)
	}
	read(does(0, "provision", "openshell", "--target", "secure-coding"), &did)
	read(does(0, "provision", "openshell", "--target", "secure-coding"), &again)
	if did.Targets[0].Profile.Done != "created" || did.Targets[0].Provider.Done != "created" || again.Targets[0].Profile.Done != "kept" || again.Targets[0].Provider.Done != "kept" {
		t.Errorf("%+v, then %+v", did, again)
	}
	if second := s.PrepareImage("--target", "secure-coding").Targets[0]; !second.Reused || second.Probe.Status != "passed" || second.Image != first.Image {
		t.Errorf("%+v", second)
	}
	examined := does(0, "doctor", "--execution", "openshell", "--target", "secure-coding")
	if !strings.Contains(examined, `"untested"`) || strings.Contains(examined, `"fail"`) {
		t.Error(examined)
	}

	// The worker is killed while Codex waits for its model, and the turn goes on without it.
	model, gate := testkit.NewModel(t), make(chan struct{})
	for _, host := range e2e.LoginHosts() {
		g.Lead(host, 443, model.URL)
	}
	check := testkit.ShellWith(map[string]any{"cmd": "node check.js", "yield_time_ms": 30000})
	model.PlayEach(
		[]testkit.Step{testkit.Gate(gate, testkit.Think("Let me see it fail.", check)), testkit.Patch(e2e.RepairPatch), check, testkit.Say("It was the comment.")},
		[]testkit.Step{testkit.Shell("cat fields.js; echo intruder > intruder.txt"), testkit.Say("Nothing is wrong.")})
	worker := s.Start(nil, append([]string{"run", "issue-to-fix"}, input...)...)
	e2e.Eventually(t, "the model is asked", func() bool { return len(model.Requests("")) > 0 })
	worker.Kill()
	s.CheckSandboxes(1, "without a worker")
	checkNoSecret(s, secrets)
	close(gate)
	run := s.OnlyRunIn("interrupted")
	if out := does(8, "resume", run, "--no-input"); !strings.Contains(out, "write-back") {
		t.Error(out)
	}
	s.CheckSandboxes(0, "with the sessions closed")
	if diff := s.MustRun([]int{0}, "diff", run); !strings.Contains(diff, "-  if (comment) parts.pop();") {
		t.Error(diff)
	}
	var done struct {
		Output struct {
			Status  string
			Repairs int
			Paths   []string
		}
	}
	read(does(0, "answer", run, "write-back", "yes"), &done)
	if done.Output.Status != "written" || done.Output.Repairs != 0 || strings.Join(done.Output.Paths, " ") != "fields.js" {
		t.Errorf("%+v", done)
	}
	if b, err := os.ReadFile(filepath.Join(s.Project, "fields.js")); err != nil || string(b) != e2e.RepairedJS {
		t.Errorf("written back: %v\n%s", err, b)
	}
	sent := model.Requests("")
	if len(sent) != 6 || len(model.Threads()) != 2 {
		t.Errorf("%d requests in %v", len(sent), model.Threads())
	}
	for i, r := range sent {
		if r.Auth != "Bearer "+secrets[1] {
			t.Errorf("request %d came with %q", i, r.Auth)
		}
	}
	does(0, "cleanup", run)
	does(0, "cleanup", "--all") // what was refused had its workspace
	s.CheckSandboxes(0, "after the clean-up")
	s.CheckNothingLeft()
	checkNoSecret(s, secrets, said)
}

// An image that a target names is taken if it is what prepare would have made, and nothing is installed into any other.
func TestOpenShellWithAnImageOfItsOwn(t *testing.T) {
	t.Parallel()
	s, g := e2e.NewOpenShellMachine(t)
	s.WriteLogin()
	s.RegisterGateway(g)
	s.WriteFile(filepath.Join(s.Project, "agent.sh"), e2e.SandboxAgent)
	s.WriteWorkflow("job", e2e.SandboxWorkflow)
	s.WriteTarget()
	s.MustRun([]int{0}, "provision", "openshell")
	made := s.PrepareImage().Targets[0].Image
	before := g.Calls()["CreateSandbox"]

	s.Image = engine.Base
	s.WriteTarget()
	const why = "is not a prepared image"
	if code, out, errs := s.Run(nil, "doctor", "--execution", "openshell", "--json"); code == 0 || !strings.Contains(out, why) {
		t.Errorf("doctor: exit %d\n%s%s", code, out, errs)
	}
	if code, out, errs := s.Run(nil, "run", "job", "--no-input"); code != 4 || !strings.Contains(errs, why) || !strings.Contains(errs, "laufwerk prepare openshell") {
		t.Errorf("run: exit %d\n%s%s", code, out, errs)
	}
	if n := g.Calls()["CreateSandbox"]; n != before {
		t.Errorf("%d sandboxes were made for nothing", n-before)
	}
	s.MustRun([]int{0}, "runs", "cancel", s.OnlyRunIn("interrupted"))

	s.Image = made
	s.WriteTarget()
	if out := s.MustRun([]int{0}, "doctor", "--execution", "openshell", "--json"); !strings.Contains(out, "and is a prepared one") {
		t.Error(out)
	}
	s.MustRun([]int{0}, "run", "job", "--no-input")
	s.MustRun([]int{0}, "cleanup", "--all", "--discard-changes")
	s.CheckSandboxes(0, "in the end")
}

// What only a sandbox can show of a gateway is shown when an image is prepared, and by doctor: before a run, whose sandboxes would
// not do. The image is there all the same, and nothing else is left.
func TestOpenShellGatewaysThatAProbeFindsOut(t *testing.T) {
	t.Parallel()
	s, _ := e2e.NewOpenShellMachine(t)
	s.WriteLogin()
	s.WriteTarget()
	made := s.PrepareImage().Targets[0]
	if made.Probe.Status != "pending" {
		t.Errorf("without a gateway: %+v", made)
	}
	for says, c := range map[string]struct {
		options gateway.Options
		exit    int
	}{
		"enable_bind_mounts": {gateway.Options{NoBindMounts: true}, 4}, "replaces that of every sandbox": {gateway.Options{GlobalPolicy: true}, 7},
	} {
		g := gateway.Containers(t, c.options)
		s.Connect(g)
		s.RegisterGateway(g)
		s.MustRun([]int{0}, "provision", "openshell")
		var doc struct {
			Error   struct{ Message string }
			Targets []struct{ Image string }
		}
		code, out, errs := s.Run(nil, "prepare", "openshell", "--json")
		if err := json.Unmarshal([]byte(out), &doc); err != nil || code != c.exit || !strings.Contains(doc.Error.Message, "no sandbox can be made from it") || !strings.Contains(doc.Error.Message, says) ||
			len(doc.Targets) != 1 || doc.Targets[0].Image != made.Image {
			t.Errorf("%s: prepare: exit %d\n%s%s", says, code, out, errs)
		}
		if code, out, errs := s.Run(nil, "doctor", "--execution", "openshell", "--probe", "--json"); code == 0 || !strings.Contains(out, says) {
			t.Errorf("%s: doctor: exit %d\n%s%s", says, code, out, errs)
		}
		s.CheckSandboxes(0, "after "+says)
		s.CheckNothingLeft()
	}
}

// Sandboxes run as the worker's user, and OpenShell lets that be nobody with root's rights.
func TestOpenShellRefusesRoot(t *testing.T) {
	t.Parallel()
	testkit.Need(t, "root", os.Getuid() == 0, "it is what is refused")
	w := e2e.NewUserMachine(t, engine.Endpoint(t), e2e.User{UID: 0, GID: 0})
	g := gateway.Memory(t, gateway.Options{})
	g.Register(filepath.Join(w.Dir, ".config"), "laufwerk-local")
	w.MustRun([]int{0}, "init", "--execution", "openshell", "--example", "issue-to-fix", "--agent-command", "bash agent.sh")
	const why = "need a worker that is not root"
	code, out, errs := w.Run(nil, "doctor", "--execution", "openshell", "--target", "secure-coding", "--json")
	if code == 0 || !strings.Contains(out, why) {
		t.Errorf("doctor: exit %d\n%s%s", code, out, errs)
	}
	code, out, errs = w.Run(nil, "run", "issue-to-fix", "--no-input", "--input", `{"issue":"x","check":"true"}`)
	if code != 4 || !strings.Contains(errs, why) {
		t.Errorf("run: exit %d\n%s%s", code, out, errs)
	}
	calls := g.Calls()
	delete(calls, "Health") // it may be greeted
	delete(calls, "GetGatewayInfo")
	if len(calls) > 0 {
		t.Errorf("the gateway was asked for %v", calls)
	}
	if left := w.ListClaims("--all"); slices.ContainsFunc(left, func(c e2e.ListedClaim) bool { return c.Kind == "session" }) {
		t.Errorf("claims: %v", left)
	}
}
