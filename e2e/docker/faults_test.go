package docker_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/testkit"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// at is one call of a command: the nth of its operation.
type at struct {
	op  engine.Operation
	nth int
}

func (a at) String() string { return fmt.Sprintf("%s-%d", a.op, a.nth) }

// callOrder are the calls in the order in which they came.
func callOrder(calls []engine.Call) (list []at) {
	n := map[engine.Operation]int{}
	for _, c := range calls {
		n[c.Operation]++
		list = append(list, at{c.Operation, n[c.Operation]})
	}
	return list
}

// trouble is what can happen to a call.
type trouble struct {
	name   string
	fault  func(b *e2e.DockerMachine) engine.Fault
	blocks bool // nothing comes until somebody loses patience; the effect, if any, comes after that
}

func troubles() []trouble {
	plain := func(f engine.Fault) func(*e2e.DockerMachine) engine.Fault {
		return func(*e2e.DockerMachine) engine.Fault { return f }
	}
	another := func(b *e2e.DockerMachine) func() { return func() { b.Proxy.Pretend("another") } }
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
		{"another-engine", func(b *e2e.DockerMachine) engine.Fault { return engine.Before(another(b)) }, false},
		{"another-engine-after", func(b *e2e.DockerMachine) engine.Fault { return engine.After(another(b)) }, false},
	}
}

// stage is a command of a run's life that speaks to the engine.
type stage struct {
	name string
	// before brings a machine to the moment before; what it returns lets the command act, which is followed to its end then.
	before func(b *e2e.DockerMachine) func() *e2e.Process
	// ends are how the run can be brought to its end once the trouble is over.
	ends []string
	// most is how often the agent may run, each time but one journaled as cut.
	most int
}

// killInTurn leaves a run whose worker was killed in the middle of a turn.
func killInTurn(b *e2e.DockerMachine) (run string) {
	b.T.Helper()
	b.HoldAgent()
	worker := b.Start(nil, "run", "job", "--no-input")
	b.AwaitTurn()
	worker.Kill()
	return b.OnlyRun().ID
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
	both := []string{e2e.EndResumed, e2e.EndGivenUp}
	return []stage{
		{"run", func(b *e2e.DockerMachine) func() *e2e.Process {
			return func() *e2e.Process { return b.Start(nil, "run", "job", "--no-input") }
		}, both, 1},
		{"resume", func(b *e2e.DockerMachine) func() *e2e.Process {
			id := killInTurn(b)
			b.ReleaseAgent()
			return func() *e2e.Process { return b.Start(nil, "resume", id, "--no-input") }
		}, both[:1], 1},
		{"interrupt", func(b *e2e.DockerMachine) func() *e2e.Process {
			b.HoldAgent()
			worker := b.Start(nil, "run", "job", "--no-input")
			b.AwaitTurn()
			return func() *e2e.Process { worker.Signal(syscall.SIGINT); return worker }
		}, both, 2},
		{"fence", func(b *e2e.DockerMachine) func() *e2e.Process {
			first, rest, _ := strings.Cut(e2e.SandboxWorkflow, `    const said = `)
			_, rest, _ = strings.Cut(rest, "\n    yield* writer.close();")
			b.WriteWorkflow("job", strings.NewReplacer("import { defineWorkflow,", "import { all, defineWorkflow, Human,", `said + " and " + `, "").Replace(first+fencing+"    yield* writer.close();"+rest))
			b.HoldAgent()
			worker := b.Start(nil, "run", "job", "--no-input")
			b.AwaitTurn()
			return func() *e2e.Process { b.MustRun([]int{0}, "answer", b.OnlyRun().ID, "go", "no"); return worker }
		}, both, 1},
		{"cancel", func(b *e2e.DockerMachine) func() *e2e.Process {
			id := killInTurn(b)
			return func() *e2e.Process { return b.Start(nil, "runs", "cancel", id) }
		}, both[1:], 1},
		{"cleanup", func(b *e2e.DockerMachine) func() *e2e.Process {
			id := killInTurn(b)
			b.MustRun([]int{0}, "runs", "cancel", id)
			return func() *e2e.Process { return b.Start(nil, "cleanup", id, "--discard-changes") }
		}, both[1:], 1},
	}
}

// meetTrouble lets a command act whose call at a place meets trouble, and then takes the trouble away. A machine that is slow may make
// calls at other places.
func meetTrouble(b *e2e.DockerMachine, a at, x trouble, act func() *e2e.Process) (met bool, code int, said string) {
	b.T.Helper()
	rule := b.Proxy.On(a.op, a.nth, x.fault(b))
	r := act()
	if x.blocks {
		select {
		case <-rule.Met():
			_ = r.Cmd.Process.Signal(syscall.SIGINT) // it may have ended
		case <-time.After(e2e.HangLimit):
		}
	}
	code, out, errs := r.Wait()
	if met = rule.Came(); met {
		rule.Release()
		if x.blocks {
			<-rule.Done()
		}
	}
	b.Proxy.Reset()
	b.Proxy.Pretend("")
	b.Proxy.Return()
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
	s.before = func(b *e2e.DockerMachine) func() *e2e.Process { b.LimitProcesses(); return before(b) }
	return s
}

// calls are those that a stage makes on its way without trouble.
func (s stage) calls(b *e2e.DockerMachine) (list []at) {
	act := s.before(b)
	b.Proxy.Reset()
	act().Wait()
	for _, a := range callOrder(b.Proxy.Calls()) {
		if a.op == engine.ExecInspect && (a.nth > 1 || s.name == "interrupt") {
			continue // it is repeated until the command has ended, and not done where the agent has ended before
		}
		list = append(list, a)
	}
	b.T.Logf("%s: %v", s.name, list)
	b.GiveUpAndCheck()
	return list
}

// Every operation of the engine meets every trouble, in some command of a run's life; in CI one in two of these pairs. Whatever
// comes of it, each container has its claim and each claim at most one container. With the trouble over the run is resumed to its
// end, in which agent and command have run once, or it is cancelled and cleaned up once, and nothing of ours is left and all of
// the strangers'.
func TestDockerFaults(t *testing.T) {
	endpoint := engine.Endpoint(t)
	random := testkit.NewRandom(t)
	all, byKind := []met{}, map[string][]met{}
	var kinds []string
	list := stages()
	for _, s := range append(list, list[0].tight(), list[1].tight()) {
		for _, a := range s.calls(e2e.NewDockerMachine(t, endpoint)) {
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
	if !testkit.TakesEverySample() {
		chosen = nil
		for _, kind := range testkit.EveryNth(random, 2, kinds) {
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
				if !m.play(e2e.NewDockerMachine(t, endpoint), commit) {
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
func (m met) play(b *e2e.DockerMachine, commit bool) bool {
	act := m.before(b)
	b.Proxy.Reset()
	met, code, said := meetTrouble(b, m.at, m.trouble, act)
	defer func() {
		if b.T.Failed() {
			b.T.Logf("exit %d\n%s", code, said)
		}
	}()
	b.PlantStrangers(commit)
	b.CheckAccounted()
	if m.end == e2e.EndGivenUp {
		b.GiveUpAndCheck()
		return met
	}
	for range b.FindInWorkspaces("hold") {
		b.ReleaseAgent()
	}
	b.CheckDone(m.most)
	return met
}
