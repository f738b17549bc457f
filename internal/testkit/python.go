package testkit

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// OpenShellPython is a Python interpreter that has the official OpenShell client, which `.ci/parts openshell` makes in .tools.
func OpenShellPython(t testing.TB) string {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	python := filepath.Join(filepath.Dir(file), "../..", ".tools/openshell/bin/python")
	_, err := os.Stat(python)
	Need(t, "the official OpenShell client", err == nil, "there is no "+python+"; run .ci/parts openshell")
	return python
}
