// Bench measures the numbers that laufwerk is to hold, each beside a yardstick: in one run, in turn, on tmpfs where there is
// one, and prints the medians as a table. It ends with 1 if a number does not hold.
//
//	go run ./bench [-binary bin/laufwerk] [-only WORD] [-rounds N] [-dir DIR]
//
// Where other processes share the machine, wall-clock ratios suffer on both sides and not equally. A number that holds in
// processor time (user and system) though not on the clock is "ok (cpu)", and what spreads by more than a quarter around its
// median is marked "noisy".
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

// bench is what the rows share.
type bench struct {
	context.Context
	binary string // of laufwerk, absolute
	tools  string // where yardsticks are installed
	dir    string // scratch, on tmpfs if possible
	rounds int
}

// row is one line of the table.
type row struct {
	work, measured, beside, ratio, hold string
	verdict                             string
	fails                               bool
}

// reportedRow is a row on its way from another process.
type reportedRow struct {
	Work, Measured, Beside, Ratio, Hold, Verdict string
	Fails                                        bool
}

func (r row) MarshalJSON() ([]byte, error) {
	return json.Marshal(reportedRow{r.work, r.measured, r.beside, r.ratio, r.hold, r.verdict, r.fails})
}

func (r *row) UnmarshalJSON(b []byte) error {
	var t reportedRow
	err := json.Unmarshal(b, &t)
	*r = row{work: t.Work, measured: t.Measured, beside: t.Beside, ratio: t.Ratio, hold: t.Hold, verdict: t.Verdict, fails: t.Fails}
	return err
}

// rows are made one after the other; each has a name to choose it by.
func rows() []struct {
	name string
	make func(*bench) ([]row, error)
} {
	return []struct {
		name string
		make func(*bench) ([]row, error)
	}{
		{"version", version},
		{"initialisation", initialisation},
		{"project", readProject},
		{"durable", durable},
		{"demo", demo},
		{"memory", memory},
		{"docker", containers},
		{"openshell", sandboxes},
		{"copy", copyTree}, // last: this process grows
	}
}

func main() {
	binary := flag.String("binary", "bin/laufwerk", "the laufwerk to measure")
	tools := flag.String("tools", ".tools", "where yardsticks are installed")
	only := flag.String("only", "", "only rows with this in their name")
	rounds := flag.Int("rounds", 15, "how often each is measured; slow ones a third as often")
	dir := flag.String("dir", "", "where to work (default: tmpfs where there is one)")
	plain := flag.Bool("rows", false, "print the rows as JSON, and end with 0")
	flag.Parse()
	print := table
	if *plain {
		print = func(rows []row) (bool, error) { return false, json.NewEncoder(os.Stdout).Encode(rows) }
	}
	failed, err := run(*binary, *tools, *dir, *only, *rounds, print)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	if failed {
		os.Exit(1)
	}
}

func run(binary, tools, dir, only string, rounds int, print func([]row) (failed bool, err error)) (failed bool, err error) {
	b := &bench{Context: context.Background(), rounds: rounds}
	if b.binary, err = filepath.Abs(binary); err != nil {
		return false, err
	}
	if b.tools, err = filepath.Abs(tools); err != nil {
		return false, err
	}
	if dir == "" {
		dir = "/dev/shm"
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			dir = os.TempDir()
		}
	}
	if b.dir, err = os.MkdirTemp(dir, "laufwerk-bench-"); err != nil {
		return false, err
	}
	defer func() { _ = os.RemoveAll(b.dir) }()

	var all []row
	for _, r := range rows() {
		if !strings.Contains(r.name, only) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s…\n", r.name)
		lines, err := r.make(b)
		if err != nil {
			return false, fmt.Errorf("%s: %w", r.name, err)
		}
		all = append(all, lines...)
	}
	return print(all)
}

// table prints the rows for people, and says whether one fails.
func table(rows []row) (failed bool, err error) {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(out, "work\tours\tbeside\tratio\thold\t\n")
	for _, l := range rows {
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\n", l.work, l.measured, l.beside, l.ratio, l.hold, l.verdict)
		failed = failed || l.fails
	}
	return failed, out.Flush()
}

// scratch makes a directory for one row.
func (b *bench) scratch(name string) (string, error) {
	dir := filepath.Join(b.dir, name)
	return dir, os.MkdirAll(dir, 0o755)
}
