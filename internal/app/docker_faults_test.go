package app_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// chance is a source of samples that can be had again: LAUFWERK_TEST_SEED.
func chance(t testing.TB) *rand.Rand {
	t.Helper()
	seed, err := strconv.ParseUint(os.Getenv("LAUFWERK_TEST_SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("LAUFWERK_TEST_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// everything says that a test takes no samples: LAUFWERK_TEST_ALL=1, for machines with an hour of time.
func everything() bool { return os.Getenv("LAUFWERK_TEST_ALL") == "1" }

// at is one call of a command: the nth of its operation.
type at struct {
	op  engine.Operation
	nth int
}

func (a at) String() string { return fmt.Sprintf("%s-%d", a.op, a.nth) }

// places are the calls in the order in which they came.
func places(calls []engine.Call) (list []at) {
	n := map[engine.Operation]int{}
	for _, c := range calls {
		n[c.Operation]++
		list = append(list, at{c.Operation, n[c.Operation]})
	}
	return list
}

// trouble is what can happen to a call.
type trouble struct {
	name  string
	fault func(b *boxed) engine.Fault
	held  bool // nothing comes until somebody loses patience; the effect, if any, comes after that
}

func troubles() []trouble {
	plain := func(f engine.Fault) func(*boxed) engine.Fault { return func(*boxed) engine.Fault { return f } }
	another := func(b *boxed) func() { return func() { b.proxy.Pretend("another") } }
	return []trouble{
		{"request-lost", plain(engine.LoseRequest()), false},
		{"reply-lost", plain(engine.LoseReply()), false},
		{"reply-late", plain(engine.LateReply()), true},
		{"request-late", plain(engine.LateRequest()), true},
		{"status-500", plain(engine.Fail(http.StatusInternalServerError)), false},
		{"status-500-after", plain(engine.FailAfter(http.StatusInternalServerError)), false},
		{"truncated", plain(engine.Truncate()), false},
		{"gone", plain(engine.Vanish()), false},
		{"gone-after", plain(engine.VanishAfter()), false},
		{"another-engine", func(b *boxed) engine.Fault { return engine.Before(another(b)) }, false},
		{"another-engine-after", func(b *boxed) engine.Fault { return engine.After(another(b)) }, false},
	}
}

// stage is a command of a run's life that speaks to the engine.
type stage struct {
	name string
	// before brings a world to the moment before; what it returns lets the command act, which is followed to its end then.
	before func(b *boxed) func() *running
	// ends are how the run can be brought to its end once the trouble is over.
	ends []string
	// most is how often the agent may run, each time but one journaled as cut.
	most int
}

const (
	resumed = "resumed"
	givenUp = "given-up"
)

// midway leaves a run whose worker was killed in the middle of a turn.
func (b *boxed) midway() (run string) {
	b.t.Helper()
	b.holding()
	worker := b.start(nil, "run", "job", "--no-input")
	b.begins()
	worker.kill()
	return b.onlyRun().ID
}

// fencing fences its turn when the question in a branch beside it is answered with no.
const fencing = `
    try {
      yield* all([
        writer.ask({ key: "edit", prompt: "edit" }),
        (function* () {
          if (!(yield* Human.confirm({ key: "go", title: "Go on?" }))) throw new Error("no");
        })(),
      ]);
    } catch {}
    const counted = yield* writer.exec({ key: "count", command: "echo changed > changed.txt; echo count >> ran; echo counted" });
`

func stages() []stage {
	both := []string{resumed, givenUp}
	return []stage{
		{"run", func(b *boxed) func() *running {
			return func() *running { return b.start(nil, "run", "job", "--no-input") }
		}, both, 1},
		{"resume", func(b *boxed) func() *running {
			id := b.midway()
			b.letGo()
			return func() *running { return b.start(nil, "resume", id, "--no-input") }
		}, both[:1], 1},
		{"interrupt", func(b *boxed) func() *running {
			b.holding()
			worker := b.start(nil, "run", "job", "--no-input")
			b.begins()
			return func() *running { worker.signal(syscall.SIGINT); return worker }
		}, both, 2},
		{"fence", func(b *boxed) func() *running {
			first, rest, _ := strings.Cut(boxedWorkflow, `    const said = `)
			_, rest, _ = strings.Cut(rest, "\n    yield* writer.close();")
			b.workflow("job", strings.NewReplacer("import { defineWorkflow,", "import { all, defineWorkflow, Human,", `said + " and " + `, "").Replace(first+fencing+"    yield* writer.close();"+rest))
			b.holding()
			worker := b.start(nil, "run", "job", "--no-input")
			b.begins()
			return func() *running { b.must([]int{0}, "answer", b.onlyRun().ID, "go", "no"); return worker }
		}, both, 1},
		{"cancel", func(b *boxed) func() *running {
			id := b.midway()
			return func() *running { return b.start(nil, "runs", "cancel", id) }
		}, both[1:], 1},
		{"cleanup", func(b *boxed) func() *running {
			id := b.midway()
			b.must([]int{0}, "runs", "cancel", id)
			return func() *running { return b.start(nil, "cleanup", id, "--discard-changes") }
		}, both[1:], 1},
	}
}

// meets lets a command act whose call at a place meets trouble, and then takes the trouble away. A machine that is slow may make
// calls at other places.
func (b *boxed) meets(a at, x trouble, act func() *running) (met bool, code int, said string) {
	b.t.Helper()
	rule := b.proxy.On(a.op, a.nth, x.fault(b))
	r := act()
	if x.held {
		select {
		case <-rule.Met():
			_ = r.cmd.Process.Signal(syscall.SIGINT) // it may have ended
		case <-time.After(hang):
		}
	}
	code, out, errs := r.wait()
	if met = rule.Came(); met {
		rule.Release()
		if x.held {
			<-rule.Done()
		}
	}
	b.proxy.Reset()
	b.proxy.Pretend("")
	b.proxy.Return()
	return met, code, out + errs
}

// met is one trouble of one call.
type met struct {
	stage
	at
	trouble
	end string
}

func (m met) String() string {
	return strings.Join([]string{m.stage.name, m.at.String(), m.trouble.name, m.end}, "/")
}

// tight is a stage in whose containers no supervisor stands by.
func (s stage) tight() stage {
	before := s.before
	s.name += ", tight"
	s.before = func(b *boxed) func() *running { b.tight(); return before(b) }
	return s
}

// calls are those that a stage makes on its way without trouble.
func (s stage) calls(b *boxed) (list []at) {
	act := s.before(b)
	b.proxy.Reset()
	act().wait()
	for _, a := range places(b.proxy.Calls()) {
		if a.op == engine.ExecInspect && (a.nth > 1 || s.name == "interrupt") {
			continue // it is repeated until the command has ended, and not done where the agent has ended before
		}
		list = append(list, a)
	}
	b.t.Logf("%s: %v", s.name, list)
	b.isGivenUp()
	return list
}

// Every operation of the engine meets every trouble, in some command of a run's life. Whatever comes of it, each container has
// its claim and each claim at most one container. With the trouble over the run is resumed to its end, in which agent and
// command have run once, or it is cancelled and cleaned up once, and nothing of ours is left and all of the strangers'.
func TestDockerFaults(t *testing.T) {
	endpoint := engine.Endpoint(t)
	random := chance(t)
	all, byKind := []met{}, map[string][]met{}
	var kinds []string
	list := stages()
	for _, s := range append(list, list[0].tight(), list[1].tight()) {
		for _, a := range s.calls(newBoxed(t, endpoint)) {
			if strings.HasSuffix(s.name, "tight") && a.op != engine.ExecCreate && a.op != engine.ExecStart {
				continue
			}
			for _, x := range troubles() {
				kind := string(a.op) + "/" + x.name
				if byKind[kind] == nil {
					kinds = append(kinds, kind)
				}
				for _, end := range s.ends {
					m := met{s, a, x, end}
					all = append(all, m)
					byKind[kind] = append(byKind[kind], m)
				}
			}
		}
	}
	chosen := all
	if !everything() {
		chosen = nil
		for _, kind := range kinds {
			chosen = append(chosen, byKind[kind][random.IntN(len(byKind[kind]))])
		}
	}
	t.Logf("%d of %d", len(chosen), len(all))
	var missed atomic.Int32
	t.Run("at", func(t *testing.T) {
		for _, m := range chosen {
			commit := random.IntN(8) == 0
			t.Run(m.String(), func(t *testing.T) {
				t.Parallel()
				if !m.play(newBoxed(t, endpoint), commit) {
					missed.Add(1)
				}
			})
		}
	})
	if n := int(missed.Load()); n > len(chosen)/20 {
		t.Errorf("%d of %d calls did not come", n, len(chosen))
	}
}

// play says whether the trouble was met.
func (m met) play(b *boxed, commit bool) bool {
	act := m.before(b)
	b.proxy.Reset()
	met, code, said := b.meets(m.at, m.trouble, act)
	defer func() {
		if b.t.Failed() {
			b.t.Logf("exit %d\n%s", code, said)
		}
	}()
	b.plant(commit)
	b.accounted()
	if m.end == givenUp {
		b.isGivenUp()
		return met
	}
	for range b.inWorkspace("hold") {
		b.letGo()
	}
	b.isDone(m.most)
	return met
}
