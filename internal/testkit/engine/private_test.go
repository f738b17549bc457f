package engine_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"

	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

func TestPrivateEngine(t *testing.T) {
	var name string
	t.Run("lives", func(t *testing.T) {
		e := engine.Private(t, engine.Busybox)
		name = filepath.Base(filepath.Dir(e.Endpoint))
		c, ctx := engine.Client(t, e.Endpoint), context.Background()
		first, err := c.Info(ctx)
		if err != nil {
			t.Fatal(err)
		}
		shared, err := engine.Client(t, engine.Endpoint(t)).Info(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if first.ID == shared.ID || first.DockerRootDir == shared.DockerRootDir {
			t.Errorf("the engine is the shared one: %s in %s", first.ID, first.DockerRootDir)
		}
		run := func() string {
			config := &container.Config{Image: engine.Busybox, Cmd: []string{"sleep", "1000"}, Labels: map[string]string{"private": "yes"}}
			withInit := true // sleep as the first process does not end on a signal
			made, err := c.ContainerCreate(ctx, config, &container.HostConfig{Init: &withInit}, nil, nil, "")
			if err != nil {
				t.Fatal(err)
			}
			if err := c.ContainerStart(ctx, made.ID, container.StartOptions{}); err != nil {
				t.Fatal(err)
			}
			return made.ID
		}
		isRunning := func(id string, want bool) {
			t.Helper()
			found, err := c.ContainerInspect(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			if found.State.Running != want {
				t.Errorf("running: %t, want %t", found.State.Running, want)
			}
		}
		stopped := run()
		isRunning(stopped, true)
		e.Restart()
		isRunning(stopped, false)
		killed := run()
		e.Kill()
		if _, err := c.Ping(ctx); err == nil {
			t.Error("a killed engine answers")
		}
		e.Start()
		isRunning(killed, false)
		if again, err := c.Info(ctx); err != nil || again.ID != first.ID {
			t.Errorf("the engine is another one after its restarts: %v, %v", again.ID, err)
		}
		if n := len(engine.Containers(t, e.Endpoint, "private=yes")); n != 2 {
			t.Errorf("%d containers, want 2", n)
		}
		if n := len(engine.Containers(t, engine.Endpoint(t), "private=yes")); n != 0 {
			t.Errorf("%d of them in the shared engine", n)
		}
		run()
		e.Kill() // to be cleaned up with a container that runs
	})
	if name == "" {
		return
	}
	for _, dir := range []string{"/run/laufwerk-engines", "/var/lib/laufwerk-engines"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", filepath.Join(dir, name), err)
		}
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), name) {
		t.Errorf("mounts are left: %v\n%s", err, mounts)
	}
	for _, cmdline := range globbed(t, "/proc/[0-9]*/cmdline") {
		if b, err := os.ReadFile(cmdline); err == nil && strings.Contains(string(b), name) {
			t.Errorf("a process is left: %q", b)
		}
	}
}

func globbed(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) == 0 {
		t.Fatalf("%s: %v, %v", pattern, found, err)
	}
	return found
}
