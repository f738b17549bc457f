//go:build crashpoints

package local_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/journal"
)

// cost is what one operation takes: records of the journal, one fsync each; commits of the store; and processes: one
// supervisor and one command for each turn and each exec.
type cost struct{ started, completed, commits, supervisors, commands int }

func TestKilledNowhereCostsThis(t *testing.T) {
	want := map[string]cost{
		"workspace.open":         {0, 1, 2, 0, 0}, // intent and allocation
		"session.open:s":         {0, 1, 1, 0, 0}, // the hold
		"session.exec[s]:first":  {1, 1, 2, 1, 1}, // the first operation allocates the session
		"session.ask[s]:turn":    {1, 1, 0, 1, 1},
		"session.exec[s]:second": {1, 1, 0, 1, 1},
		"session.close[s]":       {0, 1, 2, 0, 0}, // asked for, and absent
	}
	w := e2e.NewMachine(t)
	w.WriteWorkflowBody("three", threeOps)
	log := filepath.Join(w.Dir, "log")
	if code, out, errs := w.Run([]string{"LAUFWERK_CRASH_LOG=" + log}, "run", "three", "--no-input"); code != 0 {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	// Operations come one after the other: what is between two completions is the later one's.
	var each []cost
	now, appended, made := cost{}, 0, false
	for line := range strings.Lines(string(b)) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), "#")
		if strings.HasPrefix(name, "journal/after-") {
			appended++
		}
		switch name {
		case "runs/after-commit": // the run itself was made before
			now, made = cost{}, true
		case "journal/after-started":
			now.started++
		case "store/after-commit":
			now.commits++
		case "supervise/after-launch":
			now.supervisors++
		case "supervise/after-spawn":
			now.commands++
		case "journal/after-completed":
			now.completed++
			each = append(each, now)
			now = cost{}
		}
	}
	records := w.JournalRecords()
	if !made || appended != len(records) {
		t.Errorf("%d appends, %d records", appended, len(records))
	}
	i := 0
	for _, r := range records {
		if r.Type != journal.Completed {
			continue
		}
		name, _, _ := strings.Cut(r.Op, "#")
		if i >= len(each) || each[i] != want[name] {
			t.Errorf("%s: %+v, want %+v", r.Op, each[min(i, len(each)-1)], want[name])
		}
		i++
	}
	if i != len(want) || now.commits != 2 { // what the workspace holds is kept, and the run has ended
		t.Errorf("%d operations, then %d commits", i, now.commits)
	}
}
