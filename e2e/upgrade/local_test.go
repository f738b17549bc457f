package upgrade_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/journal"
)

// state is what an older laufwerk has left, and what a newer one makes of it.
type state struct {
	name  string
	leave func(u *upgraded)               // with the older one
	then  func(t *testing.T, u *upgraded) // with the newer one; nil is the job's whole rest
}

// crashed leaves what a command leaves that is killed at a point.
func crashed(point string, args ...string) func(u *upgraded) {
	return func(u *upgraded) {
		u.T.Helper()
		if code, out, errs := u.Run(u.CrashAt(point), args...); code != 137 {
			u.T.Fatalf("laufwerk %s was not killed at %s: exit %d\n%s%s", strings.Join(args, " "), point, code, out, errs)
		}
	}
}

// waiting leaves a job that waits for a person.
func waiting(u *upgraded) { u.MustRun([]int{8}, "run", "job", "--no-input") }

// working leaves a job in the middle of its turn, with its worker.
func working(u *upgraded) *e2e.Process {
	u.Mark(e2e.HoldFile)
	worker := u.Start(nil, "run", "job", "--no-input")
	u.AwaitRan("begin", 1)
	return worker
}

// halfApplied leaves a job whose worker was killed in the middle of the write-back.
func halfApplied(u *upgraded) {
	waiting(u)
	crashed("writeback/after-exchange#1", "answer", u.OnlyRun().ID, "approve", "yes")(u)
	if !u.OnlyRun().HalfApplied {
		u.T.Fatal("the write-back is not half applied")
	}
}

// givenUp cancels the only run, and holds that nothing of it is left.
func givenUp(u *upgraded) {
	u.T.Helper()
	id := u.OnlyRun().ID
	u.MustRun([]int{0}, "runs", "cancel", id)
	u.MustRun([]int{0}, "cleanup", id, "--discard-changes")
	u.CheckNothingLeft()
	u.CheckSource(e2e.SourceBefore())
}

// claimIs leaves what leave leaves, in which a claim is in a state.
func claimIs(state string, leave func(u *upgraded)) func(u *upgraded) {
	return func(u *upgraded) {
		u.T.Helper()
		leave(u)
		if list := u.ListClaims("--all"); !slices.ContainsFunc(list, func(c e2e.ListedClaim) bool { return c.State == state }) {
			u.T.Fatalf("no claim is %s: %v", state, list)
		}
	}
}

func localStates() []state {
	var worker *e2e.Process
	return []state{
		{"a run that waits for a person", waiting, nil},
		{"a run that waits, given up", waiting, func(_ *testing.T, u *upgraded) { givenUp(u) }},
		{"a run with an answer that nobody has read", func(u *upgraded) {
			waiting(u)
			crashed("journal/after-send#1", "answer", u.OnlyRun().ID, "approve", "yes")(u)
		}, nil},
		{"a run that was interrupted between two operations", crashed("journal/after-completed#4", "run", "job", "--no-input"), nil},
		{"a run that works, and its worker goes on", func(u *upgraded) { worker = working(u) }, func(t *testing.T, u *upgraded) {
			u.Unmark(e2e.HoldFile)
			if code, out, errs := worker.Wait(); code != 8 { // whatever it starts now is the newer one
				t.Fatalf("exit %d\n%s%s", code, out, errs)
			}
			u.FinishAndCheck(1)
			u.checkBuilds()
		}},
		{"a turn whose worker is dead and whose supervisor lives", func(u *upgraded) { working(u).Kill() }, func(t *testing.T, u *upgraded) {
			second := u.Start(nil, "resume", u.OnlyRun().ID, "--no-input")
			e2e.Eventually(t, "it is joined", func() bool { return u.HasAttached(u.OnlyRun().ID) })
			u.Unmark(e2e.HoldFile)
			if code, out, errs := second.Wait(); code != 8 {
				t.Fatalf("exit %d\n%s%s", code, out, errs)
			}
			u.FinishAndCheck(1)
			u.checkBuilds()
		}},
		{"a turn whose supervisor lives, given up", func(u *upgraded) { working(u).Kill() }, func(_ *testing.T, u *upgraded) { givenUp(u) }},
		{"a write-back that is half applied, continued", halfApplied, func(_ *testing.T, u *upgraded) {
			u.MustRun([]int{0}, "writeback", "continue", u.OnlyRun().ID)
			u.FinishAndCheck(1)
		}},
		{"a write-back that is half applied, aborted", halfApplied, func(_ *testing.T, u *upgraded) {
			u.MustRun([]int{0}, "writeback", "abort", u.OnlyRun().ID)
			givenUp(u)
		}},
		{"a run that sleeps", sleeping, slept},
		{"a run that is over, and its claims released", claimIs("released", func(u *upgraded) { u.FinishAndCheck(1) }), func(t *testing.T, u *upgraded) {
			u.MustRun([]int{0}, "runs", "prune", u.OnlyRun().ID)
			if left := u.ListRuns(); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		}},
		{"a workspace's intent", claimIs("intent", crashed("claims/after-intent#1", "run", "job", "--no-input")), nil},
		{"a session's intent", claimIs("intent", crashed("claims/after-intent#2", "run", "job", "--no-input")), nil},
		{"a session's intent, and its folder", claimIs("intent", crashed("claims/after-create#2", "run", "job", "--no-input")), nil},
		{"a session's intent, given up", claimIs("intent", crashed("claims/after-create#2", "run", "job", "--no-input")), func(_ *testing.T, u *upgraded) { givenUp(u) }},
		{"an allocated session", claimIs("allocated", crashed("journal/after-completed#3", "run", "job", "--no-input")), nil},
		{"a session whose end is about to be asked for", claimIs("deleting", crashed("claims/before-delete#1", "run", "job", "--no-input")), nil},
		{"a session whose end was asked for", claimIs("deleting", crashed("claims/after-delete#1", "run", "job", "--no-input")), nil},
		{"a claim that a person has taken over", claimIs("abandoned", func(u *upgraded) {
			crashed("claims/after-intent#2", "run", "job", "--no-input")(u)
			for _, c := range u.ListClaims() {
				if c.State == "intent" {
					u.MustRun([]int{0}, "claims", "abandon", c.ID, "--reason", "a test")
				}
			}
		}), func(_ *testing.T, u *upgraded) {
			id := u.OnlyRun().ID
			u.MustRun([]int{0}, "runs", "cancel", id)
			u.MustRun([]int{0}, "cleanup", id, "--discard-changes")
			if left := u.ListClaims(); len(left) > 0 {
				u.T.Errorf("claims left: %v", left)
			}
		}},
	}
}

// TestLocalUpgrade: whatever the older laufwerk has left on a machine with a local target, the newer one says the same of it,
// and brings it to its end without making anything twice.
func TestLocalUpgrade(t *testing.T) {
	for _, s := range localStates() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			u := installOlder(e2e.NewMachine(t))
			s.leave(u)
			u.upgrade()
			if s.then != nil {
				s.then(t, u)
				return
			}
			u.FinishAndCheck(1)
			u.checkBuilds()
		})
	}
}

// checkBuilds checks that the journal names both programs, in their order.
func (u *upgraded) checkBuilds() {
	u.T.Helper()
	var builds []string
	for _, r := range u.JournalRecords() {
		if r.Type == journal.Begin || r.Type == journal.Resumed {
			builds = append(builds, r.Build)
		}
	}
	if builds = slices.Compact(builds); !slices.Equal(builds, []string{olderVersion, newerVersion}) {
		u.T.Errorf("the journal names %q", builds)
	}
}

const nap = 3 * time.Second

func sleeping(u *upgraded) {
	u.WriteWorkflowBody("sleeper", fmt.Sprintf(`    yield* Clock.sleep({ key: "nap", duration: %d });
    return "awake";`, nap.Milliseconds()))
	worker := u.Start(nil, "run", "sleeper", "--no-input")
	e2e.Eventually(u.T, "it sleeps", func() bool {
		started, _ := filepath.Glob(filepath.Join(u.Home, "runs/*/journal"))
		return len(started) == 1 && len(u.ListRuns()) == 1 && u.CountRecords()["started clock.sleep:nap"] == 1
	})
	worker.Kill()
}

// slept: the run wakes when it was to wake, neither earlier nor after another whole sleep.
func slept(t *testing.T, u *upgraded) {
	id := u.OnlyRun().ID
	u.MustRun([]int{0}, "resume", id, "--no-input")
	var began, ended time.Time
	for _, r := range u.JournalRecords() {
		switch {
		case r.Type == journal.Started && strings.HasPrefix(r.Op, "clock.sleep"):
			if !began.IsZero() {
				t.Error("the sleep began twice")
			}
			began = r.At
		case r.Type == journal.Completed && strings.HasPrefix(r.Op, "clock.sleep"):
			ended = r.At
		}
	}
	if took := ended.Sub(began); took < nap-time.Millisecond { // what is recorded is in milliseconds
		t.Errorf("it slept for %s only", took)
	}
	if r := u.OnlyRun(); r.State != "succeeded" {
		t.Errorf("the run is %s", r.State)
	}
	u.checkBuilds()
}
