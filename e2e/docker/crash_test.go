//go:build crashpoints

package docker_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/testkit"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// pathInBoth is a path below /tmp, which is a directory of its own in every container: what runs inside logs and dies by files of
// that name too, and by its own.
func pathInBoth(b *e2e.DockerMachine, name string) string {
	b.T.Helper()
	path := filepath.Join("/tmp", fmt.Sprintf("laufwerk-test-%d-%s-%s", os.Getpid(), filepath.Base(filepath.Dir(b.Proxy.Endpoint)), name))
	b.T.Cleanup(func() { _ = os.Remove(path) })
	return path
}

// crashInBoth is the environment in which the first process that reaches a point is killed there, outside or inside.
func crashInBoth(b *e2e.DockerMachine, point string) []string {
	return []string{"LAUFWERK_CRASH=" + point, "LAUFWERK_CRASH_ONCE=" + pathInBoth(b, "crashed")}
}

// dockerPoints are the points that a run reaches on this host while it has a session, from the session's intent to its
// absence, and those that its supervisors reach inside. What a run does before and after is the same on every target.
func dockerPoints(t *testing.T, endpoint string, change func(*e2e.DockerMachine)) (outside, inside []string) {
	t.Helper()
	b := e2e.NewDockerMachine(t, endpoint, "crashpoints")
	change(b)
	log := pathInBoth(b, "log")
	b.WriteWorkflow("job", strings.Replace(e2e.SandboxWorkflow, "echo count >> ran;", "echo count >> ran; sed s/^/inside:/ "+log+" >> ran;", 1))
	if code, out, errs := b.Run([]string{"LAUFWERK_CRASH_LOG=" + log}, "run", "job", "--no-input"); code != 0 {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	outside = e2e.ReadCrashPoints(t, log)
	for _, line := range e2e.ReadCrashPoints(t, filepath.Join(b.Project, "ran")) { // no file more than any other run has
		if p, is := strings.CutPrefix(line, "inside:"); is {
			inside = append(inside, p)
		}
	}
	b.CheckDone(1)
	from, to := slices.Index(outside, "claims/before-intent#2"), slices.Index(outside, "workspace/before-freeze-blobs#1")
	if from < 0 || to < from {
		t.Fatalf("%v", outside)
	}
	if !testkit.TakesEverySample() {
		outside = outside[from:to]
	}
	if len(outside) < 50 || len(inside) < 8 {
		t.Fatalf("only %d and %d crash points: %v %v", len(outside), len(inside), outside, inside)
	}
	t.Logf("%d points outside, %d inside", len(outside), len(inside))
	return outside, inside
}

// A run is killed at each of its points, the supervisors inside at each of theirs. Each container has its claim then. Resumed,
// the run ends as if nothing had happened: the turn that went on was joined, and only with its supervisor it was cut. Or it is
// cancelled and cleaned up, and nothing of ours is left, and all of the strangers'.
func TestDockerKilledAnywhere(t *testing.T) {
	endpoint := engine.Endpoint(t)
	outside, inside := dockerPoints(t, endpoint, func(*e2e.DockerMachine) {})
	tight, _ := dockerPoints(t, endpoint, (*e2e.DockerMachine).LimitProcesses)
	tight = slices.DeleteFunc(tight, func(point string) bool { return slices.Contains(outside, point) })
	if len(tight) == 0 || !slices.Contains(outside, "entered/after-take#1") {
		t.Errorf("supervisors are started in one way only: %v %v", outside, tight)
	}
	random := testkit.NewRandom(t)
	for i, point := range testkit.EveryNth(random, 3, slices.Concat(outside, tight, inside)) {
		most := 1
		if i >= len(outside)+len(tight) {
			most = 2 // cut, and made once more
		}
		ends := []string{e2e.EndResumed, e2e.EndGivenUp}
		if !testkit.TakesEverySample() {
			ends = ends[random.IntN(2):][:1]
		}
		for _, end := range ends {
			t.Run(strings.ReplaceAll(point, "/", ".")+"/"+end, func(t *testing.T) {
				t.Parallel()
				b := e2e.NewDockerMachine(t, endpoint, "crashpoints")
				if slices.Contains(tight, point) {
					b.LimitProcesses()
				}
				code, out, errs := b.Run(crashInBoth(b, point), "run", "job", "--no-input")
				if died := code == 137; died != (most == 1) {
					t.Errorf("exit %d\n%s%s", code, out, errs)
				}
				b.PlantStrangers(false)
				b.CheckAccounted()
				if end == e2e.EndGivenUp {
					b.GiveUpAndCheck()
				} else {
					b.CheckDone(most)
				}
			})
		}
	}
}

// What ends a run with a turn in flight is killed at each of its points; typed again, it does what it was for.
func TestDockerKilledCommands(t *testing.T) {
	endpoint := engine.Endpoint(t)
	probe := e2e.NewDockerMachine(t, endpoint, "crashpoints")
	killInTurn(probe)
	n := probe.CountCrashPoints("cleanup", "--all", "--cancel", "--discard-changes")
	probe.CheckClean()
	t.Logf("%d points", n)
	random, step := testkit.NewRandom(t), testkit.SampleSize(4, 1)
	for i := 1 + random.IntN(step); i <= n; i += step {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			b := e2e.NewDockerMachine(t, endpoint, "crashpoints")
			killInTurn(b)
			if code, out, errs := b.Run(b.CrashAtNth(i, "command"), "cleanup", "--all", "--cancel", "--discard-changes"); code != 137 {
				t.Errorf("it was not killed: exit %d\n%s%s", code, out, errs)
			}
			b.PlantStrangers(false)
			b.CheckAccounted()
			b.MustRun([]int{0}, "cleanup", "--all", "--cancel", "--discard-changes")
			b.CheckClean()
		})
	}
}
