//go:build crashpoints

package carried

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

const homeVariable = "CARRIED_TEST_HOME"

// TestMain lets this binary be a process that unpacks, and may be killed on the way.
func TestMain(m *testing.M) {
	home := os.Getenv(homeVariable)
	if home == "" {
		os.Exit(m.Run())
	}
	if _, err := New("laufwerk", home, carrying(content("a"))).Path(context.Background(), otherPlatform); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func TestKilledAtEveryPoint(t *testing.T) {
	self, err := os.Executable()
	must(t, err)
	whole := content("a")
	for n := 1; ; n++ {
		home := t.TempDir()
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), homeVariable+"="+home, fmt.Sprintf("LAUFWERK_CRASH=#%d", n))
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL || err != nil && exit == nil {
			t.Fatalf("%d: %v %s", n, err, out)
		}
		path := filepath.Join(home, "supervisors", digestOf(whole), "laufwerk")
		if why := isWhole(path, digestOf(whole)); why != nil && !errors.Is(why, fs.ErrNotExist) {
			t.Errorf("%d: it is half there: %v", n, why)
		}
		got, perr := New("laufwerk", home, carrying(whole)).Path(bounded(t), otherPlatform)
		if perr != nil || got != path {
			t.Fatalf("%d: %q %v", n, got, perr)
		}
		good(t, home, path, whole)
		if err == nil { // it came to its end
			if n < 4 {
				t.Errorf("only %d points", n-1)
			}
			return
		}
	}
}
