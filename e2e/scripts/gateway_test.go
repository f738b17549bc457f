package scripts_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/laufwerk/laufwerk/internal/testkit"
	"github.com/laufwerk/laufwerk/internal/testkit/gateway"
)

// scriptTB lets a script have what tests have: everything of it ends with the script.
type scriptTB struct {
	testing.TB // nil: what is not here is not used
	ts         *testscript.TestScript
}

func (s scriptTB) Helper()                           {}
func (s scriptTB) Name() string                      { return s.ts.Name() }
func (s scriptTB) Cleanup(f func())                  { s.ts.Defer(f) }
func (s scriptTB) Context() context.Context          { return context.Background() }
func (s scriptTB) Fatal(args ...any)                 { s.ts.Fatalf("%s", fmt.Sprintln(args...)) }
func (s scriptTB) Fatalf(format string, args ...any) { s.ts.Fatalf(format, args...) }
func (s scriptTB) Errorf(format string, args ...any) { s.ts.Fatalf(format, args...) }
func (s scriptTB) Error(args ...any)                 { s.ts.Fatalf("%s", fmt.Sprintln(args...)) }
func (s scriptTB) Logf(format string, args ...any)   { s.ts.Logf(format, args...) }

func (s scriptTB) TempDir() string {
	dir, err := os.MkdirTemp("", "script")
	s.ts.Check(err)
	s.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// gatewayCommand starts an OpenShell gateway without an engine that is registered under an alias.
func gatewayCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: gateway ALIAS")
	}
	gateway.Memory(scriptTB{ts: ts}, gateway.Options{}).Register(filepath.Join(ts.Getenv("HOME"), ".config"), args[0])
}

// codexloginCommand logs Codex in, for an hour.
func codexloginCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: codexlogin")
	}
	content, _ := testkit.CodexLogin("me", time.Now().Add(time.Hour))
	dir := filepath.Join(ts.Getenv("HOME"), ".codex")
	ts.Check(os.MkdirAll(dir, 0o700))
	ts.Check(os.WriteFile(filepath.Join(dir, "auth.json"), content, 0o600))
}
