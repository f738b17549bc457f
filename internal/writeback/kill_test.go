package writeback

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/testkit"
)

// childDo names what TestChild is to do in the fixture that childDir holds.
const (
	childDo   = "WRITEBACK_CHILD_DO"
	childDir  = "WRITEBACK_CHILD_DIR"
	childDeny = "WRITEBACK_CHILD_DENY"
	childTwo  = "WRITEBACK_CHILD_NO_EXCHANGE"
)

// TestChild is what gets killed.
func TestChild(t *testing.T) {
	at := os.Getenv(childDir)
	if at == "" {
		t.Skip("runs only as a child of other tests")
	}
	if os.Getenv(childDeny) != "" {
		if err := testkit.PlainRenames(); err != nil {
			t.Fatal(err)
		}
	}
	w := sourceFixtureAt(t, at)
	ctx := context.Background()
	var err error
	switch os.Getenv(childDo) {
	case "apply":
		err = w.run()
	case "continue":
		err = Continue(ctx, w.req.Dir, w.req.NoExchange)
	case "abort":
		_, err = Abort(ctx, w.req.Dir)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// sourceFixtureAt finds the fixture that another process made.
func sourceFixtureAt(t *testing.T, at string) *sourceFixture {
	w := newSourceFixtureIn(t, at, allBase, allFrozen, tree{})
	w.req.NoExchange = os.Getenv(childTwo) != ""
	return w
}

type killer struct {
	*testing.T
	binary     string
	noExchange bool
}

// newKiller builds this package's test with the crash points in it.
func newKiller(t *testing.T) *killer {
	if crash.Enabled {
		return &killer{T: t, binary: must(os.Executable())}
	}
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("needs the go tool to build itself with crash points")
	}
	k := &killer{T: t, binary: filepath.Join(t.TempDir(), "crashing")}
	cmd := exec.Command(tool, "test", "-c", "-tags", "crashpoints", "-o", k.binary, ".")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return k
}

// child runs one step; killed says that it was killed at the point, "" lets it live.
func (k *killer) child(at, do, point, log string) (killed bool) {
	k.Helper()
	cmd := exec.Command(k.binary, "-test.run", "^TestChild$")
	cmd.Env = append(os.Environ(), childDo+"="+do, childDir+"="+at, "LAUFWERK_CRASH="+point, "LAUFWERK_CRASH_LOG="+log)
	if k.noExchange {
		cmd.Env = append(cmd.Env, childTwo+"=1")
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return true
	}
	if err != nil {
		k.Fatalf("%s to be killed at %q: %v\n%s", do, point, err, out)
	}
	return false
}

// points runs one step to its end and lists the crash points it came by.
func (k *killer) points(at, do string) []string {
	k.Helper()
	log := filepath.Join(k.TempDir(), "points")
	k.child(at, do, "", log)
	points := strings.Fields(string(must(os.ReadFile(log))))
	return slices.DeleteFunc(points, func(p string) bool { return !strings.HasPrefix(p, "writeback/") || k.noExchange && !inTwo(p) })
}

// inTwo says whether a point is of the replacement without exchange; the others are the same with it.
func inTwo(point string) bool {
	return strings.Contains(point, "-aside") || strings.Contains(point, "-install") || strings.Contains(point, "-restore")
}

func (k *killer) fixture(t *testing.T) (string, *sourceFixture) {
	at := fast(t)
	return at, newSourceFixtureIn(t, at, allBase, allFrozen, allBase)
}

// finish ends what is pending and says what the source must hold.
func finish(t *testing.T, w *sourceFixture, end string) tree {
	t.Helper()
	ctx := context.Background()
	pend := must(Pending(w.req.Dir))
	if end == "continue" {
		if pend != nil {
			if err := Continue(ctx, w.req.Dir, false); err != nil {
				t.Fatal(err, failure.As(err))
			}
		}
		if err := w.run(); err != nil { // what the engine does after a kill, whatever was pending
			t.Fatal(err)
		}
		return allFrozen
	}
	if pend == nil {
		if got := readTree(t, w.source); maps.Equal(got, allFrozen.full()) {
			return allFrozen
		}
		return allBase
	}
	state := pend.doc.State
	r, err := Abort(ctx, w.req.Dir)
	if state == Applied {
		if !failure.Is(err, failure.RunState) {
			t.Fatalf("abort after the commit: %v", err)
		}
		return allFrozen
	}
	if err != nil || len(r.Left) > 0 || len(r.Rescued) > 0 {
		t.Fatalf("abort: %+v %v", r, err)
	}
	return allBase
}

func (k *killer) check(t *testing.T, w *sourceFixture, end string) {
	t.Helper()
	w.holds(finish(t, w, end))
	leftovers(t, w.source)
	if pend := must(Pending(w.req.Dir)); pend != nil {
		t.Errorf("pending: %s", pend.doc.State)
	}
}

// SIGKILL at every crash point, then continue: the source holds exactly the approved bytes; or abort: what it held before.
func TestKilledAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("spawns hundreds of processes")
	}
	k := newKiller(t)
	for _, k.noExchange = range []bool{false, true} {
		at, w := k.fixture(t)
		points := k.points(at, "apply")
		w.holds(allFrozen)
		if least := map[bool]int{false: 60, true: 10}[k.noExchange]; len(points) < least {
			t.Fatalf("only %d crash points: %v", len(points), points)
		}
		for _, point := range points {
			for _, end := range []string{"continue", "abort"} {
				at, w := k.fixture(t)
				w.req.NoExchange = k.noExchange
				if !k.child(at, "apply", point, "") {
					t.Fatalf("not killed at %s", point)
				}
				k.check(t, w, end)
				if t.Failed() {
					t.Fatalf("killed at %s, without exchange %v, then %s", point, k.noExchange, end)
				}
			}
		}
	}
}

// Killed in the middle, then killed again at every point of what was to end it.
func TestKilledTwice(t *testing.T) {
	if testing.Short() {
		t.Skip("spawns hundreds of processes")
	}
	k := newKiller(t)
	for _, k.noExchange = range []bool{false, true} {
		for end, first := range map[string]string{"continue": "writeback/before-create#2", "abort": "writeback/before-verify#1"} {
			at, _ := k.fixture(t)
			k.child(at, "apply", first, "")
			for _, point := range k.points(at, end) {
				at, w := k.fixture(t)
				w.req.NoExchange = k.noExchange
				k.child(at, "apply", first, "")
				if !k.child(at, end, point, "") {
					t.Fatalf("not killed at %s", point)
				}
				k.check(t, w, end)
				if t.Failed() {
					t.Fatalf("killed at %s, in %s at %s, without exchange %v", first, end, point, k.noExchange)
				}
			}
		}
	}
}
