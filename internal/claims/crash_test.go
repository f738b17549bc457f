//go:build crashpoints

package claims_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/store"
)

// TestMain lets this binary be a process that allocates and releases on a real store, and may be killed on the way.
func TestMain(m *testing.M) {
	dir := os.Getenv("CLAIMS_TEST_DIR")
	if dir == "" {
		os.Exit(m.Run())
	}
	ctx := context.Background()
	d, err := onDisk(dir)
	if err == nil {
		_, err = d.Allocate(ctx, request("a"))
	}
	if err == nil {
		_, err = d.Release(ctx, request("a").ID)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func onDisk(dir string) (*claims.Driver, error) {
	h, err := store.OpenHome(filepath.Join(dir, "home"), true)
	if err != nil {
		return nil, err
	}
	s := store.Open(h, time.Now, "test")
	return claims.NewDriver(claims.Options{Store: s, Now: time.Now, Owner: s.ID,
		Resources: func(claims.Kind, string) (resource.Manager, bool) {
			return directories(filepath.Join(dir, "fake")), true
		}}), nil
}

// directories are resources on disk: a directory for each, and a second one whenever creating is asked for twice.
type directories string

func (w directories) made(in resource.Intent) string {
	found, _ := filepath.Glob(filepath.Join(string(w), in.Name+".*"))
	return strings.Join(found, " ")
}

func (directories) Lister() resource.Lister { return nil }

func (w directories) Create(_ context.Context, in resource.Intent) resource.Result {
	if err := os.MkdirAll(string(w), 0o700); err != nil {
		return resource.Result{Err: err}
	}
	dir, err := os.MkdirTemp(string(w), in.Name+".")
	if err != nil {
		return resource.Result{Err: err}
	}
	return resource.Result{Outcome: resource.Done, Resource: dir}
}

func (w directories) Resolve(_ context.Context, in resource.Intent) resource.Result {
	if dir := w.made(in); dir != "" {
		return resource.Result{Outcome: resource.Done, Resource: dir}
	}
	return resource.Result{Outcome: resource.NotDone}
}

func (w directories) Observe(_ context.Context, in resource.Intent) resource.Observation {
	if dir := w.made(in); dir != "" {
		return resource.Observation{Presence: resource.Present, Resource: dir}
	}
	return resource.Observation{Presence: resource.Absent}
}

func (w directories) Delete(_ context.Context, in resource.Intent) resource.Result {
	if err := os.Remove(in.Resource); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return resource.Result{Outcome: resource.NotDone, Err: err}
	}
	return resource.Result{Outcome: resource.Done}
}

func process(dir string, env ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(env, "CLAIMS_TEST_DIR="+dir)...)
	return cmd
}

// C22 and all its relatives: killed at any point, of the driver or of the store below it, the next process finds out what
// there is, never makes a second one, and ends it.
func TestKilledAtEveryPoint(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "points")
	if out, err := process(t.TempDir(), "LAUFWERK_CRASH_LOG="+log).CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	points := strings.Fields(string(b))
	if len(points) < 29 {
		t.Fatalf("only %d points were passed: %q", len(points), points)
	}
	for _, point := range points {
		for _, next := range []string{"resume", "cleanup"} {
			dir := t.TempDir()
			cmd := process(dir, "LAUFWERK_CRASH="+point)
			if err := cmd.Run(); err == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("%s: the process was not killed: %v", point, err)
			}
			continueRun(t, dir, point+", then "+next, next == "resume")
		}
	}
}

func continueRun(t *testing.T, dir, when string, resume bool) {
	t.Helper()
	ctx := context.Background()
	d, err := onDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	c, begun, err := d.ByOperation(ctx, "r1", "a")
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	made, _ := filepath.Glob(filepath.Join(dir, "fake", "*"))
	if len(made) > 0 && (!begun || !c.Outstanding()) {
		t.Errorf("%s: %q is there without a claim", when, made)
	}
	if resume && (!begun || c.State == claims.Intent || c.State == claims.Unknown || c.State == claims.Allocated) {
		if c, err = d.Allocate(ctx, request("a")); err != nil || c.State != claims.Allocated {
			t.Errorf("%s: allocating again: %s, %v", when, c.State, err)
		}
		if made, _ := filepath.Glob(filepath.Join(dir, "fake", "*")); len(made) != 1 || made[0] != c.Intent.Resource {
			t.Errorf("%s: the provider has %q, the claim %q", when, made, c.Intent.Resource)
		}
		begun = true
	}
	c, err = d.Release(ctx, request("a").ID)
	if begun && (err != nil || c.State != claims.Released) || !begun && !failure.Is(err, failure.NotFound) {
		t.Errorf("%s: releasing: %s, %v", when, c.State, err)
	}
	if made, _ := filepath.Glob(filepath.Join(dir, "fake", "*")); len(made) > 0 {
		t.Errorf("%s: %q is left", when, made)
	}
	if locks, err := d.ListLocks(ctx, ""); err != nil || len(locks) > 0 {
		t.Errorf("%s: holds %v, %v", when, locks, err)
	}
}
