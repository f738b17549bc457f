//go:build crashpoints

package docker_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// A clean-up of containers is killed at each of its points; the next one ends the rest, and no stranger.
func TestKilledCleanUpOfContainers(t *testing.T) {
	endpoint := engine.Endpoint(t)
	made := func(t *testing.T) *e2e.DockerMachine {
		t.Helper()
		b := e2e.NewDockerMachine(t, endpoint, "crashpoints")
		l := newLedger(b)
		l.over("261129-over0001")
		l.must(l.allocate("261129-over0001", "one"))
		l.must(l.allocate("", "two"))
		b.PlantStrangers(false)
		return b
	}
	probe := made(t)
	log := filepath.Join(probe.Dir, "points")
	if code, out, errs := probe.Run([]string{"LAUFWERK_CRASH_LOG=" + log}, "cleanup", "--all"); code != 0 {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	probe.CheckClean()
	points := e2e.ReadCrashPoints(t, log)
	if len(points) < 20 {
		t.Fatalf("only %d points: %v", len(points), points)
	}
	for _, point := range points {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			b := made(t)
			env := []string{"LAUFWERK_CRASH=" + point, fmt.Sprintf("LAUFWERK_CRASH_ONCE=%s", filepath.Join(b.Dir, "crashed"))}
			if code, out, errs := b.Run(env, "cleanup", "--all"); code != 137 {
				t.Errorf("exit %d\n%s%s", code, out, errs)
			}
			if _, err := os.Stat(filepath.Join(b.Dir, "crashed")); err != nil {
				t.Error(err)
			}
			b.CheckAccounted()
			b.MustRun([]int{0}, "cleanup", "--all")
			b.CheckClean()
		})
	}
}
