//go:build crashpoints

package app_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// inBoth is a path below /tmp, which is a directory of its own in every container: what runs inside logs and dies by files of
// that name too, and by its own.
func (b *boxed) inBoth(name string) string {
	b.t.Helper()
	path := filepath.Join("/tmp", fmt.Sprintf("laufwerk-test-%d-%s-%s", os.Getpid(), filepath.Base(filepath.Dir(b.proxy.Endpoint)), name))
	b.t.Cleanup(func() { _ = os.Remove(path) })
	return path
}

// dies is the environment in which the first process that reaches a point is killed there, outside or inside.
func (b *boxed) dies(point string) []string {
	return []string{"LAUFWERK_CRASH=" + point, "LAUFWERK_CRASH_ONCE=" + b.inBoth("crashed")}
}

func pointsOf(t *testing.T, log string) (out []string) {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if p := strings.TrimSpace(line); !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// dockerPoints are the points that a run reaches on this host while it has a session, from the session's intent to its
// absence, and those that its supervisors reach inside. What a run does before and after is the same on every target.
func dockerPoints(t *testing.T, endpoint string, change func(*boxed)) (outside, inside []string) {
	t.Helper()
	b := newBoxed(t, endpoint, "crashpoints")
	change(b)
	log := b.inBoth("log")
	b.workflow("job", strings.Replace(boxedWorkflow, "echo count >> ran;", "echo count >> ran; sed s/^/inside:/ "+log+" >> ran;", 1))
	if code, out, errs := b.laufwerk([]string{"LAUFWERK_CRASH_LOG=" + log}, "run", "job", "--no-input"); code != 0 {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	outside = pointsOf(t, log)
	for _, line := range pointsOf(t, filepath.Join(b.project, "ran")) { // no file more than any other run has
		if p, is := strings.CutPrefix(line, "inside:"); is {
			inside = append(inside, p)
		}
	}
	b.isDone(1)
	from, to := slices.Index(outside, "claims/before-intent#2"), slices.Index(outside, "workspace/before-freeze-blobs#1")
	if from < 0 || to < from {
		t.Fatalf("%v", outside)
	}
	if !everything() {
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
	outside, inside := dockerPoints(t, endpoint, func(*boxed) {})
	tight, _ := dockerPoints(t, endpoint, (*boxed).tight)
	tight = slices.DeleteFunc(tight, func(point string) bool { return slices.Contains(outside, point) })
	if len(tight) == 0 || !slices.Contains(outside, "entered/after-take#1") {
		t.Errorf("supervisors are started in one way only: %v %v", outside, tight)
	}
	random := chance(t)
	for i, point := range slices.Concat(outside, tight, inside) {
		most := 1
		if i >= len(outside)+len(tight) {
			most = 2 // cut, and made once more
		}
		ends := []string{resumed, givenUp}
		if !everything() {
			ends = ends[random.IntN(2):][:1]
		}
		for _, end := range ends {
			t.Run(strings.ReplaceAll(point, "/", ".")+"/"+end, func(t *testing.T) {
				t.Parallel()
				b := newBoxed(t, endpoint, "crashpoints")
				if slices.Contains(tight, point) {
					b.tight()
				}
				code, out, errs := b.laufwerk(b.dies(point), "run", "job", "--no-input")
				if died := code == 137; died != (most == 1) {
					t.Errorf("exit %d\n%s%s", code, out, errs)
				}
				b.plant(false)
				b.accounted()
				if end == givenUp {
					b.isGivenUp()
				} else {
					b.isDone(most)
				}
			})
		}
	}
}

// What ends a run with a turn in flight is killed at each of its points; typed again, it does what it was for.
func TestDockerKilledCommands(t *testing.T) {
	endpoint := engine.Endpoint(t)
	probe := newBoxed(t, endpoint, "crashpoints")
	probe.midway()
	n := probe.reached("cleanup", "--all", "--cancel", "--discard-changes")
	probe.isClean()
	t.Logf("%d points", n)
	random, step := chance(t), 4
	if everything() {
		step = 1
	}
	for i := 1 + random.IntN(step); i <= n; i += step {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			b := newBoxed(t, endpoint, "crashpoints")
			b.midway()
			if code, out, errs := b.laufwerk(b.diesAt(i, "command"), "cleanup", "--all", "--cancel", "--discard-changes"); code != 137 {
				t.Errorf("it was not killed: exit %d\n%s%s", code, out, errs)
			}
			b.plant(false)
			b.accounted()
			b.must([]int{0}, "cleanup", "--all", "--cancel", "--discard-changes")
			b.isClean()
		})
	}
}
