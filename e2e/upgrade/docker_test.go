package upgrade_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// dockerState is state, with containers.
type dockerState struct {
	name  string
	leave func(d *dockerUpgraded)
	then  func(t *testing.T, d *dockerUpgraded) // nil is the job's whole rest
}

type dockerUpgraded struct {
	*upgraded
	docker *e2e.DockerMachine
}

func (d *dockerUpgraded) working() *e2e.Process {
	d.docker.HoldAgent()
	worker := d.Start(nil, "run", "job", "--no-input")
	d.docker.AwaitTurn()
	return worker
}

func dockerStates() []dockerState {
	run := func(point string) func(d *dockerUpgraded) {
		return func(d *dockerUpgraded) { crashed(point, "run", "job", "--no-input")(d.upgraded) }
	}
	is := func(state string, leave func(d *dockerUpgraded)) func(d *dockerUpgraded) {
		return func(d *dockerUpgraded) { claimIs(state, func(*upgraded) { leave(d) })(d.upgraded) }
	}
	givenUp := func(_ *testing.T, d *dockerUpgraded) { d.docker.GiveUpAndCheck() }
	joined := func(t *testing.T, d *dockerUpgraded) {
		second := d.Start(nil, "resume", d.OnlyRun().ID, "--no-input")
		e2e.Eventually(t, "it is joined", func() bool { return d.HasAttached(d.OnlyRun().ID) })
		d.docker.ReleaseAgent()
		if code, out, errs := second.Wait(); code != 0 {
			t.Fatalf("exit %d\n%s%s", code, out, errs)
		}
		d.docker.CheckDone(1)
	}
	lost := func(d *dockerUpgraded) {
		d.docker.Proxy.On(engine.Create, 1, engine.LoseReply())
		run("claims/before-resolve#1")(d)
		d.docker.Proxy.Reset()
	}
	return []dockerState{
		{"a turn whose worker is dead and whose supervisor lives", func(d *dockerUpgraded) { d.working().Kill() }, joined},
		{"a turn whose supervisor was started by the engine", func(d *dockerUpgraded) {
			d.docker.LimitProcesses()
			d.working().Kill()
		}, joined},
		{"a turn whose supervisor lives, given up", func(d *dockerUpgraded) { d.working().Kill() }, givenUp},
		{"an allocated container", is("allocated", run("journal/after-completed#3")), nil},
		{"a container's intent", is("intent", run("claims/after-intent#2")), nil},
		{"a container's intent, and the container", is("intent", run("claims/after-create#2")), nil},
		{"a container of which nothing was heard", is("unknown", lost), nil},
		{"a container of which nothing was heard, given up", is("unknown", lost), givenUp},
		{"a container whose end is about to be asked for", is("deleting", run("claims/before-delete#1")), nil},
		{"a container whose end was asked for", is("deleting", run("claims/after-delete#1")), nil},
	}
}

// TestDockerUpgrade is TestLocalUpgrade for containers, in which the older one's supervisors go on.
func TestDockerUpgrade(t *testing.T) {
	endpoint := engine.Endpoint(t)
	for _, s := range dockerStates() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			docker := e2e.NewDockerMachine(t, endpoint)
			d := &dockerUpgraded{installOlder(docker.Machine), docker}
			s.leave(d)
			docker.CheckAccounted()
			d.upgrade()
			docker.CheckAccounted()
			if s.then != nil {
				s.then(t, d)
				return
			}
			docker.CheckDone(1)
			d.checkBuilds()
		})
	}
}

// TestImageUpgrade: what the older one has prepared is prepared for the newer one, which makes nothing and writes nothing.
func TestImageUpgrade(t *testing.T) {
	t.Parallel()
	endpoint := engine.Endpoint(t)
	docker := e2e.NewDockerMachine(t, endpoint)
	u := installOlder(docker.Machine)
	packages := engine.Packages(t, endpoint)
	ca := filepath.Join(u.Dir, "registry-ca.crt")
	u.WriteFile(ca, string(packages.Authority))
	u.WriteFile(filepath.Join(u.Project, "laufwerk/execution.ts"),
		"import { createDockerExecution } from \"@laufwerk/execution/docker\";\nexport const execution = createDockerExecution({ credentials: \"codex-subscription\" });\n")
	type result struct {
		Targets []struct {
			Image, ManifestPath string
			Reused              bool
		}
	}
	prepare := func() (made result) {
		code, out, errs := u.Run(nil, "prepare", "docker", "--image", engine.Base, "--registry", packages.URL, "--ca", ca, "--json")
		if err := json.Unmarshal([]byte(out), &made); err != nil || code != 0 || len(made.Targets) != 1 {
			t.Fatalf("exit %d, %v\n%s%s", code, err, out, errs)
		}
		return made
	}
	unlock := e2e.LockPreparation(t)
	made := prepare()
	unlock()
	t.Cleanup(func() { engine.RemoveImage(t, endpoint, made.Targets[0].Image) })
	receipt, err := os.ReadFile(made.Targets[0].ManifestPath)
	if err != nil {
		t.Fatal(err)
	}
	if made.Targets[0].Reused {
		t.Error("the older one has made nothing")
	}
	u.upgrade()
	docker.Proxy.Reset()
	again := prepare()
	if now, _ := os.ReadFile(again.Targets[0].ManifestPath); !again.Targets[0].Reused || again.Targets[0].Image != made.Targets[0].Image || string(now) != string(receipt) {
		t.Errorf("it was not used: %+v, it was %+v\n%s\n%s", again, made, now, receipt)
	}
	if n := docker.Proxy.Count(engine.Create, engine.Build, engine.Commit, engine.Pull, engine.ImageTag, engine.ImageRemove); n > 0 {
		t.Errorf("the engine was asked for something: %v", docker.Proxy.Calls())
	}
}
