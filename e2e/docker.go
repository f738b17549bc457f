package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/testkit"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// DockerMachine is a machine whose sessions run in containers of a real engine, which it reaches through a proxy.
type DockerMachine struct {
	*Machine
	Endpoint   string // of the engine itself
	Proxy      *engine.Proxy
	Client     *client.Client
	Strangers  map[string]string // id: what it is
	images     []string          // that strangers were made from
	Operations map[string]string // the words of what is run, and its operations
}

// What the agent and the command leave in `ran` comes back to the source, which tells how often each ran. `hold` keeps the
// agent in the middle of its turn while it is there.
const SandboxWorkflow = `
import { defineWorkflow, Session, Workspace } from "@laufwerk/sdk";
import { createCommand } from "@laufwerk/sdk/harness/command";
import { execution } from "../../execution";

const agent = execution.agent({ harness: createCommand({ command: ["bash", "agent.sh"] }) });

export const workflow = defineWorkflow<unknown, unknown>({
  name: "job",
  *run() {
    const workspace = yield* Workspace.open({ source: ".", execution });
    const writer = yield* Session.open({ key: "writer", agent, workspace });
    const said = yield* writer.ask({ key: "edit", prompt: "edit" });
    const counted = yield* writer.exec({ key: "count", command: "echo count >> ran; echo counted" });
    yield* writer.close();
    yield* Workspace.writeBack({ workspace });
    return said + " and " + counted.stdout.trim();
  },
});
`

const SandboxAgent = `
prompt=$(cat)
echo "begin $prompt" >> ran
while [ -e hold ]; do sleep 0.02; done
echo changed > changed.txt
echo edited
`

func NewDockerMachine(t testing.TB, endpoint string, tags ...string) *DockerMachine {
	t.Helper()
	w := NewMachine(t)
	b := &DockerMachine{Machine: w, Endpoint: endpoint, Client: engine.Client(t, endpoint), Strangers: map[string]string{},
		Operations: map[string]string{"begin": "session.ask[writer]:edit", "count": "session.exec[writer]:count"}}
	t.Cleanup(b.Sweep)
	b.Proxy = engine.NewProxy(t, endpoint)
	b.Program = testkit.Binary(t, tags...)
	b.Env = []string{"DOCKER_HOST=" + b.Proxy.Endpoint}
	for name := range SourceBefore() {
		if err := os.Remove(filepath.Join(b.Project, name)); err != nil {
			t.Fatal(err)
		}
	}
	b.WriteFile(filepath.Join(b.Project, "agent.sh"), SandboxAgent)
	b.UseImage(engine.Base)
	b.WriteWorkflow("job", SandboxWorkflow)
	return b
}

// How a run ends that was disturbed: it is brought to its end, or given up.
const (
	EndResumed = "resumed"
	EndGivenUp = "given-up"
)

// UseImage sets the image of the target, and its other options.
func (b *DockerMachine) UseImage(image string, more ...string) {
	b.WriteFile(filepath.Join(b.Project, "laufwerk/execution.ts"), fmt.Sprintf(
		"import { createDockerExecution } from \"@laufwerk/execution/docker\";\nexport const execution = createDockerExecution({ image: %q, network: \"none\"%s });\n", image, strings.Join(more, "")))
}

// FewProcesses are so few processes that no supervisor stands by: each is started by the engine.
const FewProcesses = ", resources: { pids: 48 }"

// LimitProcesses gives containers few processes.
func (b *DockerMachine) LimitProcesses() { b.UseImage(engine.Base, FewProcesses) }

// UseImageWithoutBash lets the target have a small image, in which the command is a turn too.
func (b *DockerMachine) UseImageWithoutBash() {
	b.UseImage(engine.Busybox)
	b.WriteWorkflow("job", strings.NewReplacer(`"bash"`, `"sh"`, `writer.exec({ key: "count", command: "echo count >> ran; echo counted" })`, `writer.ask({ key: "count", prompt: "count" })`,
		`counted.stdout.trim()`, `counted`).Replace(SandboxWorkflow))
	b.WriteFile(filepath.Join(b.Project, "agent.sh"), strings.Replace(SandboxAgent, "echo \"begin", `case "$prompt" in *count) echo count >> ran; echo counted; exit ;; esac`+"\necho \"begin", 1))
	b.Operations["count"] = "session.ask[writer]:count"
}

// HoldAgent keeps the agent in its turn until letGo.
func (b *DockerMachine) HoldAgent() { b.WriteFile(filepath.Join(b.Project, "hold"), "") }

// FindInWorkspaces are the files of a name in the workspaces of the machine.
func (b *DockerMachine) FindInWorkspaces(name string) []string {
	found, _ := filepath.Glob(filepath.Join(b.Home, "workspaces/*/*", name))
	return found
}

// AwaitTurn waits until the agent is in its turn.
func (b *DockerMachine) AwaitTurn() {
	b.T.Helper()
	Eventually(b.T, "the agent begins", func() bool { return b.CountWord("begin") > 0 })
}

// CountWord is how often a word was left in the workspace.
func (b *DockerMachine) CountWord(word string) (n int) {
	for _, path := range append(b.FindInWorkspaces("ran"), filepath.Join(b.Project, "ran")) {
		text, _ := os.ReadFile(path)
		if seen := strings.Count("\n"+string(text), "\n"+word); seen > n {
			n = seen
		}
	}
	return n
}

func (b *DockerMachine) ReleaseAgent() {
	b.T.Helper()
	for _, path := range b.FindInWorkspaces("hold") {
		if err := os.Remove(path); err != nil {
			b.T.Fatal(err)
		}
	}
}

// StoreOwner is the store's id, "" before there is a store.
func (b *DockerMachine) StoreOwner() string {
	id, _ := os.ReadFile(filepath.Join(b.Home, "owner"))
	return strings.TrimSpace(string(id))
}

// Containers are the containers that the machine has made.
func (b *DockerMachine) Containers() (list []container.Summary) {
	b.T.Helper()
	owner := b.StoreOwner()
	if owner == "" {
		return nil
	}
	for _, c := range engine.Containers(b.T, b.Endpoint, owned.LabelOwner+"="+owner) {
		if _, stranger := b.Strangers[c.ID]; !stranger {
			list = append(list, c)
		}
	}
	return list
}

// MakeStranger makes a container that is not ours, whatever it looks like.
func (b *DockerMachine) MakeStranger(what, name, from string, labels map[string]string) {
	b.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	made, err := b.Client.ContainerCreate(ctx, &container.Config{Image: from, Cmd: []string{"sleep", "100000"}, Labels: labels}, &container.HostConfig{NetworkMode: "none"}, nil, nil, name)
	if err != nil {
		b.T.Fatalf("%s: %v", what, err)
	}
	b.Strangers[made.ID] = what
}

// PlantStrangers surrounds each container of ours by strangers: one that has inherited its labels from it, and one that another store
// with a claim of the same id has made.
func (b *DockerMachine) PlantStrangers(commit bool) {
	b.T.Helper()
	for _, c := range b.Containers() {
		from, labels := engine.Busybox, c.Labels
		if commit {
			made, err := b.Client.ContainerCommit(context.Background(), c.ID, container.CommitOptions{})
			if err != nil {
				b.T.Fatal(err)
			}
			b.images = append(b.images, made.ID)
			from, labels = made.ID, nil
		}
		b.MakeStranger("a container that has inherited our labels", "", from, labels)
		b.MakeStranger("a container of another store", "", engine.Busybox, map[string]string{
			owned.LabelOwner: "another", owned.LabelClaim: c.Labels[owned.LabelClaim], owned.LabelRun: c.Labels[owned.LabelRun],
		})
	}
}

// CheckStrangers checks that every stranger is there, as it was made.
func (b *DockerMachine) CheckStrangers() {
	b.T.Helper()
	for id, what := range b.Strangers {
		got, err := b.Client.ContainerInspect(context.Background(), id)
		if err != nil {
			b.T.Errorf("%s: %v", what, err)
		} else if got.State.Status != "created" {
			b.T.Errorf("%s is %s", what, got.State.Status)
		}
	}
}

// Sweep removes what the test has made on the engine.
func (b *DockerMachine) Sweep() {
	ctx := context.Background()
	for _, c := range b.Containers() {
		b.T.Errorf("the container %v was left to the test: %s", c.Names, c.Status)
		b.Strangers[c.ID] = "ours"
	}
	for id := range b.Strangers {
		if err := b.Client.ContainerRemove(ctx, id, container.RemoveOptions{Force: true}); err != nil && !errdefs.IsNotFound(err) {
			b.T.Error(err)
		}
	}
	for _, id := range b.images {
		if _, err := b.Client.ImageRemove(ctx, id, image.RemoveOptions{Force: true}); err != nil {
			b.T.Error(err)
		}
	}
}

type DetailedClaim struct {
	ID, State, Kind, Provider string
	Intent                    struct{ Resource, Name, Endpoint string }
}

// SandboxClaims are the claims of containers, of preparations too.
func (b *DockerMachine) SandboxClaims() (list []DetailedClaim) {
	b.T.Helper()
	var doc struct{ Claims []DetailedClaim }
	if err := json.Unmarshal([]byte(b.MustRun([]int{0}, "claims", "list", "--all", "--json")), &doc); err != nil {
		b.T.Fatal(err)
	}
	for _, c := range doc.Claims {
		if c.Kind == "session" || c.Kind == "preparation" {
			list = append(list, c)
		}
	}
	return list
}

// CheckAccounted holds what is true at any time: every container of ours has a claim that still asks for its end, and one claim
// has one container; of what is released nothing is there.
func (b *DockerMachine) CheckAccounted() {
	b.T.Helper()
	if b.StoreOwner() == "" {
		return
	}
	state := map[string]string{}
	for _, c := range b.SandboxClaims() {
		state[c.ID] = c.State
		dirs, _ := filepath.Glob(filepath.Join(b.Home, "runs/*/sessions", c.ID))
		if c.State == "released" && len(dirs) > 0 {
			b.T.Errorf("the claim %s is released, and its directory is there", c.ID)
		}
	}
	seen := map[string]int{}
	for _, c := range b.Containers() {
		id := c.Labels[owned.LabelClaim]
		if s, known := state[id]; !known || s == "released" {
			b.T.Errorf("the claim %s of the container %v is %q", id, c.Names, s)
		}
		if seen[id]++; seen[id] > 1 {
			b.T.Errorf("the claim %s has %d containers", id, seen[id])
		}
	}
}

// CheckDone brings the run of job to its end and checks that agent and command ran once each, and that nothing is left but the
// strangers.
func (b *DockerMachine) CheckDone(most int) {
	b.T.Helper()
	if r := b.Finish(); r.State != "succeeded" {
		b.T.Fatalf("the run is %s", r.State)
	}
	j := b.CountRecords()
	for word, id := range b.Operations {
		if n := b.CountWord(word); n < 1 || n > most || n > 1+j["cut "+id] {
			b.T.Errorf("%s ran %d times, and was cut %d times", id, n, j["cut "+id])
		}
		if j["completed "+id] != 1 {
			b.T.Errorf("%s was completed %d times", id, j["completed "+id])
		}
	}
	if text, _ := os.ReadFile(filepath.Join(b.Project, "changed.txt")); string(text) != "changed\n" {
		b.T.Errorf("changed.txt is %q", text)
	}
	b.MustRun([]int{0}, "cleanup", "--all", "--discard-changes")
	b.CheckClean()
}

// CheckClean checks that 0 containers, directories, claims and processes of ours are left, and all strangers.
func (b *DockerMachine) CheckClean() {
	b.T.Helper()
	b.CheckNothingLeft()
	if left := b.Containers(); len(left) > 0 {
		b.T.Errorf("%d containers left: %v", len(left), left)
	}
	b.CheckStrangers()
}

// GiveUpAndCheck cancels what there is, cleans up once, and checks that nothing is left but the strangers.
func (b *DockerMachine) GiveUpAndCheck() {
	b.T.Helper()
	for _, r := range b.ListRuns() {
		if r.HalfApplied {
			if code, out, errs := b.Run(nil, "writeback", "abort", r.ID); code != 0 && !strings.Contains(errs, "already in place") {
				b.T.Errorf("writeback abort: exit %d\n%s%s", code, out, errs)
			}
		}
		if r.State == "interrupted" || r.State == "waiting" {
			b.MustRun([]int{0}, "runs", "cancel", r.ID)
		}
		b.MustRun([]int{0}, "cleanup", r.ID, "--discard-changes")
	}
	b.CheckClean()
}
