package app_test

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/docker/docker/api/types/container"

	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// box is the only container of ours.
func (b *boxed) box() container.InspectResponse {
	b.t.Helper()
	list := b.ours()
	if len(list) != 1 {
		b.t.Fatalf("%d containers: %v", len(list), list)
	}
	got, err := b.client.ContainerInspect(context.Background(), list[0].ID)
	if err != nil {
		b.t.Fatal(err)
	}
	return got
}

// asked is the name of the container that is being asked for.
func (b *boxed) asked() string {
	var name string
	for _, c := range b.proxy.Calls() {
		if q, err := url.ParseQuery(c.Query); c.Operation == engine.Create && err == nil {
			name = q.Get("name")
		}
	}
	return name
}

// held starts a run that stays in the middle of its turn.
func (b *boxed) held() *running {
	b.t.Helper()
	b.holding()
	worker := b.start(nil, "run", "job", "--no-input")
	b.begins()
	return worker
}

func (r *running) ends(codes ...int) {
	r.t.Helper()
	code, out, errs := r.wait()
	for _, c := range codes {
		if c == code {
			return
		}
	}
	r.t.Fatalf("exit %d, want %v\n%s%s", code, codes, out, errs)
}

// The worker is killed in the middle of a turn: the turn goes on, and is the one that the next worker joins. Meanwhile another
// store cleans up all that is its own on the same engine.
func TestDockerTurnOutlivesItsWorker(t *testing.T) {
	t.Parallel()
	endpoint := engine.Endpoint(t)
	b := newBoxed(t, endpoint)
	b.held().kill()
	other := newBoxed(t, endpoint)
	other.isDone(1)
	other.must([]int{0}, "cleanup", "--all", "--cancel", "--discard-changes")
	pid := b.box().State.Pid
	next := b.start(nil, "resume", b.onlyRun().ID, "--no-input")
	eventually(t, "it is joined", func() bool { return b.attached(b.onlyRun().ID) })
	if now := b.box().State.Pid; now != pid {
		t.Errorf("the container's first process was %d, and is %d", pid, now)
	}
	b.letGo()
	next.ends(0)
	b.isDone(1)
	if j := b.journaled(); j["started session.ask[writer]:edit"] != 1 {
		t.Errorf("%v", j)
	}
}

// The container ends in the middle of a turn, whoever ends it: that is noticed, nothing of it runs any more, and the turn is
// made once more in the same container, by the worker that is there or by the next one.
func TestDockerContainerEndsInATurn(t *testing.T) {
	endpoint := engine.Endpoint(t)
	for name, end := range map[string]func(b *boxed){
		"first process killed": func(b *boxed) {
			if err := syscall.Kill(b.box().State.Pid, syscall.SIGKILL); err != nil {
				b.t.Fatal(err)
			}
		},
		"stopped by a person": func(b *boxed) {
			at := 0
			if err := b.client.ContainerStop(context.Background(), b.box().ID, container.StopOptions{Timeout: &at}); err != nil {
				b.t.Fatal(err)
			}
		},
	} {
		for _, alone := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/without a worker=%t", name, alone), func(t *testing.T) {
				t.Parallel()
				b := newBoxed(t, endpoint)
				worker := b.held()
				id := b.box().ID
				if alone {
					worker.kill()
				}
				end(b)
				if alone {
					worker = b.start(nil, "resume", b.onlyRun().ID, "--no-input")
				}
				eventually(t, "the turn is made again", func() bool { return b.count("begin") == 2 })
				if now := b.box().ID; now != id {
					t.Errorf("the container was %s, and is %s", id, now)
				}
				b.letGo()
				worker.ends(0)
				b.isDone(2)
			})
		}
	}
}

// A container that a person removes takes the session with it. Something that has its name and its labels then is not ours.
func TestDockerContainerIsRemovedByAPerson(t *testing.T) {
	t.Parallel()
	b := newBoxed(t, engine.Endpoint(t))
	worker := b.held()
	gone := b.box()
	if err := b.client.ContainerRemove(context.Background(), gone.ID, container.RemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	b.stranger("a container with our name and labels", strings.TrimPrefix(gone.Name, "/"), engine.Busybox, gone.Config.Labels)
	worker.ends(7)
	b.accounted()
	b.isGivenUp()
}

// A container that a person has paused is no reason to lose it.
func TestDockerContainerIsPaused(t *testing.T) {
	t.Parallel()
	b := newBoxed(t, engine.Endpoint(t))
	b.held().kill()
	if err := b.client.ContainerPause(context.Background(), b.box().ID); err != nil {
		t.Fatal(err)
	}
	b.accounted()
	b.isGivenUp()
}

// The name is taken when the container is asked for.
func TestDockerNameIsTaken(t *testing.T) {
	endpoint := engine.Endpoint(t)
	t.Run("by a container without labels", func(t *testing.T) {
		t.Parallel()
		b := newBoxed(t, endpoint)
		b.proxy.On(engine.Create, 1, engine.Before(func() { b.stranger("a container with our name", b.asked(), engine.Busybox, nil) }))
		b.must([]int{5}, "run", "job", "--no-input")
		b.accounted()
		b.isGivenUp()
	})
	// The request is lost, and before it is made again somebody takes the name, with our labels.
	t.Run("by a container with our labels", func(t *testing.T) {
		t.Parallel()
		b := newBoxed(t, endpoint)
		b.proxy.On(engine.Create, 1, engine.LoseRequest())
		b.proxy.On(engine.Create, 2, engine.Before(func() {
			name := b.asked()
			b.stranger("a container with our name and our labels", name, engine.Busybox, map[string]string{
				owned.LabelOwner: b.owner(), owned.LabelClaim: strings.TrimPrefix(name, "laufwerk-"), owned.LabelRun: b.runInHome(),
			})
		}))
		b.must([]int{5}, "run", "job", "--no-input")
		b.accounted()
		b.isGivenUp()
	})
}

// runInHome is the only run by its folder: asking laufwerk would be another call.
func (b *boxed) runInHome() string {
	b.t.Helper()
	found, err := filepath.Glob(filepath.Join(b.home, "runs/*"))
	if err != nil || len(found) != 1 {
		b.t.Fatalf("%v, %v", found, err)
	}
	return filepath.Base(found[0])
}

// The worker is killed while its create is on the way. Where that arrives after the run was given up and cleaned up, it comes to
// nothing: the directory that the container was to have is gone. Where it arrives while the run is resumed, it is the container.
func TestDockerCreateArrivesLate(t *testing.T) {
	endpoint := engine.Endpoint(t)
	t.Run("after the clean-up", func(t *testing.T) {
		t.Parallel()
		b := newBoxed(t, endpoint)
		rule := b.proxy.On(engine.Create, 1, engine.LateRequest())
		worker := b.start(nil, "run", "job", "--no-input")
		<-rule.Met()
		worker.kill()
		b.isGivenUp()
		rule.Release()
		<-rule.Done()
		b.isClean()
	})
	t.Run("while it is resumed", func(t *testing.T) {
		t.Parallel()
		b := newBoxed(t, endpoint)
		late := b.proxy.On(engine.Create, 1, engine.LateRequest())
		worker := b.start(nil, "run", "job", "--no-input")
		<-late.Met()
		worker.kill()
		b.proxy.On(engine.Create, 2, engine.Before(func() { late.Release(); <-late.Done() }))
		b.must([]int{0}, "resume", b.onlyRun().ID, "--no-input")
		b.isDone(1)
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
			b := newBoxed(t, e.Endpoint)
			b.withoutBash()
			worker := b.held()
			if c.alone {
				worker.kill()
			}
			c.end()
			if c.away {
				worker.ends(4)
				b.accountedLater()
			}
			e.Start()
			b.accounted()
			if c.alone || c.away {
				worker = b.start(nil, "resume", b.onlyRun().ID, "--no-input")
			}
			eventually(t, "the turn is made again", func() bool { return b.count("begin") == 2 })
			b.letGo()
			worker.ends(0)
			b.isDone(2)
		})
	}
}

// accountedLater checks the claims of a world whose engine is away: the one of the session is kept.
func (b *boxed) accountedLater() {
	b.t.Helper()
	if list := b.sessions(); len(list) != 1 || list[0].State != "allocated" {
		b.t.Errorf("%+v", list)
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
	random := chance(t)
	t.Run("at", func(t *testing.T) { // the engine lives until all of them have ended
		for _, op := range []engine.Operation{engine.Create, engine.Inspect, engine.Start, engine.ExecCreate, engine.ExecStart, engine.Delete} {
			ends := []string{resumed, givenUp}
			if !everything() {
				ends = ends[random.IntN(2):][:1]
			}
			for _, end := range ends {
				t.Run(string(op)+"/"+end, func(t *testing.T) {
					t.Parallel()
					b := newBoxed(t, endpoint)
					b.withoutBash()
					if op == engine.ExecCreate || op == engine.ExecStart {
						b.from(engine.Busybox, few)
					}
					b.proxy.On(op, 1, engine.Before(func() { b.proxy.Forward(e.Endpoint) }))
					code, out, errs := b.laufwerk(nil, "run", "job", "--no-input")
					b.proxy.Reset()
					b.proxy.Forward(endpoint)
					if code != 4 {
						t.Errorf("exit %d\n%s%s", code, out, errs)
					}
					if left := engine.Containers(t, e.Endpoint, owned.LabelOwner+"="+b.owner()); len(left) > 0 {
						t.Errorf("on the other engine: %v", left)
					}
					b.plant(false)
					b.accounted()
					if end == givenUp {
						b.isGivenUp()
					} else {
						b.isDone(1)
					}
				})
			}
		}
	})
}

// Two that only read work on one workspace at once, each in a container of its own; who writes waits until they are closed.
func TestDockerSessionsShareAWorkspace(t *testing.T) {
	t.Parallel()
	b := newBoxed(t, engine.Endpoint(t))
	head, _, _ := strings.Cut(boxedWorkflow, `    const writer = `)
	b.workflow("job", strings.NewReplacer("import { defineWorkflow,", "import { all, defineWorkflow, WorkspaceBusy,").Replace(head)+`
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
	if out := b.must([]int{0}, "run", "job", "--no-input"); !strings.Contains(out, "session one of run") && !strings.Contains(out, "session two of run") {
		t.Errorf("who has the workspace: %s", out)
	}
	b.isDone(1)
}

// An engine of another host behind a socket of this one mounts what has the same names there. Whoever asks for a probe is told.
func TestDockerEngineOfAnotherHost(t *testing.T) {
	t.Parallel()
	b := newBoxed(t, engine.Endpoint(t))
	b.proxy.Elsewhere(b.home)
	got, code := b.examined("target.docker.probe", nil, "--probe")
	if code != 4 || len(got) != 1 || got[0].Status != "fail" || !strings.Contains(got[0].Message, "seems to have other files") {
		t.Errorf("exit %d: %v", code, got)
	}
	b.isClean()
}
