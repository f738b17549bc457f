package testkit

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// BinaryVariable names the binary, for tests of a user who cannot build it.
const BinaryVariable = "LAUFWERK_TEST_BINARY"

// Binary is the static laufwerk of this checkout, for tests in which it runs where nothing else is. With tags it is one of
// those builds ("crashpoints"). It is built where git does not look, once for all tests; the compiler's cache makes that cheap.
func Binary(t T, tags ...string) string {
	t.Helper()
	return program(t, BinaryVariable, "laufwerk", "cmd/laufwerk", tags...)
}

// SupervisorVariable is BinaryVariable for Supervisor.
const SupervisorVariable = "LAUFWERK_TEST_SUPERVISOR"

// Supervisor is the program that the gateway for tests has in its containers.
func Supervisor(t T) string {
	t.Helper()
	return program(t, SupervisorVariable, "supervisor", "internal/testkit/gateway/supervisor")
}

// What this process has built: the compiler takes a second to find out that nothing has changed.
var built sync.Map //nolint:gochecknoglobals // it is the process's

func program(t T, variable, name, of string, tags ...string) string {
	t.Helper()
	if given := os.Getenv(variable); given != "" {
		return given
	}
	key := strings.Join(append([]string{name}, tags...), "-")
	if path, ok := built.Load(key); ok {
		return path.(string)
	}
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(strings.TrimSpace(string(root)), ".tools", "test", key)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // other users run it
		t.Fatal(err)
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	// Who starts it must not meet it half written: where it is up to date, which it is after the first, nothing is.
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-tags", strings.Join(tags, ","), "-o", path, "github.com/laufwerk/laufwerk/"+of)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	built.Store(key, path)
	return path
}
