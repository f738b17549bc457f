//go:build crashpoints

package store_test

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// The process is killed at every point that making a store and five commits pass, and the next one goes on as if nothing had been.
func TestKilledAtEveryPoint(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "points")
	if out, err := child(t, newHome(t), "count:5", "LAUFWERK_CRASH_LOG="+log).Output(); err != nil {
		t.Fatal(err, string(out))
	}
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	points := strings.Fields(string(b))
	if len(points) < 15 {
		t.Fatalf("only %d points were passed: %q", len(points), points)
	}
	for _, point := range points {
		home := newHome(t)
		cmd := child(t, home, "count:5", "LAUFWERK_CRASH="+point)
		out, err := cmd.Output()
		if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); err == nil || !ok || ws.Signal() != syscall.SIGKILL {
			t.Fatalf("%s: the process was not killed: %v", point, err)
		}
		said := 0
		for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
			said, _ = strconv.Atoi(lines.Text())
		}
		if n := count(t, home); n < said || n > said+1 {
			t.Errorf("%s: %d commits were reported, %d are there", point, said, n)
		}
		if out, err := child(t, home, "count:5").Output(); err != nil {
			t.Errorf("%s: the next process fails: %v %s", point, err, out)
		}
	}
}
