// Package compat holds every name that outlives a process or leaves the program: fields of stored and printed JSON, values of
// enumerations, files, buckets, labels, environment variables, hidden arguments, crash points. It reads them from the product's
// sources and compares them with golden files that were made before Go names changed; Go names do not stand in them.
package compat

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "record names that were added")

func TestNames(t *testing.T) {
	pkgs, _, err := loadProduct()
	if err != nil {
		t.Fatal(err)
	}
	compareBlocks(t, "json.txt", jsonBlocks(pkgs))
	compareBlocks(t, "values.txt", enumerationBlocks(pkgs))
	compareLines(t, "names.txt", nameLines(pkgs))
}

const (
	lost = "What was stored or printed under these names is no longer found: bring them back. Only where a name has never left a " +
		"process, or two identical structures became one, delete it from testdata by hand and say so in the commit."
	unrecorded = "Record what is new: make update-names"
)

func compareLines(t *testing.T, file string, got []string) {
	t.Helper()
	golden := readBlocks(t, file)
	var want []string
	for _, b := range golden {
		want = append(want, b.lines...)
	}
	missing, added := difference(want, got), difference(got, want)
	report(t, file, missing, added)
	if *update && len(missing) == 0 {
		writeBlocks(t, file, []block{{label: "names", lines: got}})
	}
}

// compareBlocks pairs recorded blocks with found ones: equal ones first, then those to which lines were added.
func compareBlocks(t *testing.T, file string, got []block) {
	t.Helper()
	slices.SortStableFunc(got, func(a, b block) int {
		return strings.Compare(a.label+strings.Join(a.lines, "\n"), b.label+strings.Join(b.lines, "\n"))
	})
	golden := readBlocks(t, file)
	taken := make([]bool, len(got))
	paired := make([]int, len(golden))
	pair := func(fits func(want, got block) bool) {
		for i, want := range golden {
			for j := 0; paired[i] < 0 && j < len(got); j++ {
				if !taken[j] && fits(want, got[j]) {
					paired[i], taken[j] = j, true
				}
			}
		}
	}
	for i := range paired {
		paired[i] = -1
	}
	pair(func(want, got block) bool { return !got.part && slices.Equal(want.lines, got.lines) })
	pair(func(want, got block) bool { return slices.Equal(want.lines, got.lines) })
	pair(func(want, got block) bool {
		return want.label == got.label && len(difference(want.lines, got.lines)) == 0
	})
	pair(func(want, got block) bool { return len(difference(want.lines, got.lines)) == 0 })
	var missing, added []string
	for i, want := range golden {
		if paired[i] < 0 {
			missing = append(missing, "## "+want.label)
			near := nearest(want, got)
			missing = append(missing, difference(want.lines, got[near].lines)...)
			missing = append(missing, "   (the nearest now is "+got[near].label+")")
			continue
		}
		if more := difference(got[paired[i]].lines, want.lines); len(more) > 0 {
			added = append(append(added, "## "+want.label), more...)
			golden[i].lines = got[paired[i]].lines
		}
	}
	for j, b := range got {
		if !taken[j] && !b.part {
			added = append(append(added, "## "+b.label), b.lines...)
			golden = append(golden, b)
		}
	}
	report(t, file, missing, added)
	if *update && len(missing) == 0 {
		writeBlocks(t, file, golden)
	}
}

func report(t *testing.T, file string, missing, added []string) {
	t.Helper()
	if len(missing) > 0 {
		t.Errorf("gone from %s:\n%s\n%s", file, strings.Join(missing, "\n"), lost)
	}
	if len(added) > 0 && !*update {
		t.Errorf("not in %s:\n%s\n%s", file, strings.Join(added, "\n"), unrecorded)
	}
}

func nearest(want block, got []block) int {
	best, common := 0, -1
	for j, b := range got {
		if n := len(want.lines) - len(difference(want.lines, b.lines)); n > common || n == common && len(b.lines) < len(got[best].lines) {
			best, common = j, n
		}
	}
	return best
}

// difference are the lines of a that are not in b.
func difference(a, b []string) []string {
	var out []string
	for _, l := range a {
		if !slices.Contains(b, l) {
			out = append(out, l)
		}
	}
	return out
}

func readBlocks(t *testing.T, file string) []block {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil && !(*update && os.IsNotExist(err)) {
		t.Fatal(err)
	}
	var out []block
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSuffix(line, "\n")
		if label, ok := strings.CutPrefix(line, "## "); ok {
			out = append(out, block{label: label})
		} else if line != "" {
			out[len(out)-1].lines = append(out[len(out)-1].lines, line)
		}
	}
	return out
}

func writeBlocks(t *testing.T, file string, blocks []block) {
	t.Helper()
	slices.SortStableFunc(blocks, func(a, b block) int { return strings.Compare(a.label, b.label) })
	var out strings.Builder
	for i, b := range blocks {
		if i > 0 {
			out.WriteString("\n")
		}
		fmt.Fprintf(&out, "## %s\n%s\n", b.label, strings.Join(b.lines, "\n"))
	}
	if err := os.WriteFile(filepath.Join("testdata", file), []byte(out.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
