package claims_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/laufwerk/laufwerk/internal/claims"
)

// faults are what may go wrong with each call of the fake provider.
func faults() map[string][]string {
	return map[string][]string{
		"create":  {"lost", "reply lost", "late", "late kill", "invalid", "kill before", "kill after"},
		"resolve": {"unseen", "kill before", "kill after"},
		"list":    {"unseen", "unreachable", "kill before", "kill after"},
		"observe": {"unseen", "kill before", "kill after"},
		"delete":  {"lost", "reply lost", "forgotten", "refused", "slow", "residue", "kill before", "kill after"},
	}
}

const operationsPerWorld = 100 // × 100 worlds, which is rapid's default: 10,000

// TestModel runs random operations against a provider that misbehaves, and kills the process at random. When it fails, rapid
// prints the seed and the file that replay it (-rapid.seed, -rapid.failfile).
func TestModel(t *testing.T) {
	t.Parallel()
	total := 0
	rapid.Check(t, func(rt *rapid.T) {
		m := newModel(rt)
		for range operationsPerWorld {
			m.step(rt)
			m.check(rt)
			total++
		}
		m.converge(rt)
	})
	if total < 10_000 && flag.Lookup("rapid.checks").Value.String() == "100" && !testing.Short() {
		t.Errorf("only %d operations", total)
	}
}

type model struct {
	mem       *memory
	w         *fakeProvider
	strangers map[string]bool // ids
	abandoned map[string]bool // claims that the test gave up
	nested    bool
}

func newModel(rt *rapid.T) *model {
	m := &model{mem: newMemory(), w: newFakeProvider(), strangers: map[string]bool{}, abandoned: map[string]bool{}}
	m.w.fault = func(call string) string {
		if rapid.IntRange(0, 2).Draw(rt, "fault?") > 0 {
			return ""
		}
		return rapid.SampledFrom(faults()[call]).Draw(rt, "fault of "+call)
	}
	m.mem.committed = func(what string) { m.w.calls = append(m.w.calls, "commit "+what) }
	m.mem.kill = func() string {
		switch rapid.IntRange(0, 30).Draw(rt, "kill?") {
		case 0:
			return "kill before"
		case 1:
			return "kill after"
		default:
			return ""
		}
	}
	// Another process's clean-up comes in between.
	m.w.during = func(call string) {
		if m.nested || rapid.IntRange(0, 9).Draw(rt, "meanwhile?") > 0 {
			return
		}
		if id := m.anyClaim(rt); id != "" {
			m.nested = true
			m.run(func(d *claims.Driver) { _, _ = d.Release(context.Background(), id) })
			m.nested = false
		}
	}
	return m
}

// run is one process: it may be killed, and a new one knows only what is in the store.
func (m *model) run(do func(d *claims.Driver)) {
	nested := m.nested
	defer func() {
		m.nested = nested
		if r := recover(); r != nil {
			if _, ok := r.(killed); !ok {
				panic(r)
			}
		}
	}()
	do(driver(m.mem, m.w))
}

func (m *model) anyClaim(rt *rapid.T) string {
	ids := slices.Sorted(maps.Keys(m.mem.buckets["claims"]))
	if len(ids) == 0 {
		return ""
	}
	return rapid.SampledFrom(ids).Draw(rt, "claim")
}

func (m *model) anyThing(rt *rapid.T) *thing {
	ids := slices.Sorted(maps.Keys(m.w.things))
	if len(ids) == 0 {
		return nil
	}
	return m.w.things[rapid.SampledFrom(ids).Draw(rt, "thing")]
}

func (m *model) step(rt *rapid.T) {
	ctx := context.Background()
	switch op := rapid.IntRange(0, 19).Draw(rt, "operation"); op {
	case 0, 1, 2, 3, 4, 5:
		name := fmt.Sprintf("op%d", rapid.IntRange(0, 12).Draw(rt, "name"))
		m.run(func(d *claims.Driver) {
			if c, err := d.Allocate(ctx, request(name)); err == nil {
				if present, _ := m.w.of(c.ID); c.State != claims.Allocated || c.Intent.Resource == "" || present > 1 {
					rt.Fatalf("Allocate gave %+v", c)
				}
			}
		})
	case 6, 7, 8, 9, 10:
		if id := m.anyClaim(rt); id != "" {
			m.run(func(d *claims.Driver) {
				c, err := d.Release(ctx, id)
				if (err == nil) != !c.Outstanding() {
					rt.Fatalf("Release gave %s and %v", c.State, err)
				}
			})
		}
	case 13: // time passes
		m.w.settle()
	case 14: // one thing arrives
		if len(m.w.inFlight) > 0 {
			m.w.arrive(m.w.inFlight[0])
		}
	case 15: // a stranger takes a name of ours
		name := fmt.Sprintf("lw-op%d", rapid.IntRange(0, 12).Draw(rt, "name"))
		if m.w.named(name) == nil {
			s := m.w.add(name, "")
			m.w.things[s.id], m.strangers[s.id] = s, true
		}
	case 16: // and goes again
		if s := m.anyThing(rt); s != nil && m.strangers[s.id] {
			delete(m.w.things, s.id)
			delete(m.strangers, s.id)
		}
	case 17: // someone removes what is ours
		if s := m.anyThing(rt); s != nil && !m.strangers[s.id] {
			delete(m.w.things, s.id)
		}
	case 11, 12, 18: // a sweep
		m.run(func(d *claims.Driver) { m.sweep(ctx, d) })
	case 19:
		if id := m.anyClaim(rt); id != "" && rapid.IntRange(0, 9).Draw(rt, "abandon?") == 0 {
			m.run(func(d *claims.Driver) {
				m.abandoned[id] = true // also when it is killed after the commit
				_, _ = d.Abandon(ctx, id, "tired of it")
			})
		}
	}
}

func (m *model) sweep(ctx context.Context, d *claims.Driver) {
	s, err := d.Sweep(ctx, claims.Filter{})
	if err != nil {
		return
	}
	if _, err := s.ReadoptLate(ctx, func(claims.Claim) bool { return true }); err != nil {
		return
	}
	list, err := d.List(ctx, claims.Filter{Outstanding: true})
	if err != nil {
		return
	}
	told := map[string]int{}
	s.Release(ctx, list, 1, func(c claims.Claim, err error) {
		told[c.ID]++
		if (err == nil) != !c.Outstanding() {
			m.w.broken = append(m.w.broken, fmt.Sprintf("the sweep gave %s of %s and %v", c.State, c.ID, err))
		}
	})
	for _, c := range list {
		if told[c.ID] != 1 {
			m.w.broken = append(m.w.broken, fmt.Sprintf("%s was told of %d times", c.ID, told[c.ID]))
		}
	}
}

func (m *model) claims(rt *rapid.T) []claims.Claim {
	list, err := driver(m.mem, m.w).List(context.Background(), claims.Filter{})
	if err != nil {
		rt.Fatal(err)
	}
	return list
}

// fail says what is wrong, and everything that led to it.
func (m *model) fail(rt *rapid.T, format string, args ...any) {
	rt.Helper()
	rt.Fatalf(format+"\n%s", append(args, strings.Join(m.w.calls, "\n"))...)
}

func (m *model) check(rt *rapid.T) {
	if len(m.w.broken) > 0 {
		m.fail(rt, "%q", m.w.broken)
	}
	if len(m.w.touched) > 0 {
		m.fail(rt, "strangers were touched: %q", m.w.touched)
	}
	for id := range m.strangers {
		if m.w.things[id] == nil {
			m.fail(rt, "the stranger %s is gone", id)
		}
	}
	known := map[string]claims.Claim{}
	holders, err := driver(m.mem, m.w).ListLocks(context.Background(), "workspace/")
	if err != nil {
		rt.Fatal(err)
	}
	held := map[string]bool{}
	for _, h := range holders {
		if len(h.Holders) != 1 {
			m.fail(rt, "an exclusive lock has the holders %v", h.Holders)
		}
		held[h.Holders[0].ID] = true
	}
	for _, c := range m.claims(rt) {
		known[c.ID] = c
		present, coming := m.w.of(c.ID)
		switch {
		case present+coming > 1:
			m.fail(rt, "%s has %d resources", c.ID, present+coming)
		case c.State == claims.Released && present+coming > 0:
			m.fail(rt, "%s is released and there: %+v", c.ID, c.Evidence)
		case c.State == claims.Allocated && c.Intent.Resource == "":
			m.fail(rt, "%s is allocated without an id", c.ID)
		case c.State == claims.Abandoned && !m.abandoned[c.ID]:
			m.fail(rt, "%s was abandoned by nobody", c.ID)
		}
		switch c.State {
		case claims.Intent, claims.Unknown, claims.Allocated:
			if !held[c.ID] {
				m.fail(rt, "%s is %s and lost its lock", c.ID, c.State)
			}
		case claims.Released, claims.Residue, claims.Abandoned:
			if held[c.ID] {
				m.fail(rt, "%s is %s and keeps its lock", c.ID, c.State)
			}
		}
	}
	for _, t := range m.w.things {
		if _, ok := known[t.claim]; t.claim != "" && !ok {
			m.fail(rt, "%s has no claim", t.id)
		}
	}
}

// converge: once the provider behaves, one round of clean-up ends everything that nobody gave up.
func (m *model) converge(rt *rapid.T) {
	m.w.fault, m.mem.kill = func(string) string { return "" }, func() string { return "" }
	m.w.during = func(string) {}
	for id := range m.strangers { // a name that is a stranger's proves nothing: those claims wait for a person
		delete(m.w.things, id)
	}
	clear(m.strangers)
	m.w.settle()
	d := driver(m.mem, m.w)
	for _, c := range m.claims(rt) {
		after, err := d.Release(context.Background(), c.ID)
		if err != nil || after.Outstanding() {
			m.fail(rt, "%s was %s and is %s: %v", c.ID, c.State, after.State, err)
		}
	}
	m.check(rt)
	for _, t := range m.w.things {
		if !m.abandoned[t.claim] {
			m.fail(rt, "%s of %s is left", t.id, t.claim)
		}
	}
}
