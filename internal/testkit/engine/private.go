package engine

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/laufwerk/laufwerk/internal/testkit"
)

// Images that `.ci/engine images` makes in an engine; it says there what is in each.
const (
	Base         = "laufwerk-test/base:1"
	BaseNoGit    = "laufwerk-test/base-no-git:1"
	BaseNoNode   = "laufwerk-test/base-no-node:1"
	BaseNoPnpm   = "laufwerk-test/base-no-pnpm:1"
	BaseNoSetsid = "laufwerk-test/base-no-setsid:1"
	Busybox      = "laufwerk-test/busybox:1"
	OnlyShell    = "laufwerk-test/sh:1"
	NoShell      = "laufwerk-test/bare:1"
)

// Engine is an engine of one test alone, which the test may stop, kill and start. Containers on its bridge reach this
// machine and nothing beyond.
type Engine struct {
	Endpoint string // unix:///path, the same after every start

	t    testing.TB
	name string
	env  []string // of .ci/engine
}

// Private starts an engine with the given images; it and all that it has are removed with the test. It takes about a second;
// Base takes longer.
func Private(t testing.TB, images ...string) *Engine {
	t.Helper()
	return private(t, "", images)
}

// UserNamespaced is Private with an engine that maps the ids of containers to others of this machine (--userns-remap).
func UserNamespaced(t testing.TB, images ...string) *Engine {
	t.Helper()
	return private(t, "--userns-remap=default", images)
}

// Rootless is Private with an engine that a user of this machine runs without root, and that user's ids. Its containers have
// no network.
func Rootless(t testing.TB, images ...string) (e *Engine, uid, gid int) {
	t.Helper()
	e = private(t, "", images, "ENGINE_ROOTLESS=1")
	info, err := os.Stat(filepath.Dir(strings.TrimPrefix(e.Endpoint, "unix://")))
	if err != nil {
		t.Fatal(err)
	}
	of := info.Sys().(*syscall.Stat_t)
	return e, int(of.Uid), int(of.Gid)
}

func private(t testing.TB, options string, images []string, env ...string) *Engine {
	t.Helper()
	Endpoint(t) // the parts that it needs are there if that one is
	testkit.Need(t, "root", os.Getuid() == 0, "it starts a Docker engine")
	e := &Engine{t: t, env: append(env, "ENGINE_OPTIONS="+options), name: fmt.Sprintf("t%d-%d", os.Getpid(), started.Add(1))}
	t.Cleanup(func() { e.manage("remove", e.name) })
	e.Start()
	names := []string{"images", e.name}
	for _, image := range images {
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(image, "laufwerk-test/"), ":1"))
	}
	if len(images) > 0 {
		e.manage(names...)
	}
	return e
}

var started atomic.Int64 //nolint:gochecknoglobals // numbers the engines of this process

// Start starts the engine again, and waits until it answers. An engine that runs stays as it is.
func (e *Engine) Start() {
	e.t.Helper()
	out := e.manage("start", e.name)
	endpoint, found := strings.CutPrefix(strings.TrimSpace(out), "export LAUFWERK_TEST_DOCKER=")
	if !found {
		e.t.Fatalf(".ci/engine start says %q", out)
	}
	e.Endpoint = endpoint
}

// Stop ends the engine in order: it ends its containers first.
func (e *Engine) Stop() { e.t.Helper(); e.manage("stop", e.name) }

// Restart is Stop and Start.
func (e *Engine) Restart() { e.t.Helper(); e.Stop(); e.Start() }

// Kill ends the engine by SIGKILL. Its containers run on; the next Start ends them.
func (e *Engine) Kill() { e.t.Helper(); e.manage("kill", e.name) }

func (e *Engine) manage(args ...string) string {
	e.t.Helper()
	_, file, _, _ := runtime.Caller(0)
	cmd := exec.Command(filepath.Join(filepath.Dir(file), "../../../.ci/engine"), args...)
	cmd.Env = append(os.Environ(), e.env...)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		e.t.Fatalf(".ci/engine %s: %v\n%s", strings.Join(args, " "), err, problems.String())
	}
	return out.String()
}
