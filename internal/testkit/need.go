// Package testkit is for tests only.
package testkit

import (
	"os"
	"testing"
)

// Need skips a test whose surroundings lack a part, and says which. Where LAUFWERK_CI=1 promises a complete machine, a
// missing part is a failure: nothing is skipped unseen.
func Need(t testing.TB, part string, ok bool, why string) {
	t.Helper()
	switch {
	case ok:
	case os.Getenv("LAUFWERK_CI") == "1":
		t.Fatalf("this test needs %s, which a machine with LAUFWERK_CI=1 must have: %s", part, why)
	default:
		t.Skipf("SKIPPED, needs %s: %s", part, why)
	}
}
