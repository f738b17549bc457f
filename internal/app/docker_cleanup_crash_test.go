//go:build crashpoints

package app_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// A clean-up of containers is killed at each of its points; the next one ends the rest, and no stranger.
func TestKilledCleanUpOfContainers(t *testing.T) {
	endpoint := engine.Endpoint(t)
	made := func(t *testing.T) *boxed {
		t.Helper()
		b := newBoxed(t, endpoint, "crashpoints")
		l := b.ledger()
		l.over("261129-over0001")
		l.must(l.allocate("261129-over0001", "one"))
		l.must(l.allocate("", "two"))
		b.plant(false)
		return b
	}
	probe := made(t)
	log := filepath.Join(probe.dir, "points")
	if code, out, errs := probe.laufwerk([]string{"LAUFWERK_CRASH_LOG=" + log}, "cleanup", "--all"); code != 0 {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	probe.isClean()
	points := pointsOf(t, log)
	if len(points) < 20 {
		t.Fatalf("only %d points: %v", len(points), points)
	}
	for _, point := range points {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			b := made(t)
			env := []string{"LAUFWERK_CRASH=" + point, fmt.Sprintf("LAUFWERK_CRASH_ONCE=%s", filepath.Join(b.dir, "crashed"))}
			if code, out, errs := b.laufwerk(env, "cleanup", "--all"); code != 137 {
				t.Errorf("exit %d\n%s%s", code, out, errs)
			}
			if _, err := os.Stat(filepath.Join(b.dir, "crashed")); err != nil {
				t.Error(err)
			}
			b.accounted()
			b.must([]int{0}, "cleanup", "--all")
			b.isClean()
		})
	}
}
