package testkit

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// BinaryVariable names the binary, for tests of a user who cannot build it.
const BinaryVariable = "LAUFWERK_TEST_BINARY"

// Binary is the static laufwerk of this checkout, for tests in which it runs where nothing else is. With tags it is one of
// those builds ("crashpoints"). It is built where git does not look, once for all tests; the compiler's cache makes that cheap.
func Binary(t testing.TB, tags ...string) string {
	t.Helper()
	if built := os.Getenv(BinaryVariable); built != "" {
		return built
	}
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(strings.TrimSpace(string(root)), ".tools", "test", strings.Join(append([]string{"laufwerk"}, tags...), "-"))
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", strings.Join(tags, ","), "-o", path, "github.com/laufwerk/laufwerk/cmd/laufwerk")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}
