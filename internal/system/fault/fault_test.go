//go:build crashpoints

package fault_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/system/fault"
)

// thirdFails makes four calls, all from one site, the third of which is to fail with an error.
func thirdFails(t *testing.T, with string, do func(n int)) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	t.Setenv("LAUFWERK_FAULT_LOG", log)
	t.Setenv("LAUFWERK_FAULT_ERROR", with)
	for n := 1; n <= 4; n++ {
		do(n)
		if n > 1 {
			continue
		}
		b, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		site, first := strings.CutSuffix(string(b), "#1\n")
		if !first {
			t.Fatalf("the first call was logged as %q", b)
		}
		t.Setenv("LAUFWERK_FAULT", site+"#3")
	}
}

func TestNthCallFails(t *testing.T) {
	thirdFails(t, "ENOSPC", func(n int) {
		err := fault.Point("write", "/some/path")
		if failed := errors.Is(err, syscall.ENOSPC) && strings.Contains(err.Error(), "/some/path"); failed != (n == 3) || !failed && err != nil {
			t.Errorf("call %d: %v", n, err)
		}
	})
}

func TestFailedWriteIsHalf(t *testing.T) {
	f, err := fault.Open(os.Create(filepath.Join(t.TempDir(), "file")))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	thirdFails(t, "", func(n int) {
		if _, err := f.Write([]byte("word ")); errors.Is(err, syscall.EIO) != (n == 3) {
			t.Errorf("call %d: %v", n, err)
		}
	})
	if b, err := os.ReadFile(f.Name()); string(b) != "word word woword " {
		t.Errorf("%q, %v", b, err)
	}
}

func TestClockStaysWrong(t *testing.T) {
	thirdFails(t, "-24h", func(n int) {
		if wrong := time.Until(fault.Now()) < -23*time.Hour; wrong != (n >= 3) {
			t.Errorf("call %d: the clock is wrong: %t", n, wrong)
		}
	})
}
