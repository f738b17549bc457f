package codex_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/agent/codex"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/testkit"
)

// BenchmarkOneTurnOfCodex: an ask, from its beginning to its record, beside the same `codex exec` alone, in turns.
func BenchmarkOneTurnOfCodex(b *testing.B) {
	w := e2e.NewCodexMachine(b, testkit.Say("done"))
	given, _ := json.Marshal(w.CodexOptions(nil))
	options, err := codex.New().Validate(given)
	if err != nil {
		b.Fatal(err)
	}
	alone := func() time.Duration {
		home := filepath.Join(w.Dir, "alone", time.Now().Format("150405.000000"))
		own, err := os.ReadFile(filepath.Join(w.Dir, ".codex/auth.json"))
		if err != nil {
			b.Fatal(err)
		}
		w.WritePrivate(filepath.Join(home, "auth.json"), own)
		c, err := codex.New().Turn(agent.Turn{Options: options, Prompt: "do it", PermissionMode: agent.AllowAll, Binary: testkit.CodexBinary(b), Home: home, Workdir: w.Project})
		if err != nil {
			b.Fatal(err)
		}
		cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
		cmd.Dir, cmd.Stdin = w.Project, bytes.NewReader(c.Stdin)
		cmd.Env = append([]string{"HOME=" + w.Dir, "PATH=" + os.Getenv("PATH")}, c.Env...)
		began := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v\n%s", err, out)
		}
		return time.Since(began)
	}
	turn := func() time.Duration {
		w.MustRun([]int{0}, "run", "turn", "--no-input")
		run := w.ListRuns()[0].ID
		content, err := os.ReadFile(filepath.Join(w.Home, "runs", run, "events.ndjson"))
		if err != nil {
			b.Fatal(err)
		}
		var at []time.Time
		events, _ := journal.ParseEvents(content)
		for _, ev := range events {
			if ev.Kind == "operation" && ev.Op == "session.ask[s]:ask" {
				at = append(at, ev.At)
			}
		}
		if len(at) != 2 {
			b.Fatalf("the turn is told %d times", len(at))
		}
		w.MustRun([]int{0}, "runs", "prune", run)
		return at[1].Sub(at[0])
	}
	var as, ws []time.Duration
	for b.Loop() {
		as, ws = append(as, alone()), append(ws, turn())
	}
	median := func(ds []time.Duration) float64 {
		slices.Sort(ds)
		return float64(ds[len(ds)/2].Microseconds()) / 1000
	}
	b.ReportMetric(median(as), "ms-alone")
	b.ReportMetric(median(ws), "ms-turn")
	b.ReportMetric(median(ws)-median(as), "ms-overhead")
}
