//go:build crashpoints

package openshell

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/dockerengine"
	client "github.com/laufwerk/laufwerk/internal/openshell"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/store"
	"github.com/laufwerk/laufwerk/internal/testkit/gateway"
)

// life is what another process of this binary does: it allocates and releases on a real store, and may be killed on the way.
type life struct {
	Home    string         `json:"home"`
	Config  string         `json:"config"` // $XDG_CONFIG_HOME
	Socket  string         `json:"socket"` // of the engine
	Request claims.Request `json:"request"`
}

const lifeVariable = "OPENSHELL_TEST_LIFE"

func TestMain(m *testing.M) {
	given := os.Getenv(lifeVariable)
	if given == "" {
		os.Exit(m.Run())
	}
	var l life
	err := json.Unmarshal([]byte(given), &l)
	if err == nil {
		err = l.live()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (l life) driver() (*claims.Driver, error) {
	home, err := store.OpenHome(l.Home, true)
	if err != nil {
		return nil, err
	}
	s := store.Open(home, time.Now, "test")
	p := New(Config{
		Executable: "/bin/sh", Now: time.Now, UID: 1234, GID: 1234, State: l.Home, Programs: programs(),
		Gateway: func(ctx context.Context, name string) (*client.Gateway, error) {
			r, err := client.Registrations{Vars: map[string]string{"XDG_CONFIG_HOME": l.Config}}.Find(name)
			if err != nil {
				return nil, err
			}
			return client.Connect(ctx, r)
		},
		Connect: func(ctx context.Context, _ string) (*dockerengine.Engine, error) {
			return dockerengine.Connect(ctx, dockerengine.Endpoint{Host: l.Socket, Origin: "the test"})
		},
	})
	p.w.settle, p.w.deletion = 50*time.Millisecond, 50*time.Millisecond
	return claims.NewDriver(claims.Options{
		Store: s, Now: time.Now, Owner: s.ID, Resources: func(claims.Kind, string) (resource.Manager, bool) { return p, true },
	}), nil
}

func (l life) live() error {
	d, err := l.driver()
	if err != nil {
		return err
	}
	ctx := context.Background()
	if _, err := d.Allocate(ctx, l.Request); err != nil {
		return err
	}
	sweep, err := d.Sweep(ctx, claims.Filter{})
	if err != nil {
		return err
	}
	list, err := d.List(ctx, claims.Filter{Outstanding: true})
	if err != nil {
		return err
	}
	sweep.Release(ctx, list, 1, func(_ claims.Claim, e error) {
		if e != nil {
			err = e
		}
	})
	return err
}

func (l life) process(t *testing.T, env ...string) *exec.Cmd {
	t.Helper()
	given, err := json.Marshal(l)
	must(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(env, lifeVariable+"="+string(given))...)
	return cmd
}

func (w *gatewayFixture) life(op string) life {
	w.t.Helper()
	in := w.intent(func(s *spec) { s.Dir, s.Mark = filepath.Join(w.dir, "sessions", op), op })
	id := claims.ID("r1", op)
	return life{
		Home: filepath.Join(w.dir, "home-"+op), Config: w.config, Socket: w.engine.Endpoint().Host,
		Request: claims.Request{
			ID: id, Kind: claims.KindSession, Provider: Kind, Run: "r1", Operation: op, Image: image,
			Intent: resource.Intent{Name: client.Name(id), Endpoint: w.endpoint, Spec: in.Spec},
		},
	}
}

// Killed at any point, of the driver, of the store or around a call of the gateway, the next process finds out what there is,
// never makes a second one, and ends it. Only what was about to be asked for, and cannot be told from what was, stays for a person.
func TestKilledAtEveryPoint(t *testing.T) {
	t.Parallel()
	w := newGatewayFixture(t, gateway.Options{Poll: time.Millisecond})
	log := filepath.Join(t.TempDir(), "points")
	if out, err := w.life("log").process(t, "LAUFWERK_CRASH_LOG="+log).CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	b, err := os.ReadFile(log)
	must(t, err)
	points := strings.Fields(string(b))
	for _, name := range []string{
		"sessiondir/before-mkdir", "openshell/before-note", "openshell/after-note", "openshell/before-create", "openshell/after-create", "openshell/before-delete", "openshell/after-delete",
		"sessiondir/before-ending", "sessiondir/after-remove",
	} {
		if !slices.Contains(points, name+"#1") {
			t.Errorf("%s is not passed: %q", name, points)
		}
	}
	var group errgroup.Group
	group.SetLimit(4)
	for i, point := range points {
		for _, next := range []string{"resume", "cleanup"} {
			l := w.life(fmt.Sprintf("p%d-%s", i, next))
			group.Go(func() error {
				cmd := l.process(t, "LAUFWERK_CRASH="+point)
				if err := cmd.Run(); err == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
					return fmt.Errorf("%s: the process was not killed: %w", point, err)
				}
				if err := w.goesOn(l, point, next == "resume"); err != nil {
					return fmt.Errorf("%s, then %s: %w", point, next, err)
				}
				return nil
			})
		}
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	if n, made := w.g.Calls()["CreateSandbox"], 2*len(points)+1; n > made {
		t.Errorf("%d creations in %d lives", n, made)
	}
}

func (w *gatewayFixture) goesOn(l life, point string, resume bool) error {
	d, err := l.driver()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	c, begun, err := d.ByOperation(ctx, "r1", l.Request.Operation)
	if err != nil {
		return err
	}
	of := resource.Intent{Claim: l.Request.ID}
	asked := point == "openshell/after-note#1" || point == "openshell/before-create#1" // for all that can be known
	if rows, containers := w.there(of); rows > 1 || containers > 1 || begun && !c.Outstanding() && rows+containers > 0 {
		return fmt.Errorf("it is %s, with %d rows and %d containers", c.State, rows, containers)
	}
	if resume && (!begun || c.AllocatedAt.IsZero()) {
		c, err = d.Allocate(ctx, l.Request)
		if rows, containers := w.there(of); rows > 1 || containers > 1 {
			return fmt.Errorf("resumed, it has %d rows and %d containers", rows, containers)
		}
		if err != nil && !asked {
			return fmt.Errorf("it was %s, and cannot be had: %w", c.State, err)
		} else if asked && c.State != claims.Unknown {
			return fmt.Errorf("what was about to be asked for is %s: %w", c.State, err)
		}
		begun = true
	}
	if !begun {
		return nil
	}
	c, err = d.Release(ctx, l.Request.ID)
	rows, containers := w.there(of)
	switch {
	case rows+containers > 0:
		return fmt.Errorf("it is %s, with %d rows and %d containers: %w", c.State, rows, containers, err)
	case (c.State == claims.Unknown) != asked:
		return fmt.Errorf("it is %s: %w", c.State, err)
	case asked: // it may still appear
		return nil
	case err != nil || c.State != claims.Released:
		return fmt.Errorf("it is %s: %w", c.State, err)
	}
	if _, err := os.Lstat(filepath.Join(w.dir, "sessions", l.Request.Operation)); err == nil {
		return fmt.Errorf("its directory is left")
	}
	return nil
}
