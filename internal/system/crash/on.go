//go:build crashpoints

package crash

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
)

// Enabled says whether this build can be told to die at a crash point.
const Enabled = true

var (
	mu   sync.Mutex
	seen = map[string]int{}
	all  int
)

// Point kills the process if LAUFWERK_CRASH names this point and time.
func Point(name string) {
	mu.Lock()
	defer mu.Unlock()
	seen[name]++
	all++
	at := fmt.Sprintf("%s#%d", name, seen[name])
	if log := os.Getenv("LAUFWERK_CRASH_LOG"); log != "" {
		if f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
			_, _ = f.WriteString(at + "\n")
			_ = f.Close()
		}
	}
	if want := os.Getenv("LAUFWERK_CRASH"); (want == at || want == fmt.Sprintf("#%d", all)) && first() {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// first is false where LAUFWERK_CRASH_ONCE names a file and another process has died already.
func first() bool {
	once := os.Getenv("LAUFWERK_CRASH_ONCE")
	if once == "" {
		return true
	}
	f, err := os.OpenFile(once, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return false
	}
	_ = f.Close()
	return true
}

// Adopt makes the variables of this package and of package fault among env, NAME=VALUE, those of this process, before it
// reaches a point.
func Adopt(env []string) {
	for _, kv := range env {
		if name, value, _ := strings.Cut(kv, "="); isTestVariable(name) {
			_ = os.Setenv(name, value)
		}
	}
}
