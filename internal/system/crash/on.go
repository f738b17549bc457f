//go:build crashpoints

package crash

import (
	"fmt"
	"os"
	"sync"
	"syscall"
)

// Enabled says whether this build can be told to die at a crash point.
const Enabled = true

var (
	mu   sync.Mutex
	seen = map[string]int{}
)

// Point kills the process if LAUFWERK_CRASH names this point and time.
func Point(name string) {
	mu.Lock()
	defer mu.Unlock()
	seen[name]++
	at := fmt.Sprintf("%s#%d", name, seen[name])
	if log := os.Getenv("LAUFWERK_CRASH_LOG"); log != "" {
		if f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
			_, _ = f.WriteString(at + "\n")
			_ = f.Close()
		}
	}
	if os.Getenv("LAUFWERK_CRASH") == at {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}
