package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// stepsWorkflow does nothing but durable operations without an effect.
const stepsWorkflow = `
import { Clock, defineWorkflow } from "@laufwerk/sdk";

export const workflow = defineWorkflow<{ steps: number }>({
  name: "steps",
  *run({ steps }) {
    for (let i = 0; i < steps; i++) yield* Clock.now();
  },
});
`

const (
	manySteps   = 2000
	recordBytes = 200 // of a journal record of such an operation, with its frame
	perStep     = 200 * time.Microsecond
)

// durable is the price of an operation: a run of many steps less a run of none, beside appends of as much to a file with an
// fsync each, and beside the steps of a Restate server.
func durable(b *bench) ([]row, error) {
	root, err := b.project("steps")
	if err != nil {
		return nil, err
	}
	steps := func(n int) func() (cost, error) {
		return b.laufwerk(root, "run", "steps", "--json", "--input", fmt.Sprintf(`{"steps":%d}`, n))
	}
	s, err := inTurn(max(5, b.rounds/2), steps(0), steps(100), steps(manySteps), func() (cost, error) {
		return within(func() error { return appends(filepath.Join(b.dir, "appended"), manySteps) })
	})
	if err != nil {
		return nil, err
	}
	each := func(d time.Duration) time.Duration { return d / manySteps }
	steady := s[2].less(s[0])
	ours, beside := each(steady.wall()), each(s[3].wall())
	processor := each(steady.cpu()) - each(s[3].cpu())
	one := row{
		work: "durable operation, beside append + fsync", measured: short(ours), beside: short(beside),
		ratio: short(ours-beside) + " over", hold: "≤ " + short(perStep) + " over",
	}
	one.judge(ours-beside <= perStep, processor <= perStep, steady.noisy() || s[3].noisy())

	hundred, err := b.hundred(steps(0), steps(100))
	if err != nil {
		return nil, err
	}
	whole := row{work: "  the whole command with them, start and end", measured: s[1].String()}
	return []row{one, hundred, whole}, nil
}

func appends(path string, n int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	record := []byte(strings.Repeat("x", recordBytes))
	for range n {
		if _, err := f.Write(record); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
	}
	return nil
}

// floodWorkflow has an agent print as much as the input says. Where that is more than is kept, the turn fails in a typed way.
const floodWorkflow = `
import { defineWorkflow, OutputTooLarge, Session, Workspace } from "@laufwerk/sdk";
import { createCommand } from "@laufwerk/sdk/harness/command";
import { execution } from "../../execution";

const agent = execution.agent({
  harness: createCommand({ command: ["bash", "-c", "read -r n peak; head -c $n /dev/zero | tr '\\0' x; grep VmHWM /proc/$PPID/status > $peak"] }),
});

export const workflow = defineWorkflow<{ bytes: number; peak: string }, string>({
  name: "flood",
  *run({ bytes, peak }) {
    const workspace = yield* Workspace.open({ source: ".", execution });
    try {
      yield* Session.run({ key: "flood", agent, workspace, prompt: bytes + " " + peak + "\n" });
      return "kept";
    } catch (e) {
      if (e instanceof OutputTooLarge) return "too large";
      throw e;
    }
  },
});
`

const flat = 1.25

// memory is the peak of the worker, and of the supervisor, while an agent prints 100 MiB, beside 20 MiB: both are more than is
// kept.
func memory(b *bench) ([]row, error) {
	root, err := b.project("flood")
	if err != nil {
		return nil, err
	}
	peaks := func(mib int, want string) (worker, supervisor int64, err error) {
		file := filepath.Join(b.dir, "peak")
		out, c, err := b.command(root, []int{0}, b.binary, "run", "flood", "--json", "--input", fmt.Sprintf(`{"bytes":%d,"peak":%q}`, mib<<20, file))
		if err != nil {
			return 0, 0, err
		}
		var doc struct{ Output string }
		if err := json.Unmarshal([]byte(out), &doc); err != nil {
			return 0, 0, err
		}
		if doc.Output != want {
			return 0, 0, fmt.Errorf("a turn with %d MiB was %q instead of %q", mib, doc.Output, want)
		}
		line, err := os.ReadFile(file)
		if err != nil {
			return 0, 0, err
		}
		// A process begins with the peak of the one that started it.
		if own := ownPeak(); own >= c.peak {
			return 0, 0, fmt.Errorf("the peak of the worker cannot be told from the bench's own, %s", size(own))
		}
		kib, err := strconv.ParseInt(strings.Fields(string(line))[1], 10, 64)
		return c.peak, kib << 10, err
	}
	var rows []row
	var most [3][2]int64
	for i, mib := range []int{1, 20, 100} {
		want := "too large"
		if mib == 1 {
			want = "kept"
		}
		for range 3 {
			w, s, err := peaks(mib, want)
			if err != nil {
				return nil, err
			}
			most[i][0], most[i][1] = max(most[i][0], w), max(most[i][1], s)
		}
	}
	for who, name := range []string{"worker", "supervisor"} {
		ratio := float64(most[2][who]) / float64(most[1][who])
		r := row{
			work:     fmt.Sprintf("peak memory of the %s, 100 MiB from an agent beside 20 MiB (1 MiB: %s)", name, size(most[0][who])),
			measured: size(most[2][who]), beside: size(most[1][who]), ratio: fmt.Sprintf("%.2f", ratio), hold: fmt.Sprintf("≤ %g ×", flat),
		}
		r.judge(ratio <= flat, false, false)
		rows = append(rows, r)
	}
	return rows, nil
}

func size(n int64) string { return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20)) }

const demoTime = 1500 * time.Millisecond

// demo is the whole job, and the same with the worker killed in the middle of a turn.
func demo(b *bench) ([]row, error) {
	dir, err := b.scratch("demo")
	if err != nil {
		return nil, err
	}
	twice, leaked := 0, 0
	s, err := inTurn(max(5, b.rounds/2), b.laufwerk(dir, "demo", "--yes", "--json"), func() (cost, error) {
		out, c, err := b.command(dir, []int{0}, b.binary, "demo", "--kill", "--yes", "--json")
		if err != nil {
			return c, err
		}
		var doc struct{ RunTwice, Leaked int }
		err = json.Unmarshal([]byte(out), &doc)
		twice, leaked = twice+doc.RunTwice, leaked+doc.Leaked
		return c, err
	})
	if err != nil {
		return nil, err
	}
	whole := row{work: "demo", measured: s[0].String(), hold: "≤ " + short(demoTime)}
	whole.judge(s[0].wall() <= demoTime, s[0].cpu() <= demoTime, s[0].noisy())
	killed := row{
		work: "worker killed in a turn (demo --kill), beside demo", measured: s[1].String(), beside: s[0].String(),
		ratio: fmt.Sprintf("run twice %d, leaked %d", twice, leaked), hold: "0, 0",
	}
	killed.judge(twice+leaked == 0, false, false)
	return []row{whole, killed}, nil
}
