package engine_test

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// real is a proxy in front of the real engine, with a client of each; label is on all that the test makes.
type real struct {
	t      *testing.T
	ctx    context.Context
	proxy  *engine.Proxy
	client *client.Client
	direct *client.Client
	label  string
}

func newReal(t *testing.T) *real {
	t.Helper()
	endpoint := engine.Endpoint(t)
	r := &real{t: t, ctx: bounded(t), proxy: engine.NewProxy(t, endpoint), direct: engine.Client(t, endpoint), label: "laufwerk-test-proxy=" + strings.ToLower(t.Name()) + time.Now().Format("-150405.000000")}
	r.client = engine.Client(t, r.proxy.Endpoint)
	t.Cleanup(func() { engine.Remove(t, endpoint, r.label) })
	return r
}

func (r *real) config(cmd ...string) *container.Config {
	key, value, _ := strings.Cut(r.label, "=")
	return &container.Config{Image: engine.Busybox, Cmd: cmd, Labels: map[string]string{key: value}}
}

func (r *real) create(cmd ...string) (string, error) {
	made, err := r.client.ContainerCreate(r.ctx, r.config(cmd...), &container.HostConfig{NetworkMode: "none"}, nil, nil, "")
	return made.ID, err
}

func (r *real) containers() int {
	return len(engine.Containers(r.t, engine.Endpoint(r.t), r.label))
}

func TestRealFaults(t *testing.T) {
	for _, test := range []struct {
		name   string
		fault  engine.Fault
		effect bool
	}{
		{"request lost", engine.LoseRequest(), false},
		{"reply lost", engine.LoseReply(), true},
		{"500", engine.Fail(http.StatusInternalServerError), false},
		{"500 after", engine.FailAfter(http.StatusInternalServerError), true},
		{"truncated", engine.Truncate(), true},
		{"gone before", engine.Vanish(), false},
		{"gone after", engine.VanishAfter(), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newReal(t)
			r.proxy.On(engine.Create, 1, test.fault)
			if id, err := r.create("true"); err == nil {
				t.Errorf("create is fine: %s", id)
			}
			want := 0
			if test.effect {
				want = 1
			}
			if got := r.containers(); got != want {
				t.Fatalf("%d containers, want %d", got, want)
			}
			r.proxy.Return()
			id, err := r.create("sleep", "1000")
			if err != nil {
				t.Fatal(err)
			}
			r.proxy.On(engine.Start, 1, test.fault)
			err = r.client.ContainerStart(r.ctx, id, container.StartOptions{})
			if err == nil {
				t.Error("start is fine")
			}
			found, err := r.direct.ContainerInspect(r.ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			if found.State.Running != test.effect {
				t.Errorf("running: %t", found.State.Running)
			}
		})
	}
}

func TestRealLateCreate(t *testing.T) {
	r := newReal(t)
	rule := r.proxy.On(engine.Create, 1, engine.LateRequest())
	ctx, cancel := context.WithCancel(r.ctx)
	failed := make(chan error, 1)
	go func() {
		_, err := r.client.ContainerCreate(ctx, r.config("true"), nil, nil, nil, "")
		failed <- err
	}()
	await(t, "the rule", rule.Met())
	cancel()
	if err := <-failed; err == nil {
		t.Error("create is fine")
	}
	if got := r.containers(); got != 0 {
		t.Errorf("%d containers before the engine had the call", got)
	}
	rule.Release()
	await(t, "the engine", rule.Done())
	if got := r.containers(); got != 1 {
		t.Errorf("%d containers, want 1", got)
	}
}

// exec runs a command in a container, with all of its input given before its output is read.
func (r *real) exec(id, input string, cmd ...string) (string, int, error) {
	made, err := r.client.ContainerExecCreate(r.ctx, id, container.ExecOptions{Cmd: cmd, AttachStdin: true, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return "", 0, err
	}
	attached, err := r.client.ContainerExecAttach(r.ctx, made.ID, container.ExecAttachOptions{})
	if err != nil {
		return "", 0, err
	}
	defer attached.Close()
	go func() {
		_, _ = io.WriteString(attached.Conn, input)
		_ = attached.CloseWrite()
	}()
	var out bytes.Buffer
	if _, err := stdcopy.StdCopy(&out, io.Discard, attached.Reader); err != nil {
		return "", 0, err
	}
	ended, err := r.client.ContainerExecInspect(r.ctx, made.ID)
	return out.String(), ended.ExitCode, err
}

func TestRealExecGoesThrough(t *testing.T) {
	r := newReal(t)
	id, err := r.create("sleep", "1000")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.client.ContainerStart(r.ctx, id, container.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	input := strings.Repeat("line\x00\xff\n", 100_000)
	out, code, err := r.exec(id, input, "sh", "-c", "cat; exit 7")
	if out != input || code != 7 || err != nil {
		t.Errorf("%d bytes of %d, exit %d, %v", len(out), len(input), code, err)
	}
	// The process is there although its client was told nothing.
	r.proxy.On(engine.ExecStart, 1, engine.LoseReply())
	if _, _, err := r.exec(id, "", "sh", "-c", "echo was here > /tmp/mark"); err == nil {
		t.Error("a lost attach is fine")
	}
	if out, code, err := r.exec(id, "", "sh", "-c", "until [ -s /tmp/mark ]; do sleep 0.1; done; cat /tmp/mark"); out != "was here\n" || code != 0 || err != nil {
		t.Errorf("%q, exit %d, %v", out, code, err)
	}
	late := r.proxy.On(engine.ExecStart, 1, engine.LateReply())
	go func() {
		<-late.Met()
		late.Release()
	}()
	if out, code, err := r.exec(id, "in", "cat"); out != "in" || code != 0 || err != nil {
		t.Errorf("after a late reply: %q, exit %d, %v", out, code, err)
	}
	want := map[engine.Operation]int{engine.Create: 1, engine.Start: 1, engine.ExecCreate: 4, engine.ExecStart: 4, engine.ExecInspect: 3, engine.Ping: 1}
	for op, n := range want {
		if got := r.proxy.Count(op); got != n {
			t.Errorf("%s: %d calls, want %d", op, got, n)
		}
	}
	if all := r.proxy.Count(); all != 14 {
		t.Errorf("%d calls: %v", all, r.proxy.Counts())
	}
}

func TestRealBuildAndCommit(t *testing.T) {
	r := newReal(t)
	var sent bytes.Buffer
	w := tar.NewWriter(&sent)
	dockerfile := "FROM " + engine.Busybox + "\nRUN echo built > /made\n"
	_ = w.WriteHeader(&tar.Header{Name: "Dockerfile", Mode: 0o644, Size: int64(len(dockerfile))})
	_, _ = io.WriteString(w, dockerfile)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	tag := "laufwerk-proxy-test:" + time.Now().Format("150405.000000")
	t.Cleanup(func() { _, _ = r.direct.ImageRemove(context.Background(), tag, image.RemoveOptions{Force: true}) })
	build := func() (string, error) {
		response, err := r.client.ImageBuild(r.ctx, bytes.NewReader(sent.Bytes()), build.ImageBuildOptions{Tags: []string{tag}, NetworkMode: "none", Remove: true, ForceRemove: true})
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		b, err := io.ReadAll(response.Body)
		return string(b), err
	}
	exists := func() bool {
		_, err := r.direct.ImageInspect(r.ctx, tag)
		return err == nil
	}
	r.proxy.On(engine.Build, 1, engine.LoseRequest())
	if out, err := build(); err == nil || exists() {
		t.Errorf("a lost build is fine: %s", out)
	}
	r.proxy.On(engine.Build, 1, engine.LoseReply())
	if out, err := build(); err == nil || !exists() {
		t.Errorf("a build whose reply is lost: %v, %s, the image exists: %t", err, out, exists())
	}
	if out, err := build(); err != nil || !strings.Contains(out, "Successfully tagged "+tag) {
		t.Errorf("%v, %s", err, out)
	}
	id, err := r.create("true")
	if err != nil {
		t.Fatal(err)
	}
	made, err := r.client.ContainerCommit(r.ctx, id, container.CommitOptions{Reference: tag})
	if err != nil || made.ID == "" {
		t.Errorf("%v, %v", made, err)
	}
	if r.proxy.Count(engine.Build) != 3 || r.proxy.Count(engine.Commit) != 1 {
		t.Errorf("%v", r.proxy.Counts())
	}
}

func TestRealIdentity(t *testing.T) {
	r := newReal(t)
	r.proxy.Pretend("other")
	info, err := r.client.Info(r.ctx)
	if err != nil || info.ID != "other" || info.DockerRootDir != "/var/lib/other" || info.NCPU == 0 {
		t.Errorf("%s %s %d %v", info.ID, info.DockerRootDir, info.NCPU, err)
	}
}

// run runs a container to its end, and gives what it wrote to stdout.
func (r *real) run(config *container.Config, host *container.HostConfig) (string, error) {
	made, err := r.direct.ContainerCreate(r.ctx, config, host, nil, nil, "")
	if err != nil {
		return "", err
	}
	if err := r.direct.ContainerStart(r.ctx, made.ID, container.StartOptions{}); err != nil {
		return "", err
	}
	ended, failed := r.direct.ContainerWait(r.ctx, made.ID, container.WaitConditionNotRunning)
	select {
	case <-ended:
	case err := <-failed:
		return "", err
	}
	logs, err := r.direct.ContainerLogs(r.ctx, made.ID, container.LogsOptions{ShowStdout: true})
	if err != nil {
		return "", err
	}
	defer logs.Close()
	var out bytes.Buffer
	_, err = stdcopy.StdCopy(&out, io.Discard, logs)
	return out.String(), err
}

// TestRealPackages holds that a container in the shared engine can install packages.
func TestRealPackages(t *testing.T) {
	packages := engine.Packages(t, engine.Endpoint(t))
	authority := filepath.Join(t.TempDir(), "authority.pem")
	if err := os.WriteFile(authority, packages.Authority, 0o600); err != nil {
		t.Fatal(err)
	}
	r := newReal(t)
	config := r.config("timeout", "50", "pnpm", "--dir", "/tmp", "add", "ms@2.1.3")
	config.Image, config.Env = engine.Base, []string{"npm_config_registry=" + packages.URL, "CI=true", "NODE_EXTRA_CA_CERTS=/authority.pem"}
	host := &container.HostConfig{Mounts: []mount.Mount{{Type: mount.TypeBind, Source: authority, Target: "/authority.pem", ReadOnly: true}}}
	if out, err := r.run(config, host); err != nil || !strings.Contains(out, "+ ms 2.1.3") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestRealImages holds what .ci/engine says is in the images.
func TestRealImages(t *testing.T) {
	r := newReal(t)
	run := func(ref string, cmd ...string) (string, error) {
		config := r.config(cmd...)
		config.Image = ref
		return r.run(config, &container.HostConfig{NetworkMode: "none"})
	}
	const parts = "for p in git node pnpm setsid; do command -v $p >/dev/null && echo $p; done; true"
	for ref, want := range map[string]string{
		engine.Base:         "git\nnode\npnpm\nsetsid\n",
		engine.BaseNoGit:    "node\npnpm\nsetsid\n",
		engine.BaseNoNode:   "git\npnpm\nsetsid\n",
		engine.BaseNoPnpm:   "git\nnode\nsetsid\n",
		engine.BaseNoSetsid: "git\nnode\npnpm\n",
		engine.OnlyShell:    "",
	} {
		if got, err := run(ref, "/bin/sh", "-c", parts); got != want || err != nil {
			t.Errorf("%s has %q, want %q (%v)", ref, got, want, err)
		}
	}
	if got, err := run(engine.Base, "sh", "-c", "node --version; pnpm --version; grep :20: /etc/group"); !strings.HasPrefix(got, "v22.") || !strings.HasSuffix(got, "\ndialout:x:20:\n") || err != nil {
		t.Errorf("base: %q, %v", got, err)
	}
	if _, err := run(engine.NoShell, "/bin/sh", "-c", "true"); err == nil {
		t.Error("the image without a shell has one")
	}
	if _, err := run(engine.NoShell, "/bin/sleep", "0"); err != nil {
		t.Error(err)
	}
}
