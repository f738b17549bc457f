// Package testkit is for tests only.
package testkit

import "os"

// T is what parts of tests need of the test that has them. A program that is no test can be one.
type T interface {
	Helper()
	Cleanup(do func())
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// Need skips a test whose surroundings lack a part, and says which. Where LAUFWERK_CI=1 promises a complete machine, a
// missing part is a failure: nothing is skipped unseen.
func Need(t T, part string, ok bool, why string) {
	t.Helper()
	switch {
	case ok:
	case os.Getenv("LAUFWERK_CI") == "1":
		t.Fatalf("this test needs %s, which a machine with LAUFWERK_CI=1 must have: %s", part, why)
	default:
		t.Skipf("SKIPPED, needs %s: %s", part, why)
	}
}
