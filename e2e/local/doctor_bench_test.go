package local_test

import (
	"testing"

	"github.com/laufwerk/laufwerk/e2e"
)

// BenchmarkDoctor is the whole command, beside `version`, which is what starting a process costs; in a project with one
// workflow two children evaluate TypeScript. To hold: 50 ms.
func BenchmarkDoctor(b *testing.B) {
	w := e2e.NewMachine(b)
	w.MustRun([]int{8}, "run", "job", "--no-input")
	b.Cleanup(func() {
		w.MustRun([]int{0}, "runs", "cancel", w.ListRuns()[0].ID)
		w.MustRun([]int{0}, "cleanup", "--all", "--discard-changes")
	})
	for _, c := range []struct {
		name string
		args []string
	}{{"version", []string{"version"}}, {"project", []string{"doctor"}}, {"target", []string{"doctor", "--target", "local"}}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				w.MustRun([]int{0}, c.args...)
			}
		})
	}
}
