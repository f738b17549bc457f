package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
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

// boxed is a world whose sessions run in containers of a real engine, which it reaches through a proxy.
type boxed struct {
	*world
	endpoint  string // of the engine itself
	proxy     *engine.Proxy
	client    *client.Client
	strangers map[string]string // id: what it is
	images    []string          // that strangers were made from
	made      map[string]string // the words of what is run, and its operations
}

// What the agent and the command leave in `ran` comes back to the source, which tells how often each ran. `hold` keeps the
// agent in the middle of its turn while it is there.
const boxedWorkflow = `
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

const boxedAgent = `
prompt=$(cat)
echo "begin $prompt" >> ran
while [ -e hold ]; do sleep 0.02; done
echo changed > changed.txt
echo edited
`

// The static binary is built once for all tests of this process, with and without crash points.
var boxedBinaries sync.Map //nolint:gochecknoglobals // building costs a second each time, even where nothing changed

func boxedBinary(t testing.TB, tags ...string) string {
	t.Helper()
	build, _ := boxedBinaries.LoadOrStore(fmt.Sprint(tags), sync.OnceValue(func() string { return testkit.Binary(t, tags...) }))
	return build.(func() string)()
}

func newBoxed(t testing.TB, endpoint string, tags ...string) *boxed {
	t.Helper()
	w := newWorld(t)
	b := &boxed{world: w, endpoint: endpoint, client: engine.Client(t, endpoint), strangers: map[string]string{},
		made: map[string]string{"begin": "session.ask[writer]:edit", "count": "session.exec[writer]:count"}}
	t.Cleanup(b.sweep)
	b.proxy = engine.NewProxy(t, endpoint)
	b.program = boxedBinary(t, tags...)
	b.env = []string{"DOCKER_HOST=" + b.proxy.Endpoint}
	for name := range before() {
		if err := os.Remove(filepath.Join(b.project, name)); err != nil {
			t.Fatal(err)
		}
	}
	b.write(filepath.Join(b.project, "agent.sh"), boxedAgent)
	b.from(engine.Base)
	b.workflow("job", boxedWorkflow)
	return b
}

// from sets the image of the target, and its other options.
func (b *boxed) from(image string, more ...string) {
	b.write(filepath.Join(b.project, "laufwerk/execution.ts"), fmt.Sprintf(
		"import { createDockerExecution } from \"@laufwerk/execution/docker\";\nexport const execution = createDockerExecution({ image: %q, network: \"none\"%s });\n", image, strings.Join(more, "")))
}

// few are so few processes that no supervisor stands by: each is started by the engine.
const few = ", resources: { pids: 48 }"

// tight gives containers few processes.
func (b *boxed) tight() { b.from(engine.Base, few) }

// withoutBash lets the target have a small image, in which the command is a turn too.
func (b *boxed) withoutBash() {
	b.from(engine.Busybox)
	b.workflow("job", strings.NewReplacer(`"bash"`, `"sh"`, `writer.exec({ key: "count", command: "echo count >> ran; echo counted" })`, `writer.ask({ key: "count", prompt: "count" })`,
		`counted.stdout.trim()`, `counted`).Replace(boxedWorkflow))
	b.write(filepath.Join(b.project, "agent.sh"), strings.Replace(boxedAgent, "echo \"begin", `case "$prompt" in *count) echo count >> ran; echo counted; exit ;; esac`+"\necho \"begin", 1))
	b.made["count"] = "session.ask[writer]:count"
}

// holding keeps the agent in its turn until letGo.
func (b *boxed) holding() { b.write(filepath.Join(b.project, "hold"), "") }

// inWorkspace are the files of a name in the workspaces of the world.
func (b *boxed) inWorkspace(name string) []string {
	found, _ := filepath.Glob(filepath.Join(b.home, "workspaces/*/*", name))
	return found
}

// begins waits until the agent is in its turn.
func (b *boxed) begins() {
	b.t.Helper()
	eventually(b.t, "the agent begins", func() bool { return b.count("begin") > 0 })
}

// count is how often a word was left in the workspace.
func (b *boxed) count(word string) (n int) {
	for _, path := range append(b.inWorkspace("ran"), filepath.Join(b.project, "ran")) {
		text, _ := os.ReadFile(path)
		if seen := strings.Count("\n"+string(text), "\n"+word); seen > n {
			n = seen
		}
	}
	return n
}

func (b *boxed) letGo() {
	b.t.Helper()
	for _, path := range b.inWorkspace("hold") {
		if err := os.Remove(path); err != nil {
			b.t.Fatal(err)
		}
	}
}

// owner is the store's id, "" before there is a store.
func (b *boxed) owner() string {
	id, _ := os.ReadFile(filepath.Join(b.home, "owner"))
	return strings.TrimSpace(string(id))
}

// ours are the containers that the world has made.
func (b *boxed) ours() (list []container.Summary) {
	b.t.Helper()
	owner := b.owner()
	if owner == "" {
		return nil
	}
	for _, c := range engine.Containers(b.t, b.endpoint, owned.LabelOwner+"="+owner) {
		if _, stranger := b.strangers[c.ID]; !stranger {
			list = append(list, c)
		}
	}
	return list
}

// stranger makes a container that is not ours, whatever it looks like.
func (b *boxed) stranger(what, name, from string, labels map[string]string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	made, err := b.client.ContainerCreate(ctx, &container.Config{Image: from, Cmd: []string{"sleep", "100000"}, Labels: labels}, &container.HostConfig{NetworkMode: "none"}, nil, nil, name)
	if err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
	b.strangers[made.ID] = what
}

// plant surrounds each container of ours by strangers: one that has inherited its labels from it, and one that another store
// with a claim of the same id has made.
func (b *boxed) plant(commit bool) {
	b.t.Helper()
	for _, c := range b.ours() {
		from, labels := engine.Busybox, c.Labels
		if commit {
			made, err := b.client.ContainerCommit(context.Background(), c.ID, container.CommitOptions{})
			if err != nil {
				b.t.Fatal(err)
			}
			b.images = append(b.images, made.ID)
			from, labels = made.ID, nil
		}
		b.stranger("a container that has inherited our labels", "", from, labels)
		b.stranger("a container of another store", "", engine.Busybox, map[string]string{
			owned.LabelOwner: "another", owned.LabelClaim: c.Labels[owned.LabelClaim], owned.LabelRun: c.Labels[owned.LabelRun],
		})
	}
}

// untouched checks that every stranger is there, as it was made.
func (b *boxed) untouched() {
	b.t.Helper()
	for id, what := range b.strangers {
		got, err := b.client.ContainerInspect(context.Background(), id)
		if err != nil {
			b.t.Errorf("%s: %v", what, err)
		} else if got.State.Status != "created" {
			b.t.Errorf("%s is %s", what, got.State.Status)
		}
	}
}

// sweep removes what the test has made on the engine.
func (b *boxed) sweep() {
	ctx := context.Background()
	for _, c := range b.ours() {
		b.t.Errorf("the container %v was left to the test: %s", c.Names, c.Status)
		b.strangers[c.ID] = "ours"
	}
	for id := range b.strangers {
		if err := b.client.ContainerRemove(ctx, id, container.RemoveOptions{Force: true}); err != nil && !errdefs.IsNotFound(err) {
			b.t.Error(err)
		}
	}
	for _, id := range b.images {
		if _, err := b.client.ImageRemove(ctx, id, image.RemoveOptions{Force: true}); err != nil {
			b.t.Error(err)
		}
	}
}

type detailedClaim struct {
	ID, State, Kind, Provider string
	Intent                    struct{ Resource, Name, Endpoint string }
}

// sessions are the claims of containers, of preparations too.
func (b *boxed) sessions() (list []detailedClaim) {
	b.t.Helper()
	var doc struct{ Claims []detailedClaim }
	if err := json.Unmarshal([]byte(b.must([]int{0}, "claims", "list", "--all", "--json")), &doc); err != nil {
		b.t.Fatal(err)
	}
	for _, c := range doc.Claims {
		if c.Kind == "session" || c.Kind == "preparation" {
			list = append(list, c)
		}
	}
	return list
}

// accounted holds what is true at any time: every container of ours has a claim that still asks for its end, and one claim
// has one container; of what is released nothing is there.
func (b *boxed) accounted() {
	b.t.Helper()
	if b.owner() == "" {
		return
	}
	state := map[string]string{}
	for _, c := range b.sessions() {
		state[c.ID] = c.State
		dirs, _ := filepath.Glob(filepath.Join(b.home, "runs/*/sessions", c.ID))
		if c.State == "released" && len(dirs) > 0 {
			b.t.Errorf("the claim %s is released, and its directory is there", c.ID)
		}
	}
	seen := map[string]int{}
	for _, c := range b.ours() {
		id := c.Labels[owned.LabelClaim]
		if s, known := state[id]; !known || s == "released" {
			b.t.Errorf("the claim %s of the container %v is %q", id, c.Names, s)
		}
		if seen[id]++; seen[id] > 1 {
			b.t.Errorf("the claim %s has %d containers", id, seen[id])
		}
	}
}

// isDone brings the run of job to its end and checks that agent and command ran once each, and that nothing is left but the
// strangers.
func (b *boxed) isDone(most int) {
	b.t.Helper()
	if r := b.finish(); r.State != "succeeded" {
		b.t.Fatalf("the run is %s", r.State)
	}
	j := b.journaled()
	for word, id := range b.made {
		if n := b.count(word); n < 1 || n > most || n > 1+j["cut "+id] {
			b.t.Errorf("%s ran %d times, and was cut %d times", id, n, j["cut "+id])
		}
		if j["completed "+id] != 1 {
			b.t.Errorf("%s was completed %d times", id, j["completed "+id])
		}
	}
	if text, _ := os.ReadFile(filepath.Join(b.project, "changed.txt")); string(text) != "changed\n" {
		b.t.Errorf("changed.txt is %q", text)
	}
	b.must([]int{0}, "cleanup", "--all", "--discard-changes")
	b.isClean()
}

// isClean checks that 0 containers, directories, claims and processes of ours are left, and all strangers.
func (b *boxed) isClean() {
	b.t.Helper()
	b.nothingIsLeft()
	if left := b.ours(); len(left) > 0 {
		b.t.Errorf("%d containers left: %v", len(left), left)
	}
	b.untouched()
}

// isGivenUp cancels what there is, cleans up once, and checks that nothing is left but the strangers.
func (b *boxed) isGivenUp() {
	b.t.Helper()
	for _, r := range b.runs() {
		if r.HalfApplied {
			if code, out, errs := b.laufwerk(nil, "writeback", "abort", r.ID); code != 0 && !strings.Contains(errs, "already in place") {
				b.t.Errorf("writeback abort: exit %d\n%s%s", code, out, errs)
			}
		}
		if r.State == "interrupted" || r.State == "waiting" {
			b.must([]int{0}, "runs", "cancel", r.ID)
		}
		b.must([]int{0}, "cleanup", r.ID, "--discard-changes")
	}
	b.isClean()
}
