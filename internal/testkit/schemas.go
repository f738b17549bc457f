package testkit

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// SchemaLibraries is the node_modules that `.ci/parts schemas` makes in .tools: zod, valibot with its converter, arktype.
func SchemaLibraries(t testing.TB) string {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	dir := filepath.Join(filepath.Dir(file), "../..", ".tools/schemas/node_modules")
	_, err := os.Stat(filepath.Join(dir, "arktype/package.json"))
	Need(t, "the schema libraries", err == nil, "there is no "+dir+"; run .ci/parts schemas")
	return dir
}

// TypeScript is the compiler that the SDK is checked with.
func TypeScript(t testing.TB) string {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	tsc := filepath.Join(filepath.Dir(file), "../..", "sdk/node_modules/.bin/tsc")
	_, err := os.Stat(tsc)
	Need(t, "tsc", err == nil, "make verify-sdk installs it")
	return tsc
}
