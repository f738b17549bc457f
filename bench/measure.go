package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// cost is what one measurement took.
type cost struct {
	wall time.Duration
	cpu  time.Duration // user and system, with the children that were waited for
	peak int64         // resident bytes at most, of a command
}

// series are the costs of one thing over the rounds.
type series []cost

func (s series) median(of func(cost) time.Duration) time.Duration {
	return quantile(s, of, 2, 4)
}

// less is what each round's measurement was over the other's of the same round.
func (s series) less(other series) series {
	out := make(series, min(len(s), len(other)))
	for i := range out {
		out[i] = cost{wall: s[i].wall - other[i].wall, cpu: s[i].cpu - other[i].cpu}
	}
	return out
}

// and is what each round's measurement was together with the other's of the same round.
func (s series) and(other series) series {
	out := make(series, min(len(s), len(other)))
	for i := range out {
		out[i] = cost{wall: s[i].wall + other[i].wall, cpu: s[i].cpu + other[i].cpu}
	}
	return out
}

// quantile is the i-th of n.
func quantile(s series, of func(cost) time.Duration, i, n int) time.Duration {
	var list []time.Duration
	for _, c := range s {
		list = append(list, of(c))
	}
	slices.Sort(list)
	return list[min(len(list)-1, len(list)*i/n)]
}

func (s series) wall() time.Duration { return s.median(wall) }
func (s series) cpu() time.Duration  { return s.median(cpu) }

// noisy says whether half of the measurements lie in more than a quarter around the median.
func (s series) noisy() bool {
	return float64(quantile(s, wall, 3, 4)-quantile(s, wall, 1, 4)) > 0.25*float64(s.wall())
}

func (s series) String() string { return fmt.Sprintf("%s (cpu %s)", short(s.wall()), short(s.cpu())) }

func wall(c cost) time.Duration { return c.wall }
func cpu(c cost) time.Duration  { return c.cpu }

func short(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	default:
		return fmt.Sprintf("%.1f µs", float64(d.Nanoseconds())/1000)
	}
}

// inTurn does each thing once in every round, after one round that does not count.
func inTurn(rounds int, things ...func() (cost, error)) ([]series, error) {
	out := make([]series, len(things))
	for round := range rounds + 1 {
		for i, thing := range things {
			c, err := thing()
			if err != nil {
				return nil, err
			}
			if round > 0 {
				out[i] = append(out[i], c)
			}
		}
	}
	return out, nil
}

// compare is the row of a ratio to hold.
func compare(work string, ours, beside series, hold float64) row {
	clock := float64(ours.wall()) / float64(beside.wall())
	processor := float64(ours.cpu()) / float64(max(beside.cpu(), 1))
	r := row{
		work: work, measured: ours.String(), beside: beside.String(), hold: fmt.Sprintf("≤ %g ×", hold),
		ratio: fmt.Sprintf("%.2f (cpu %.2f)", clock, processor),
	}
	r.judge(clock <= hold, processor <= hold, ours.noisy() || beside.noisy())
	return r
}

func (r *row) judge(clock, processor, noisy bool) {
	switch {
	case clock:
		r.verdict = "ok"
	case processor:
		r.verdict = "ok (cpu)"
	default:
		r.verdict, r.fails = "DOES NOT HOLD", true
	}
	if noisy {
		r.verdict += ", noisy"
	}
}

// within times do in this process.
func within(do func() error) (cost, error) {
	before, start := usage(), time.Now()
	err := do()
	return cost{wall: time.Since(start), cpu: usage() - before}, err
}

func usage() time.Duration {
	var sum time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) == nil {
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return sum
}

// ownPeak is the most memory that this process had, in bytes.
func ownPeak() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Maxrss << 10
}

// command times a program that is to end with one of the codes, and returns what it printed on stdout.
func (b *bench) command(dir string, codes []int, name string, args ...string) (string, cost, error) {
	cmd := exec.CommandContext(b, name, args...)
	cmd.Dir = dir
	home := filepath.Join(b.dir, "home")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + b.dir}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return "", cost{}, err
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	start := time.Now()
	err := cmd.Run()
	took := time.Since(start)
	if cmd.ProcessState == nil || !slices.Contains(codes, cmd.ProcessState.ExitCode()) {
		if err == nil {
			err = errors.New("it succeeded")
		}
		return "", cost{}, fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out.String(), errs.String())
	}
	c := cost{wall: took, cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		c.peak = u.Maxrss << 10 // KiB on Linux
	}
	return out.String(), c, nil
}

// laufwerk times a command of ours that succeeds.
func (b *bench) laufwerk(dir string, args ...string) func() (cost, error) {
	return func() (cost, error) {
		_, c, err := b.command(dir, []int{0}, b.binary, args...)
		return c, err
	}
}

func write(path, content string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(content), 0o644)
}
