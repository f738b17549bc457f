//go:build crashpoints

package prepare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/store"
	"github.com/laufwerk/laufwerk/internal/testkit"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// TestMain lets this binary be a process that prepares an image, and may be killed on the way.
func TestMain(m *testing.M) {
	dir := os.Getenv("PREPARE_TEST_HOME")
	if dir == "" {
		os.Exit(m.Run())
	}
	home, err := store.OpenHome(dir, true)
	if err == nil {
		w := &imageFixture{endpoint: os.Getenv("PREPARE_TEST_ENGINE"), binary: os.Getenv("PREPARE_TEST_BINARY"), home: home, store: store.Open(home, time.Now, "test"), program: tiny(os.Getenv("PREPARE_TEST_VERSION"))}
		o := w.options()
		o.Image = os.Getenv("PREPARE_TEST_IMAGE")
		_, err = o.run(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// child runs a preparation in a process of its own; killed says that it was.
func (w *imageFixture) child(base string, env ...string) (killed bool) {
	w.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "PREPARE_TEST_HOME="+w.home.Dir(), "PREPARE_TEST_ENGINE="+w.endpoint, "PREPARE_TEST_BINARY="+w.binary, "PREPARE_TEST_IMAGE="+base, "PREPARE_TEST_VERSION="+w.program.Version)
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return true
	}
	if err != nil {
		w.t.Fatalf("%v\n%s", err, out)
	}
	return false
}

// TestDockerKilledAnywhereConverges kills a preparation at its crash points, in CI at one in four. The next one, or a clean-up and the next
// one, leaves one image and nothing else.
func TestDockerKilledAnywhereConverges(t *testing.T) {
	endpoint, binary := engine.Endpoint(t), testkit.Binary(t)
	open := func(t *testing.T) *imageFixture {
		w := openImageFixture(t, filepath.Join(t.TempDir(), "home"), endpoint, binary)
		t.Cleanup(w.clear)
		return w
	}
	first := open(t)
	base := first.quickBase()
	log := filepath.Join(t.TempDir(), "points")
	if first.child(base, "LAUFWERK_CRASH_LOG="+log) {
		t.Fatal("killed")
	}
	reached, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	points := strings.Fields(string(reached))
	if len(points) < 40 {
		t.Fatalf("only %d points were reached: %v", len(points), points)
	}
	for n, point := range testkit.EveryNth(testkit.NewRandom(t), 4, points) {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w := open(t)
			w.program = tiny(fmt.Sprintf("1.0.%d", n+1)) // a recipe of its own
			if !w.child(base, "LAUFWERK_CRASH="+point) {
				t.Fatal("it was not killed")
			}
			if n%3 == 0 { // as cleanup --all does
				d := w.driver()
				left, err := d.List(w.ctx(), claims.Filter{NoRun: true, Outstanding: true})
				if err != nil {
					t.Fatal(err)
				}
				for _, c := range left {
					if _, err := d.Release(w.ctx(), c.ID); err != nil {
						t.Errorf("%s: %v", c.ID, err)
					}
				}
				if left, err := d.List(w.ctx(), claims.Filter{NoRun: true, Outstanding: true}); err != nil || len(left) > 0 {
					t.Errorf("%v, %v", left, err)
				}
			}
			o := w.options()
			o.Image = base
			r, _ := w.prepare(o)
			if again, _ := w.prepare(o); !again.Reused || again.Image != r.Image {
				t.Errorf("%+v", again)
			}
			made := 0
			for _, i := range w.recipeImages(r.Recipe) {
				if made++; i != r.Image {
					t.Errorf("%s is left", i)
				}
			}
			if made != 1 {
				t.Errorf("%d images", made)
			}
		})
	}
}

// TestDockerCancelledAnywhere: an interrupted preparation ends what it made, and says how to go on.
func TestDockerCancelledAnywhere(t *testing.T) {
	w := newImageFixture(t)
	for wait := 20 * time.Millisecond; ; wait = wait * 3 / 2 {
		ctx, cancel := context.WithTimeoutCause(w.ctx(), wait, failure.New(failure.Interrupted, "interrupted"))
		_, err := w.options().run(ctx)
		cancel()
		if err == nil {
			break
		}
		if left := engine.Containers(t, w.endpoint, "dev.laufwerk.owner="+w.owner()); len(left) > 0 {
			t.Errorf("after %v: %v", wait, left)
		}
		list, lerr := w.driver().List(w.ctx(), claims.Filter{Outstanding: true})
		if lerr != nil || len(list) > 0 {
			t.Errorf("after %v: %+v, %v", wait, list, lerr)
		}
		if t.Failed() {
			t.Fatalf("%v", err)
		}
	}
	if r, _ := w.prepare(w.options()); !r.Reused {
		t.Errorf("%+v", r)
	}
}
