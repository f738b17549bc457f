package openshell

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/failure"
	client "github.com/laufwerk/laufwerk/internal/openshell"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/store"
	"github.com/laufwerk/laufwerk/internal/testkit"
	"github.com/laufwerk/laufwerk/internal/testkit/gateway"
)

var (
	schedules = flag.Int("schedules", 0, "how many schedules of TestSchedules are run, from the first on; 0 is a sample of them") //nolint:gochecknoglobals // of the command line
	seed      = flag.Uint64("schedule", 0, "the seed of the one schedule that is run, if any")                                    //nolint:gochecknoglobals // of the command line
)

// TestSchedules runs schedules of creating, sweeping and deleting against a gateway that is killed and restarted, loses calls
// and answers, and forgets; and kills the worker at its calls. In none of them there are ever two sandboxes for a claim, a claim
// that is given up while something of it is there, or a stranger that was touched; and each of them comes to an end.
func TestSchedules(t *testing.T) {
	t.Parallel()
	const full = 10_000
	first, n := uint64(0), *schedules
	if n == 0 {
		n = testkit.SampleSize(1500, full)
		first = testkit.NewRandom(t).Uint64N(uint64(full - n + 1))
	}
	var next atomic.Uint64
	next.Store(first)
	var group errgroup.Group
	for range 16 {
		group.Go(func() error {
			w := newGatewayFixture(t, gateway.Options{Poll: time.Millisecond, Reconnect: time.Millisecond})
			stranger := w.stranger(w.intent(), func(r *wire.CreateSandboxRequest) { r.Labels[client.LabelOwner] = "store-2"; r.Name = "stranger" })
			for {
				s := &schedule{w: w, seed: next.Add(1), stranger: stranger.GetMetadata().GetId()}
				if *seed != 0 {
					s.seed = *seed
				} else if s.seed > first+uint64(n) { //nolint:gosec // a count
					return nil
				}
				if err := s.run(); err != nil {
					return fmt.Errorf("-schedule=%d: %w\n%s", s.seed, err, strings.Join(s.log, "\n"))
				}
				if *seed != 0 {
					return nil
				}
			}
		})
		if *seed != 0 {
			break
		}
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

// schedule is one life of a claim.
type schedule struct {
	w        *gatewayFixture
	seed     uint64
	rand     *rand.Rand
	mem      records
	request  claims.Request
	stranger string
	kept     *worker // the one that lives
	log      []string
}

func (s *schedule) worker() *worker {
	if s.kept == nil {
		s.kept = s.w.worker()
		s.kept.Provider.w = waitLimits{ // a container lands at once, if ever; a busy machine may take longer than a sandbox has to be ready
			ready: 200 * time.Millisecond, absent: 100 * time.Millisecond, settle: 3 * time.Millisecond, landing: time.Second, deletion: 5 * time.Millisecond, pause: time.Millisecond,
		}
	}
	return s.kept
}

func (s *schedule) notef(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

func (s *schedule) run() error {
	s.rand = rand.New(rand.NewPCG(s.seed, 1)) //nolint:gosec // it has to be the same again
	op := fmt.Sprintf("s%d", s.seed)
	in := s.w.intent(func(sp *spec) { sp.Dir = filepath.Join(s.w.dir, "sessions", op); sp.Mark = op })
	id := claims.ID("r1", op)
	s.request = claims.Request{
		ID: id, Kind: claims.KindSession, Provider: Kind, Run: "r1", Operation: op, Image: image,
		Intent: resource.Intent{Name: client.Name(id), Endpoint: s.w.endpoint, Spec: in.Spec},
		Locks:  []claims.LockRequest{{Key: "workspace/" + op, Mode: claims.Exclusive, What: op}},
	}
	for range 3 + s.rand.IntN(5) {
		s.step()
		if err := s.check(); err != nil {
			return err
		}
	}
	return s.converge()
}

// step is a worker that does one thing, while something goes wrong.
func (s *schedule) step() {
	k := s.worker()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var dead atomic.Bool
	die := func() { dead.Store(true); k.leave(); cancel() }
	defer func() {
		if dead.Load() {
			s.kept = nil
		}
	}()
	what := []string{"allocate", "allocate", "allocate", "release", "sweep", "sweep", "restart"}[s.rand.IntN(7)]
	fault := "nothing"
	if s.rand.IntN(4) > 0 {
		fault = s.fault(die)
	}
	s.notef("%s, and %s", what, fault)
	d := s.driver(k, &dead)
	var c claims.Claim
	var err error
	switch what {
	case "allocate":
		c, err = d.Allocate(ctx, s.request)
	case "release":
		c, err = d.Release(ctx, s.request.ID)
	case "sweep":
		err = s.sweep(ctx, d)
	default:
		s.w.g.Restart()
	}
	s.notef("  %s, %v, worker dead: %v", c.State, err, dead.Load())
	s.w.g.Faultless()
	s.w.g.Start()
}

func (s *schedule) sweep(ctx context.Context, d *claims.Driver) error {
	sweep, err := d.Sweep(ctx, claims.Filter{})
	if err != nil {
		return err
	}
	if _, err := sweep.ReadoptLate(ctx, func(claims.Claim) bool { return true }); err != nil {
		return err
	}
	list, err := d.List(ctx, claims.Filter{Outstanding: true})
	if err != nil {
		return err
	}
	sweep.Release(ctx, list, 8, func(_ claims.Claim, e error) {
		if err == nil {
			err = e
		}
	})
	return err
}

// fault has something go wrong with one of the next calls.
func (s *schedule) fault(die func()) string {
	g := s.w.g
	faults := map[string]gateway.Fault{
		"lost": gateway.LoseRequest(), "answered by nobody": gateway.LoseReply(), "delayed": gateway.Delay(2 * time.Millisecond), "unavailable": gateway.Fail(codes.Unavailable, "x"),
		"done, with an error": gateway.FailAfter(codes.Internal, "x"), "refused": gateway.Fail(codes.InvalidArgument, "x"),
		"of no workspace": gateway.Fail(codes.NotFound, "workspace 'default' not found"),
		"killed before":   gateway.Before(g.Kill), "killed after": gateway.After(g.Kill), "restarted before": gateway.Before(g.Restart), "restarted after": gateway.After(g.Restart),
		"the worker's last, before": gateway.Before(die), "the worker's last, after": gateway.After(die),
	}
	call := []string{
		"CreateSandbox", "CreateSandbox", "CreateSandbox", "GetSandbox", "GetSandboxConfig", "DeleteSandbox", "DeleteSandbox", "ListSandboxes",
		gateway.Stored, gateway.Landing, gateway.Removing, gateway.Vanishing,
	}[s.rand.IntN(12)]
	if call == "DeleteSandbox" {
		faults["forgotten"] = gateway.ForgetDelete()
	}
	name := slices.Sorted(maps.Keys(faults))[s.rand.IntN(len(faults))]
	times := 1 + s.rand.IntN(2)
	g.Fault(call, faults[name].Times(times))
	return fmt.Sprintf("%d × %s is %s", times, call, name)
}

func (s *schedule) driver(k *worker, dead *atomic.Bool) *claims.Driver {
	return claims.NewDriver(claims.Options{
		Store: &mortal{&s.mem, dead}, Now: time.Now, Owner: func(context.Context) (string, error) { return s.w.owner, nil },
		Resources: func(claims.Kind, string) (resource.Manager, bool) { return k.Provider, true },
	})
}

func (s *schedule) claim() (c claims.Claim) {
	_, _ = s.mem.Get(store.Claims, s.request.ID, &c)
	return c
}

// check looks at what must never be.
func (s *schedule) check() error {
	c := s.claim()
	rows, containers := s.w.there(resource.Intent{Claim: s.request.ID})
	switch {
	case containers > 1:
		return fmt.Errorf("it has %d containers", containers)
	case c.State == claims.Released && rows+containers > 0:
		return fmt.Errorf("it is released, and has %d rows and %d containers: %v", rows, containers, c.Evidence)
	case c.State == claims.Residue && containers > 0:
		return fmt.Errorf("it is residue, and has %d containers", containers)
	}
	for _, box := range s.w.g.InMemory() {
		if box.SandboxID == s.stranger {
			return nil
		}
	}
	return fmt.Errorf("the stranger's sandbox is gone")
}

// converge ends the claim once nothing goes wrong any more. What was asked for, never answered and is not to be seen stays for a
// person.
func (s *schedule) converge() error {
	k := s.worker()
	defer k.leave()
	d := s.driver(k, &atomic.Bool{})
	for i := range 20 {
		c, err := d.Release(context.Background(), s.request.ID)
		s.notef("at the end: %s, %v", c.State, err)
		rows, containers := s.w.there(resource.Intent{Claim: s.request.ID})
		switch {
		case failure.Is(err, failure.NotFound): // nothing was ever begun
			return nil
		case c.State == claims.Released:
			if _, err := os.Lstat(filepath.Join(s.w.dir, "sessions", s.request.Operation)); err == nil {
				return fmt.Errorf("its directory is left")
			}
			return s.check()
		case c.State == claims.Unknown && rows+containers == 0 && i > 2:
			_, err := d.Abandon(context.Background(), s.request.ID, "nothing came of it")
			return err
		case c.State == claims.Residue:
			s.w.g.Reconcile()
		}
		time.Sleep(time.Duration(i) * time.Millisecond)
	}
	return fmt.Errorf("it does not come to an end: %+v", s.claim())
}

// records are a store in memory.
type records struct {
	mu   sync.Mutex
	data map[string]json.RawMessage
}

func (r *records) Get(b store.Bucket, key string, into any) (bool, error) {
	raw, ok := r.data[fmt.Sprint(b)+"\x00"+key]
	if !ok {
		return false, nil
	}
	return true, json.Unmarshal(raw, into)
}

func (r *records) Put(b store.Bucket, key string, v any) error {
	raw, err := json.Marshal(v)
	if r.data == nil {
		r.data = map[string]json.RawMessage{}
	}
	r.data[fmt.Sprint(b)+"\x00"+key] = raw
	return err
}

func (r *records) Delete(b store.Bucket, key string) error {
	delete(r.data, fmt.Sprint(b)+"\x00"+key)
	return nil
}

func (r *records) Each(b store.Bucket, prefix string, fn func(key string, raw json.RawMessage) error) error {
	for _, k := range slices.Sorted(maps.Keys(r.data)) {
		if key, ok := strings.CutPrefix(k, fmt.Sprint(b)+"\x00"); ok && strings.HasPrefix(key, prefix) {
			if err := fn(key, r.data[k]); err != nil {
				return err
			}
		}
	}
	return nil
}

// mortal is the store of a worker that records nothing when it is dead.
type mortal struct {
	*records
	dead *atomic.Bool
}

func (m *mortal) Update(_ context.Context, fn func(store.Tx) error) error {
	if m.dead.Load() {
		return errors.New("killed")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	was := maps.Clone(m.data)
	err := fn(m.records)
	if err != nil {
		m.data = was
	}
	return err
}

func (m *mortal) View(_ context.Context, fn func(store.Tx) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fn(m.records)
}
