package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// CrashAtNth is the environment in which the first process that reaches its n-th point is killed there. kill tells the kills of
// one machine apart.
func (w *Machine) CrashAtNth(n int, kill string) []string {
	return []string{fmt.Sprintf("LAUFWERK_CRASH=#%d", n), "LAUFWERK_CRASH_ONCE=" + filepath.Join(w.Dir, "crashed-"+kill)}
}

// CountCrashPoints is how many points a command reaches.
func (w *Machine) CountCrashPoints(args ...string) int {
	w.T.Helper()
	log := filepath.Join(w.Dir, "reached.log")
	if code, out, errs := w.Run([]string{"LAUFWERK_CRASH_LOG=" + log}, args...); code != 0 {
		w.T.Fatalf("%v: exit %d\n%s%s", args, code, out, errs)
	}
	b, err := os.ReadFile(log)
	if err != nil {
		w.T.Fatal(err)
	}
	return bytes.Count(b, []byte("\n"))
}

// CrashAt is the environment in which the first process that reaches a point is killed there.
func (w *Machine) CrashAt(point string) []string {
	return []string{"LAUFWERK_CRASH=" + point, "LAUFWERK_CRASH_ONCE=" + filepath.Join(w.Dir, "crashed")}
}

func ReadCrashPoints(t *testing.T, log string) (out []string) {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if p := strings.TrimSpace(line); !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}
