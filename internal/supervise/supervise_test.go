package supervise

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/system"
)

// limit is when a test hangs.
const limit = 60 * time.Second

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

// start starts a command and, at the end of the test, ends whatever is left of it.
func start(t *testing.T, spec Spec) *Process {
	t.Helper()
	p, err := Start(bounded(t), launcher(), filepath.Join(t.TempDir(), "op"), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Fence(context.Background()) })
	return p
}

func launcher() LocalLauncher { return LocalLauncher{Executable: system.Executable(), Now: time.Now} }

// bash is a spec that runs a script.
func bash(t *testing.T, script string) Spec {
	return Spec{
		Argv: []string{"bash", "-c", script}, Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"}, Dir: "/",
		MaxOutput: 1 << 20, Mark: Mark("test-"+t.Name(), "op"),
	}
}

func TestTheEndOfACommandIsRecorded(t *testing.T) {
	for name, want := range map[string]struct {
		argv []string
		code int
	}{
		"0":           {[]string{"true"}, 0},
		"7":           {[]string{"bash", "-c", "exit 7"}, 7},
		"not there":   {[]string{"/nowhere/at-all"}, 127},
		"not in PATH": {[]string{"surely-no-such-program"}, 127},
		"directory":   {[]string{"/etc"}, 126},
		"SIGKILL":     {[]string{"bash", "-c", "kill -9 $$"}, 137},
		"SIGTERM":     {[]string{"bash", "-c", "kill -15 $$"}, 143},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := bounded(t)
			spec := bash(t, "")
			spec.Argv = want.argv
			exit, err := start(t, spec).Wait(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if exit.Code != want.code {
				t.Fatalf("code %d, want %d (%+v)", exit.Code, want.code, exit)
			}
			if could := exit.Error == ""; could != (want.code < 126 || want.code > 128) {
				t.Fatalf("error %q for code %d", exit.Error, exit.Code)
			}
		})
	}
}
