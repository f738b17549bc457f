package codex_test

import (
	"archive/tar"
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/build"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/agent/codex"
	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/imagecache"
	"github.com/laufwerk/laufwerk/internal/testkit"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// built is an image of the test's own, from lines of a Dockerfile.
func (w *containerMachine) built(name string, lines ...string) string {
	w.T.Helper()
	name = "laufwerk-test-own/" + strings.ToLower(w.T.Name()) + ":" + name
	file := []byte(strings.Join(lines, "\n"))
	var b bytes.Buffer
	a := tar.NewWriter(&b)
	_ = a.WriteHeader(&tar.Header{Name: "Dockerfile", Mode: 0o644, Size: int64(len(file))})
	_, _ = a.Write(file)
	_ = a.Close()
	r, err := w.client.ImageBuild(w.T.Context(), &b, build.ImageBuildOptions{Tags: []string{name}, Remove: true, ForceRemove: true})
	if err != nil {
		w.T.Fatal(err)
	}
	defer r.Body.Close()
	if out, err := io.ReadAll(r.Body); err != nil || strings.Contains(string(out), "errorDetail") {
		w.T.Fatalf("%v\n%s", err, out)
	}
	w.T.Cleanup(func() { engine.RemoveImage(w.T, w.endpoint, name) })
	return name
}

// refused runs the workflow turn, which nothing has been made for when it ends with exit code 4.
func (w *containerMachine) refused(says ...string) {
	w.T.Helper()
	began := time.Now()
	code, out, errs := w.Run(nil, "run", "turn", "--no-input")
	if code != 4 {
		w.T.Fatalf("exit %d, want 4\n%s%s", code, out, errs)
	}
	for _, want := range says {
		if !strings.Contains(errs, want) {
			w.T.Errorf("it does not say %q:\n%s", want, errs)
		}
	}
	w.T.Logf("refused after %s", time.Since(began).Round(time.Millisecond))
	if made := engine.Containers(w.T, w.endpoint, owned.LabelOwner+"="+w.StoreOwner()); len(made) > 0 || len(w.Model.Requests("")) > 0 {
		w.T.Errorf("containers %v, %d requests", made, len(w.Model.Requests("")))
	}
}

// Images of users' own that carry the prepared Codex, and some that do not.
func TestCodexOnImagesBuiltFromThePreparedOne(t *testing.T) {
	t.Parallel()
	w := newContainerMachine(t)
	w.Model.Play(testkit.Shell("cat /etc/ours; id -u"), testkit.Say("done"))
	prepared := w.prepare()
	before := w.ListClaims("--all") // of preparing, where that was not done before

	w.writeWorkflow(map[string]any{"image": w.built("stale", "FROM "+engine.Base, "LABEL "+imagecache.LabelBootstrap+"=sha256:00"), "codexBootstrap": "prepared"})
	w.refused("contains another Codex", "laufwerk prepare docker")
	w.writeWorkflow(map[string]any{"image": engine.Base, "codexBootstrap": "prepared"})
	w.refused("contains no prepared Codex", "laufwerk prepare docker")
	if now := w.ListClaims("--all"); len(now) != len(before) {
		t.Errorf("claims of what nobody could use: %v, before %v", now, before)
	}
	w.writeWorkflow(map[string]any{"image": engine.Base, "network": "none"})
	w.refused("without a network it cannot be installed")

	derived := w.built("derived", "FROM "+prepared, "RUN echo ours > /etc/ours", "ENV OURS=1", "USER 1000")
	for _, more := range []map[string]any{{"image": derived, "codexBootstrap": "prepared"}, {"image": derived}} { // nothing is installed twice
		w.writeWorkflow(more)
		code, out, errs := w.Run(nil, "run", "turn", "--no-input", "--json")
		if code != 0 || !strings.Contains(out, "done") {
			t.Fatalf("%v: exit %d\n%s%s", more, code, out, errs)
		}
	}
	if sent := w.Model.Requests(""); len(sent) != 4 || !strings.Contains(sent[1].Raw, `ours\n65534`) {
		t.Errorf("%d requests, %v", len(sent), e2e.LastInput(sent[min(1, len(sent)-1)]))
	}
	w.MustRun([]int{0}, "cleanup", "--all", "--cancel", "--discard-changes")
	w.checkNothingLeftOnEngine()
}

// An image that carries no Codex: the session gets the pinned one before its first turn. The target's variables say how
// pnpm reaches the registry from in there.
func TestCodexIsInstalledInASession(t *testing.T) {
	t.Parallel()
	w := newContainerMachine(t)
	w.writeWorkflow(map[string]any{"image": engine.BaseNoPnpm})
	code, out, errs := w.Run(nil, "run", "turn", "--no-input")
	if code != 4 || !strings.Contains(errs, "the image has no pnpm") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}

	packages := engine.Packages(t, w.endpoint)
	w.WriteFile(filepath.Join(w.Project, "registry-ca.crt"), string(packages.Authority))
	env := map[string]string{"npm_config_registry": packages.URL, "NODE_EXTRA_CA_CERTS": "/workspace/registry-ca.crt"}
	w.writeWorkflow(map[string]any{"id": "own", "image": engine.Base, "env": env})
	w.ReplaceInFile("laufwerk/workflows/turn/workflow.ts", `return yield* s.ask({ key: "ask", prompt: "do it" });`, `yield* s.ask({ key: "first", prompt: "do it" });
    return yield* s.ask({ key: "ask", prompt: "again" });`)
	w.Model.Play(testkit.Shell("ls -a ~/.harness-bootstrap ~/.harness-bootstrap/codex; du -sm ~ | cut -f1"), testkit.Say("first"), testkit.Say("done"))
	began := time.Now()
	code, out, errs = w.Run(nil, "run", "turn", "--no-input", "--json")
	if code != 0 || !strings.Contains(out, "done") {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	t.Logf("installed and asked in %s: %v", time.Since(began).Round(time.Millisecond), e2e.LastInput(w.Model.Requests("")[1]))
	if n := w.Model.Requests(""); len(n) != 3 || len(w.Model.Threads()) != 1 {
		t.Errorf("%d requests in %v", len(n), w.Model.Threads())
	}
	logs := w.MustRun([]int{0}, "runs", "logs", w.ListRuns()[0].ID)
	if strings.Count(logs, "installing Codex "+codex.Version+" in the session: the image "+engine.Base+" does not contain it") != 1 || !strings.Contains(logs, "Progress: resolved ") {
		t.Errorf("what took its time is not told, or more than once:\n%s", logs)
	}
	w.CheckNoSecret(out, errs, logs)
	w.MustRun([]int{0}, "cleanup", "--all", "--cancel", "--discard-changes")
	w.checkNothingLeftOnEngine()
}

// As a user prepares: from the registry that this machine uses, with the certificates that its way there needs. A connection that
// stalls costs pnpm up to four minutes, after which it makes a new one.
func TestCodexIsPreparedFromTheRegistryItself(t *testing.T) {
	t.Parallel()
	p := newPreparation(t)
	address, certificates := engine.Registry(t)
	p.args = []string{"prepare", "docker", "--image", engine.Base, "--cache-directory", p.cache, "--registry", address}
	if certificates != "" {
		p.args = append(p.args, "--ca", certificates)
	}
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(strings.ToLower(kv), "="); strings.HasPrefix(name, "npm_config_") || strings.HasSuffix(name, "_proxy") {
			p.Env = append(p.Env, kv)
		}
	}
	code, out, errs := p.Start(nil, p.args...).WaitWithin(12 * time.Minute)
	if code != 0 || !strings.Contains(errs, "installing Codex") {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	if again := p.prepares(); !again.Reused {
		t.Errorf("it is made again: %+v", again)
	}
}

// Whoever interrupts an installation leaves nothing behind that goes on with it.
func TestAnInstallationInASessionIsInterrupted(t *testing.T) {
	t.Parallel()
	w := newContainerMachine(t)
	silent, err := net.Listen("tcp", net.JoinHostPort(engine.Gateway(t, w.endpoint), "0"))
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan net.Conn, 100)
	go func() {
		for c, err := silent.Accept(); err == nil; c, err = silent.Accept() {
			asked <- c
		}
		close(asked)
	}()
	t.Cleanup(func() {
		_ = silent.Close()
		for c := range asked {
			_ = c.Close()
		}
	})
	w.writeWorkflow(map[string]any{"image": engine.Base, "env": map[string]string{"npm_config_registry": "http://" + silent.Addr().String()}})
	r := w.Machine.Start(nil, "run", "turn", "--no-input")
	select {
	case c := <-asked:
		_ = c.Close()
	case <-time.After(e2e.HangLimit):
		t.Fatal("pnpm asks for nothing")
	}
	if goesOn := e2e.DescribeProcesses(w.Dir); !strings.Contains(goesOn, "pnpm install --frozen-lockfile") || !strings.Contains(goesOn, "connections of its network:") {
		t.Errorf("if it hung, this would not say where:\n%s", goesOn)
	}
	e2e.Eventually(t, "the run tells what takes its time", func() bool {
		return strings.Contains(r.Stderr.String(), "  | installing Codex "+codex.Version+" in the session")
	})
	r.Signal(syscall.SIGINT)
	if code, out, errs := r.Wait(); code != 130 {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	ours := engine.Containers(t, w.endpoint, owned.LabelOwner+"="+w.StoreOwner())
	if len(ours) != 1 || ours[0].State == "running" {
		t.Errorf("%+v", ours)
	}
	w.MustRun([]int{0}, "cleanup", "--all", "--cancel", "--discard-changes")
	w.checkNothingLeftOnEngine()
}
