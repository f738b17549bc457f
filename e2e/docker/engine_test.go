package docker_test

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/docker/docker/api/types/container"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/testkit"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// inspectContainer is the only container of ours.
func inspectContainer(b *e2e.DockerMachine) container.InspectResponse {
	b.T.Helper()
	list := b.Containers()
	if len(list) != 1 {
		b.T.Fatalf("%d containers: %v", len(list), list)
	}
	got, err := b.Client.ContainerInspect(context.Background(), list[0].ID)
	if err != nil {
		b.T.Fatal(err)
	}
	return got
}

// askedContainer is the name of the container that is being asked for.
func askedContainer(b *e2e.DockerMachine) string {
	var name string
	for _, c := range b.Proxy.Calls() {
		if q, err := url.ParseQuery(c.Query); c.Operation == engine.Create && err == nil {
			name = q.Get("name")
		}
	}
	return name
}

// startBlocked starts a run that stays in the middle of its turn.
func startBlocked(b *e2e.DockerMachine) *e2e.Process {
	b.T.Helper()
	b.HoldAgent()
	worker := b.Start(nil, "run", "job", "--no-input")
	b.AwaitTurn()
	return worker
}

// The worker is killed in the middle of a turn: the turn goes on, and is the one that the next worker joins. Meanwhile another
// store cleans up all that is its own on the same engine.
func TestDockerTurnOutlivesItsWorker(t *testing.T) {
	t.Parallel()
	endpoint := engine.Endpoint(t)
	b := e2e.NewDockerMachine(t, endpoint)
	startBlocked(b).Kill()
	other := e2e.NewDockerMachine(t, endpoint)
	other.CheckDone(1)
	other.MustRun([]int{0}, "cleanup", "--all", "--cancel", "--discard-changes")
	pid := inspectContainer(b).State.Pid
	next := b.Start(nil, "resume", b.OnlyRun().ID, "--no-input")
	e2e.Eventually(t, "it is joined", func() bool { return b.HasAttached(b.OnlyRun().ID) })
	if now := inspectContainer(b).State.Pid; now != pid {
		t.Errorf("the container's first process was %d, and is %d", pid, now)
	}
	b.ReleaseAgent()
	next.CheckExit(0)
	b.CheckDone(1)
	if j := b.CountRecords(); j["started session.ask[writer]:edit"] != 1 {
		t.Errorf("%v", j)
	}
}

// The container ends in the middle of a turn, whoever ends it: that is noticed, nothing of it runs any more, and the turn is
// made once more in the same container, by the worker that is there or by the next one.
func TestDockerContainerEndsInATurn(t *testing.T) {
	endpoint := engine.Endpoint(t)
	for name, end := range map[string]func(b *e2e.DockerMachine){
		"first process killed": func(b *e2e.DockerMachine) {
			if err := syscall.Kill(inspectContainer(b).State.Pid, syscall.SIGKILL); err != nil {
				b.T.Fatal(err)
			}
		},
		"stopped by a person": func(b *e2e.DockerMachine) {
			at := 0
			if err := b.Client.ContainerStop(context.Background(), inspectContainer(b).ID, container.StopOptions{Timeout: &at}); err != nil {
				b.T.Fatal(err)
			}
		},
	} {
		for _, alone := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/without a worker=%t", name, alone), func(t *testing.T) {
				t.Parallel()
				b := e2e.NewDockerMachine(t, endpoint)
				worker := startBlocked(b)
				id := inspectContainer(b).ID
				if alone {
					worker.Kill()
				}
				end(b)
				if alone {
					worker = b.Start(nil, "resume", b.OnlyRun().ID, "--no-input")
				}
				e2e.Eventually(t, "the turn is made again", func() bool { return b.CountWord("begin") == 2 })
				if now := inspectContainer(b).ID; now != id {
					t.Errorf("the container was %s, and is %s", id, now)
				}
				b.ReleaseAgent()
				worker.CheckExit(0)
				b.CheckDone(2)
			})
		}
	}
}

// A container that a person removes takes the session with it. Something that has its name and its labels then is not ours.
func TestDockerContainerIsRemovedByAPerson(t *testing.T) {
	t.Parallel()
	b := e2e.NewDockerMachine(t, engine.Endpoint(t))
	worker := startBlocked(b)
	gone := inspectContainer(b)
	if err := b.Client.ContainerRemove(context.Background(), gone.ID, container.RemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	b.MakeStranger("a container with our name and labels", strings.TrimPrefix(gone.Name, "/"), engine.Busybox, gone.Config.Labels)
	worker.CheckExit(7)
	b.CheckAccounted()
	b.GiveUpAndCheck()
}

// A container that a person has paused is no reason to lose it.
func TestDockerContainerIsPaused(t *testing.T) {
	t.Parallel()
	b := e2e.NewDockerMachine(t, engine.Endpoint(t))
	startBlocked(b).Kill()
	if err := b.Client.ContainerPause(context.Background(), inspectContainer(b).ID); err != nil {
		t.Fatal(err)
	}
	b.CheckAccounted()
	b.GiveUpAndCheck()
}

// The name is taken when the container is asked for.
func TestDockerNameIsTaken(t *testing.T) {
	endpoint := engine.Endpoint(t)
	t.Run("by a container without labels", func(t *testing.T) {
		t.Parallel()
		b := e2e.NewDockerMachine(t, endpoint)
		b.Proxy.On(engine.Create, 1, engine.Before(func() { b.MakeStranger("a container with our name", askedContainer(b), engine.Busybox, nil) }))
		b.MustRun([]int{5}, "run", "job", "--no-input")
		b.CheckAccounted()
		b.GiveUpAndCheck()
	})
	// The request is lost, and before it is made again somebody takes the name, with our labels.
	t.Run("by a container with our labels", func(t *testing.T) {
		t.Parallel()
		b := e2e.NewDockerMachine(t, endpoint)
		b.Proxy.On(engine.Create, 1, engine.LoseRequest())
		b.Proxy.On(engine.Create, 2, engine.Before(func() {
			name := askedContainer(b)
			b.MakeStranger("a container with our name and our labels", name, engine.Busybox, map[string]string{
				owned.LabelOwner: b.StoreOwner(), owned.LabelClaim: strings.TrimPrefix(name, "laufwerk-"), owned.LabelRun: runInHome(b),
			})
		}))
		b.MustRun([]int{5}, "run", "job", "--no-input")
		b.CheckAccounted()
		b.GiveUpAndCheck()
	})
}

// runInHome is the only run by its folder: asking laufwerk would be another call.
func runInHome(b *e2e.DockerMachine) string {
	b.T.Helper()
	found, err := filepath.Glob(filepath.Join(b.Home, "runs/*"))
	if err != nil || len(found) != 1 {
		b.T.Fatalf("%v, %v", found, err)
	}
	return filepath.Base(found[0])
}

// The worker is killed while its create is on the way. Where that arrives after the run was given up and cleaned up, it comes to
// nothing: the directory that the container was to have is gone. Where it arrives while the run is resumed, it is the container.
func TestDockerCreateArrivesLate(t *testing.T) {
	endpoint := engine.Endpoint(t)
	t.Run("after the clean-up", func(t *testing.T) {
		t.Parallel()
		b := e2e.NewDockerMachine(t, endpoint)
		rule := b.Proxy.On(engine.Create, 1, engine.LateRequest())
		worker := b.Start(nil, "run", "job", "--no-input")
		<-rule.Met()
		worker.Kill()
		b.GiveUpAndCheck()
		rule.Release()
		<-rule.Done()
		b.CheckClean()
	})
	t.Run("while it is resumed", func(t *testing.T) {
		t.Parallel()
		b := e2e.NewDockerMachine(t, endpoint)
		late := b.Proxy.On(engine.Create, 1, engine.LateRequest())
		worker := b.Start(nil, "run", "job", "--no-input")
		<-late.Met()
		worker.Kill()
		b.Proxy.On(engine.Create, 2, engine.Before(func() { late.Release(); <-late.Done() }))
		b.MustRun([]int{0}, "resume", b.OnlyRun().ID, "--no-input")
		b.CheckDone(1)
	})
}

// The engine ends in the middle of a turn, by SIGKILL or in order, and comes back.
func TestDockerEngineEndsInATurn(t *testing.T) {
	e := engine.Private(t, engine.Busybox)
	for _, c := range []struct {
		name  string
		end   func()
		alone bool // the worker is killed first
		away  bool // the worker meets an engine that is gone
	}{
		{"killed", e.Kill, false, false},
		{"killed, and the worker before it", e.Kill, true, false},
		{"stopped", e.Stop, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := e2e.NewDockerMachine(t, e.Endpoint)
			b.UseImageWithoutBash()
			worker := startBlocked(b)
			if c.alone {
				worker.Kill()
			}
			c.end()
			if c.away {
				worker.CheckExit(4)
				checkAccountedLater(b)
			}
			e.Start()
			b.CheckAccounted()
			if c.alone || c.away {
				worker = b.Start(nil, "resume", b.OnlyRun().ID, "--no-input")
			}
			e2e.Eventually(t, "the turn is made again", func() bool { return b.CountWord("begin") == 2 })
			b.ReleaseAgent()
			worker.CheckExit(0)
			b.CheckDone(2)
		})
	}
}

// checkAccountedLater checks the claims of a machine whose engine is away: the one of the session is kept.
func checkAccountedLater(b *e2e.DockerMachine) {
	b.T.Helper()
	if list := b.SandboxClaims(); len(list) != 1 || list[0].State != "allocated" {
		b.T.Errorf("%+v", list)
	}
}

// Another engine takes the socket in the middle of a run, one that has the same image. Nothing stays on it, nothing of the
// first one is taken for gone, and with that one back the run goes on.
func TestDockerAnotherEngineTakesTheSocket(t *testing.T) {
	e := engine.Private(t)
	ctx := context.Background()
	endpoint := engine.Endpoint(t)
	saved, err := engine.Client(t, endpoint).ImageSave(ctx, []string{engine.Busybox})
	if err != nil {
		t.Fatal(err)
	}
	defer saved.Close()
	loaded, err := engine.Client(t, e.Endpoint).ImageLoad(ctx, saved)
	if err != nil {
		t.Fatal(err)
	}
	_ = loaded.Body.Close()
	random := testkit.NewRandom(t)
	t.Run("at", func(t *testing.T) { // the engine lives until all of them have ended
		for _, op := range []engine.Operation{engine.Create, engine.Inspect, engine.Start, engine.ExecCreate, engine.ExecStart, engine.Delete} {
			ends := []string{e2e.EndResumed, e2e.EndGivenUp}
			if !testkit.TakesEverySample() {
				ends = ends[random.IntN(2):][:1]
			}
			for _, end := range ends {
				t.Run(string(op)+"/"+end, func(t *testing.T) {
					t.Parallel()
					b := e2e.NewDockerMachine(t, endpoint)
					b.UseImageWithoutBash()
					if op == engine.ExecCreate || op == engine.ExecStart {
						b.UseImage(engine.Busybox, e2e.FewProcesses)
					}
					b.Proxy.On(op, 1, engine.Before(func() { b.Proxy.Forward(e.Endpoint) }))
					code, out, errs := b.Run(nil, "run", "job", "--no-input")
					b.Proxy.Reset()
					b.Proxy.Forward(endpoint)
					if code != 4 {
						t.Errorf("exit %d\n%s%s", code, out, errs)
					}
					if left := engine.Containers(t, e.Endpoint, owned.LabelOwner+"="+b.StoreOwner()); len(left) > 0 {
						t.Errorf("on the other engine: %v", left)
					}
					b.PlantStrangers(false)
					b.CheckAccounted()
					if end == e2e.EndGivenUp {
						b.GiveUpAndCheck()
					} else {
						b.CheckDone(1)
					}
				})
			}
		}
	})
}

// Two that only read work on one workspace at once, each in a container of its own; who writes waits until they are closed.
func TestDockerSessionsShareAWorkspace(t *testing.T) {
	t.Parallel()
	b := e2e.NewDockerMachine(t, engine.Endpoint(t))
	head, _, _ := strings.Cut(e2e.SandboxWorkflow, `    const writer = `)
	b.WriteWorkflow("job", strings.NewReplacer("import { defineWorkflow,", "import { all, defineWorkflow, WorkspaceBusy,").Replace(head)+`
    const open = (key: string) => Session.open({ key, agent, workspace, access: "read-only" });
    const one = yield* open("one");
    const two = yield* open("two");
    const command = "cat /proc/sys/kernel/hostname agent.sh; : > seen-$HOSTNAME || echo refused >&2";
    const [a, b] = yield* all([one.exec({ key: "look", command }), two.exec({ key: "look", command })]);
    if (a.stdout === b.stdout) throw new Error("one container: " + a.stdout);
    for (const r of [a, b]) {
      if (!r.stdout.includes("begin $prompt") || !r.stderr.includes("refused")) throw new Error(r.stdout + r.stderr);
    }
    let holder = "";
    try {
      yield* Session.open({ key: "early", agent, workspace });
    } catch (e) {
      if (!(e instanceof WorkspaceBusy)) throw e;
      holder = e.holder;
    }
    yield* one.close();
    yield* two.close();
    const writer = yield* Session.open({ key: "writer", agent, workspace });
    yield* writer.ask({ key: "edit", prompt: "edit" });
    yield* writer.exec({ key: "count", command: "echo count >> ran" });
    yield* writer.close();
    yield* Workspace.writeBack({ workspace });
    return holder;
  },
});
`)
	if out := b.MustRun([]int{0}, "run", "job", "--no-input"); !strings.Contains(out, "session one of run") && !strings.Contains(out, "session two of run") {
		t.Errorf("who has the workspace: %s", out)
	}
	b.CheckDone(1)
}

// An engine of another host behind a socket of this one mounts what has the same names there. Whoever asks for a probe is told.
func TestDockerEngineOfAnotherHost(t *testing.T) {
	t.Parallel()
	b := e2e.NewDockerMachine(t, engine.Endpoint(t))
	b.Proxy.OnOtherHost(b.Home)
	got, code := doctorChecks(b, "target.docker.probe", nil, "--probe")
	if code != 4 || len(got) != 1 || got[0].Status != "fail" || !strings.Contains(got[0].Message, "seems to use another file system") {
		t.Errorf("exit %d: %v", code, got)
	}
	b.CheckClean()
}
