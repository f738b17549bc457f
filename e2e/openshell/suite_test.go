package openshell_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/agent/codex"
	"github.com/laufwerk/laufwerk/internal/openshell"
	"github.com/laufwerk/laufwerk/internal/resource"
)

// The verification suite: what a gateway has to do for laufwerk, through the built binary. `make test-openshell` runs it
// against a gateway of somebody's; the tests beside it against one of their own.

// The prompts are for any agent: a model's, or suiteAgent.
const (
	firstPrompt  = "Create the file edited.txt in the current directory, with exactly one line in it: one. Do nothing else."
	secondPrompt = "Append exactly one line to the file that you have just created: two. Do nothing else."
	reviewPrompt = "Create the file intruder.txt in the current directory, with the word intruder in it. If that is not possible, say so and do nothing else."
)

const suiteAgent = `case $(cat) in
Create*edited.txt*) echo one > edited.txt ;;
Append*) echo two >> edited.txt ;;
Create*intruder.txt*) echo intruder > intruder.txt ;;
esac
echo done
`

// More than a request to a gateway can hold, and no whole number of anything.
const transferred = 3<<19 + 5

// transfer is what goes in and out: every byte, at places that shift.
func transfer() []byte {
	b := make([]byte, transferred)
	for i := range b {
		b[i] = byte(i*31 + i>>8)
	}
	return b
}

const suiteWorkflow = `
import { defineWorkflow, Human, Session, Workspace, WorkspaceBusy } from "@laufwerk/sdk";
IMPORT
import { execution } from "../../execution";

const agent = execution.agent({ harness: HARNESS });

export const workflow = defineWorkflow<unknown, unknown>({
  name: "verify",
  *run() {
    const workspace = yield* Workspace.open({ source: ".", execution });
    const writer = yield* Session.open({ key: "writer", agent, workspace });
    yield* writer.ask({ key: "first", prompt: FIRST });
    yield* writer.ask({ key: "second", prompt: SECOND });
    const edited = yield* writer.exec({ key: "edited", command: "cat edited.txt; echo to stderr >&2; exit 7" });

    const bytes = new Uint8Array(SIZE);
    for (let i = 0; i < bytes.length; i++) bytes[i] = i * 31 + (i >> 8);
    yield* writer.writeFile("up.bin", bytes);
    const up = yield* writer.exec({ key: "up", command: "sha256sum < up.bin | cut -c1-64; cp up.bin down.bin" });
    const piped = yield* writer.exec({ key: "piped", command: "sha256sum | cut -c1-64", stdin: bytes });
    const down = yield* writer.readFile("down.bin");
    const same = down !== null && down.length === bytes.length && down.every((b, i) => b === bytes[i]);
    const absent = (yield* writer.readFile("nosuch.bin")) === null;
    yield* writer.exec({ key: "tidy", command: "rm up.bin down.bin" });

    const proxied = yield* writer.exec({ key: "proxied", command: 'p=${HTTPS_PROXY#*://}; p=${p%/}; exec 3<>/dev/tcp/${p%:*}/${p##*:} && printf "CONNECT example.com:443 HTTP/1.1\\r\\nHost: example.com:443\\r\\n\\r\\n" >&3 && head -n 1 <&3' });
    const bypassed = yield* writer.exec({ key: "bypassed", command: "timeout 10 bash -c 'exec 3<>/dev/tcp/192.0.2.1/443'" });

    yield* writer.exec({ key: "background", command: "nohup setsid bash -c 'while sleep 0.1; do echo tick >> ticks.txt; done' </dev/null >/dev/null 2>&1 &" });
    let premature = "it was written";
    try {
      yield* Workspace.writeBack({ workspace, key: "premature" });
    } catch (error) {
      if (!(error instanceof WorkspaceBusy)) throw error;
      premature = "busy";
    }
    const on = yield* Human.confirm({ key: "handoff", title: "Go on in another process?" });

    const ticks = yield* writer.exec({ key: "ticks", command: "wc -l < ticks.txt; sleep 1; wc -l < ticks.txt" });
    yield* writer.close();
    const reviewer = yield* Session.open({ key: "reviewer", agent, workspace, access: "read-only" });
    yield* reviewer.ask({ key: "review", prompt: REVIEW });
    const tried = yield* reviewer.exec({ key: "tried", command: "cat edited.txt; touch intruder.txt" });
    yield* reviewer.close();
    const approved = yield* Human.confirm({ key: "approve", title: "Write back?", workspace });
    const paths = approved ? (yield* Workspace.writeBack({ workspace })).changes.map(change => change.path) : [];
    return {
      edited, up: up.stdout.trim(), piped: piped.stdout.trim(), same, absent, proxied: proxied.stdout.trim(), bypassed: bypassed.exitCode,
      premature, on, ticks: ticks.stdout.trim().split("\n").map(Number), tried, paths,
    };
  },
});
`

const cancelledWorkflow = `
import { defineWorkflow, Session, Workspace } from "@laufwerk/sdk";
import { createCommand } from "@laufwerk/sdk/harness/command";
import { execution } from "../../execution";

const agent = execution.agent({ harness: createCommand({ command: ["bash", "agent.sh"] }) });

export const workflow = defineWorkflow<unknown, unknown>({
  name: "cancelled",
  *run() {
    const workspace = yield* Workspace.open({ source: ".", execution });
    const s = yield* Session.open({ key: "s", agent, workspace });
    yield* s.exec({ key: "long", command: "nohup setsid bash -c 'while sleep 0.1; do echo beat >> beats.txt; done' </dev/null >/dev/null 2>&1 & sleep 100000" });
  },
});
`

// verifyGateway holds a gateway to all that laufwerk relies on. Codex says that the agent is the real one.
func verifyGateway(s *e2e.OpenShellMachine, codex bool) {
	s.T.Helper()
	s.WriteTarget()
	s.WriteFile(filepath.Join(s.Project, "agent.sh"), suiteAgent)
	include, harness := `import { createCommand } from "@laufwerk/sdk/harness/command";`, `createCommand({ command: ["bash", "agent.sh"] })`
	if codex {
		include, harness = `import { createCodex } from "@laufwerk/sdk/harness/codex";`, "createCodex("+codexOptions(s)+")"
	}
	quoted := func(text string) string {
		b, _ := json.Marshal(text)
		return string(b)
	}
	size, _ := json.Marshal(transferred)
	s.WriteWorkflow("verify", strings.NewReplacer("IMPORT", include, "HARNESS", harness, "FIRST", quoted(firstPrompt), "SECOND", quoted(secondPrompt),
		"REVIEW", quoted(reviewPrompt), "SIZE", string(size)).Replace(suiteWorkflow))
	s.WriteWorkflow("cancelled", cancelledWorkflow)
	s.GiveToWorker()
	s.T.Log(s.MustRun([]int{0}, "doctor", "--execution", "openshell"))
	began := time.Now()
	verifyRun(s)
	s.T.Logf("the whole job took %s", time.Since(began).Round(time.Millisecond))
	verifyCancel(s)
	if s.T.Failed() { // what is there is for whoever looks into it
		return
	}
	s.MustRun([]int{0}, "cleanup", "--all", "--discard-changes")
	s.CheckSandboxes(0, "after the clean-up")
	s.CheckNothingLeft()
}

// codexOptions point Codex at a model server of one's own.
func codexOptions(s *e2e.OpenShellMachine) string {
	s.T.Helper()
	if s.ModelURL == "" {
		return ""
	}
	w := &e2e.CodexMachine{ModelURL: s.ModelURL}
	options, err := json.Marshal(w.CodexOptions(map[string]any{"model_providers.loop.stream_idle_timeout_ms": 300_000}))
	if err != nil {
		s.T.Fatal(err)
	}
	return string(options)
}

// verifyRun is the run that comes to its end, in three processes.
func verifyRun(s *e2e.OpenShellMachine) {
	t := s.T
	t.Helper()
	worker := s.Start(nil, "run", "verify", "--no-input")
	if code, out, errs := worker.WaitWithin(time.Hour); code != 8 { // a model takes its time
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	run := s.OnlyRun().ID
	s.CheckSandboxes(1, "while the run waits")
	ticks := len(s.ReadInWorkspace("ticks.txt"))
	e2e.Eventually(t, "what works in the background goes on without a worker", func() bool { return len(s.ReadInWorkspace("ticks.txt")) > ticks })
	if b, err := os.ReadFile(filepath.Join(s.Project, "edited.txt")); err == nil {
		t.Errorf("the source was changed before anybody approved: %q", b)
	}

	if code, out, errs := s.Start(nil, "answer", run, "handoff", "yes", "--no-input").WaitWithin(time.Hour); code != 8 {
		t.Fatalf("answer handoff: exit %d\n%s%s", code, out, errs)
	}
	s.CheckSandboxes(0, "while the run waits for its approval, with its sessions closed,")
	ticks = len(s.ReadInWorkspace("ticks.txt"))
	time.Sleep(500 * time.Millisecond)
	if now := len(s.ReadInWorkspace("ticks.txt")); now != ticks || ticks == 0 {
		t.Errorf("the writer's session is closed, and its files grew from %d to %d bytes", ticks, now)
	}
	var said struct {
		Output struct {
			Edited, Tried struct {
				ExitCode       int
				Stdout, Stderr string
			}
			Up, Piped        string
			Same, Absent, On bool
			Proxied          string
			Bypassed         int
			Premature        string
			Ticks            []int
			Paths            []string
		}
	}
	s.RunJSON(&said, "answer", run, "approve", "yes")
	o, digest := said.Output, sha256.Sum256(transfer())
	for what, ok := range map[string]bool{
		"the agent edits, in two turns of one conversation":   o.Edited.Stdout == "one\ntwo\n",
		"a command's exit code and outputs come through":      o.Edited.ExitCode == 7 && strings.TrimSpace(o.Edited.Stderr) == "to stderr",
		"bytes go in as they are":                             o.Up == hex.EncodeToString(digest[:]),
		"bytes go in through stdin as they are":               o.Piped == o.Up,
		"bytes come out as they are":                          o.Same,
		"a file that is not there is null":                    o.Absent,
		"the proxy denies what the policy does not allow":     strings.Contains(o.Proxied, " 403 "),
		"there is no way past the proxy":                      o.Bypassed != 0 && o.Bypassed != 124,
		"nothing is written back while a writer lives":        o.Premature == "busy",
		"the approval comes over to another process":          o.On,
		"what works in the background outlives its worker":    len(o.Ticks) == 2 && o.Ticks[0] > 0 && o.Ticks[1] > o.Ticks[0],
		"a reviewer reads":                                    o.Tried.Stdout == "one\ntwo\n",
		"a reviewer cannot write":                             o.Tried.ExitCode != 0 && strings.Contains(o.Tried.Stderr, "Read-only file system"),
		"what was approved is written back, and nothing else": strings.Join(o.Paths, " ") == "edited.txt ticks.txt",
	} {
		if !ok {
			t.Errorf("it does not hold that %s: %+v", what, o)
		} else {
			t.Logf("verified: %s", what)
		}
	}
	if b, err := os.ReadFile(filepath.Join(s.Project, "edited.txt")); err != nil || string(b) != "one\ntwo\n" {
		t.Errorf("written back: %q, %v", b, err)
	}
	t.Log(s.MustRun([]int{0}, "runs", "show", run))
	if t.Failed() {
		return
	}
	s.MustRun([]int{0}, "cleanup", run)
	s.CheckSandboxes(0, "after the run")
	s.CheckNothingLeft()
	t.Log("verified: the gateway and the engine confirm that all is cleaned up")
}

// verifyCancel is a run that is cancelled in the middle of a command.
func verifyCancel(s *e2e.OpenShellMachine) {
	t := s.T
	t.Helper()
	worker := s.Start(nil, "run", "cancelled", "--no-input")
	e2e.Eventually(t, "the command works", func() bool { return s.ReadInWorkspace("beats.txt") != "" })
	s.CheckSandboxes(1, "while a command works")
	run := s.OnlyRunIn("running")
	s.MustRun([]int{0}, "runs", "cancel", run)
	if code, out, errs := worker.Wait(); code == 0 {
		t.Errorf("the worker of a run that was cancelled: exit %d\n%s%s", code, out, errs)
	}
	s.CheckSandboxes(0, "when the run was cancelled")
	beats := len(s.ReadInWorkspace("beats.txt"))
	time.Sleep(500 * time.Millisecond)
	if now := len(s.ReadInWorkspace("beats.txt")); now != beats {
		t.Errorf("the run was cancelled, and its files grew from %d to %d bytes", beats, now)
	}
	s.MustRun([]int{0}, "cleanup", run, "--discard-changes")
	if !t.Failed() {
		t.Log("verified: cancelling a command deletes its sandbox, with all that ran there")
	}
}

// The variables of the suite. The first is the alias of a gateway that is registered and provisioned for whoever runs the
// tests, who is not root and may use its engine (DOCKER_HOST, or the usual socket).
const (
	ofGateway  = "LAUFWERK_OPENSHELL_GATEWAY"
	ofProvider = "LAUFWERK_OPENSHELL_PROVIDER"    // the login at the gateway; laufwerk-codex
	ofImages   = "LAUFWERK_OPENSHELL_IMAGE_CACHE" // the cache that has the prepared image; ~/.laufwerk/images/openshell
	ofAgent    = "LAUFWERK_OPENSHELL_AGENT"       // "codex", which makes model calls, or "command"
	ofModel    = "LAUFWERK_OPENSHELL_MODEL_URL"   // of a model server of one's own, to which the profile of the login has to let it
)

func TestOpenShellGateway(t *testing.T) {
	if os.Getenv(ofGateway) == "" {
		t.Skipf("SKIPPED, no gateway is verified: %s names none. To verify one:\n%s=laufwerk-local %s=laufwerk-codex %s=\"$HOME/.laufwerk/images/openshell\" make test-openshell\n"+
			"It makes model calls; with %s=command it makes none.", ofGateway, ofGateway, ofProvider, ofImages, ofAgent)
	}
	if os.Getuid() == 0 {
		t.Fatal("the suite is run by a user who is not root, and may use the gateway's engine")
	}
	or := func(name, other string) string {
		if v := os.Getenv(name); v != "" {
			return v
		}
		return other
	}
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	config := os.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(config) {
		config = filepath.Join(home, ".config")
	}
	s := e2e.NewKeptMachine(t, or("DOCKER_HOST", "unix:///var/run/docker.sock"), "XDG_CONFIG_HOME="+config)
	s.Alias, s.Provider = os.Getenv(ofGateway), or(ofProvider, codex.Profile)
	s.ImageCache, s.ModelURL = or(ofImages, filepath.Join(home, ".laufwerk/images/openshell")), os.Getenv(ofModel)
	s.FindGateway(openshell.Registrations{Vars: map[string]string{"XDG_CONFIG_HOME": config}})
	agent := or(ofAgent, "codex")
	if agent != "codex" && agent != "command" {
		t.Fatalf("%s is %q, and can be codex or command", ofAgent, agent)
	}
	allowModelHost(s)
	verifyGateway(s, agent == "codex")
}

// allowModelHost makes sure that the login may go to a model server of one's own, which only whoever made its profile can say.
func allowModelHost(s *e2e.OpenShellMachine) {
	s.T.Helper()
	if s.ModelURL == "" {
		return
	}
	host, port := s.ModelHost()
	profile, presence, err := s.Gateway.Profile(s.T.Context(), codex.Profile)
	if presence != resource.Present {
		s.T.Fatalf("the profile %s is %s: %v", codex.Profile, presence, err)
	}
	for _, e := range profile.GetEndpoints() {
		if e.GetHost() == host && int(e.GetPort()) == port {
			return
		}
	}
	s.T.Fatalf("the gateway would not give the login to %s: its profile %s has no endpoint %s:%d. Export the profile, add the endpoint, and import it instead.", s.ModelURL, codex.Profile, host, port)
}
