package cli

import (
	"slices"
	"testing"
)

// Ten runs that wait are no reason for twenty lines: a command is printed once, and the table has the runs.
func TestCommandsAreSaidOnce(t *testing.T) {
	got := mergeHints([][2]string{
		{"laufwerk diff r1\nlaufwerk cleanup r1 --discard-changes", "r1"},
		{"laufwerk cleanup r2", "r2"},
		{"laufwerk cleanup r2", "r2"},
		{"laufwerk diff r3\nlaufwerk cleanup r3 --discard-changes", "r3"},
		{"laufwerk claims abandon c1 --reason TEXT", ""},
	})
	want := []string{"laufwerk diff RUN\nlaufwerk cleanup RUN --discard-changes", "laufwerk cleanup r2", "laufwerk claims abandon c1 --reason TEXT"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
