package docker_test

import (
	"slices"
	"testing"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// What a run costs at the engine, call by call. A call more is one that every session of every user pays. To run something
// costs none where a supervisor stands by.
func TestDockerCalls(t *testing.T) {
	exec := []engine.Operation{engine.ExecCreate, engine.ExecStart}
	t.Run("a supervisor stands by", func(t *testing.T) { t.Parallel(); dockerCalls(t, (*e2e.DockerMachine).ReleaseAgent, nil) })
	t.Run("none does", func(t *testing.T) { t.Parallel(); dockerCalls(t, (*e2e.DockerMachine).LimitProcesses, exec) })
}

func dockerCalls(t *testing.T, change func(*e2e.DockerMachine), exec []engine.Operation) {
	b := e2e.NewDockerMachine(t, engine.Endpoint(t))
	change(b)
	b.MustRun([]int{0}, "run", "job", "--no-input")
	calls := b.Proxy.Calls()
	for _, phase := range []struct {
		name string
		want []engine.Operation
	}{
		{"the engine is found", []engine.Operation{engine.Ping, engine.Info}},
		{"the workspace is opened", []engine.Operation{engine.ImageInspect}},
		{"the session is opened", []engine.Operation{engine.ImageInspect}},
		{"its container is made", []engine.Operation{
			engine.ImageInspect,                     // it is ready, and of this id
			engine.Info, engine.Create, engine.Info, // on the engine that the claim names, also if another came meanwhile
			engine.Inspect, // as it was asked for
		}},
		{"it is entered and started", []engine.Operation{engine.Inspect, engine.Start}},
		{"the turn", exec},
		{"the command", append([]engine.Operation{engine.Inspect}, exec...)},
		{"the session is closed", []engine.Operation{
			engine.Info, engine.Inspect, engine.Delete, // from the engine that has it
			engine.Inspect,              // it is gone there, and its directory goes too
			engine.Inspect, engine.Info, // it is gone, from the engine that the claim names, and so is the claim
		}},
		{"the run ends", nil},
	} {
		if phase.name == "the turn" { // where a container takes more than a second to start, it is looked at meanwhile
			for len(calls) > 1 && calls[0].Operation == engine.Inspect && (exec != nil || calls[1].Operation == engine.Inspect) {
				calls = calls[1:]
			}
		}
		n := min(len(phase.want), len(calls))
		var got []engine.Operation
		for _, c := range calls[:n] {
			got = append(got, c.Operation)
		}
		if !slices.Equal(got, phase.want) {
			t.Errorf("%s: %v, want %v", phase.name, got, phase.want)
		}
		calls = calls[n:]
	}
	if len(calls) > 0 {
		t.Errorf("and then: %v", calls)
	}
	b.CheckDone(1)
}
