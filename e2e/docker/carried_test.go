package docker_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/guest"
	"github.com/laufwerk/laufwerk/internal/testkit"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// foreign is an architecture that this machine does not have, as Go and as an engine name it.
func foreign() (arch, name string) {
	if runtime.GOARCH == "arm64" {
		return "amd64", "x86_64"
	}
	return "arm64", "aarch64"
}

// pretendArchitecture lets the engine say that its kernel has another architecture. It has this machine's.
func pretendArchitecture(b *e2e.DockerMachine) {
	_, name := foreign()
	b.Proxy.On(engine.Info, 0, engine.Say(func(info []byte) []byte {
		fields := map[string]json.RawMessage{}
		if err := json.Unmarshal(info, &fields); err != nil {
			b.T.Error(err)
		}
		fields["Architecture"], _ = json.Marshal(name)
		out, _ := json.Marshal(fields)
		return out
	}))
}

// release is a build of this platform that carries a program for the foreign one, and the path of that program below a home.
// No machine runs programs of both: what it carries is the plain build for this platform, under the other one's name.
func release(t *testing.T) (path, unpacked string) {
	t.Helper()
	plain, err := os.ReadFile(testkit.Binary(t))
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(plain)
	_ = z.Close()
	sum := sha256.Sum256(plain)
	digest := hex.EncodeToString(sum[:])
	dir, err := os.MkdirTemp("", "release") // a user of the tests may have to enter it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	arch, _ := foreign()
	over := map[string]string{}
	for ending, content := range map[string][]byte{".gz": packed.Bytes(), ".sha256": []byte(digest + "\n")} {
		name := "linux-" + arch + ending
		over["../../internal/guest/carried/packed/"+name] = filepath.Join(dir, name)
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": over})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600)
	}
	if err == nil {
		err = os.Chmod(dir, 0o755) //nolint:gosec // that is the point
	}
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "laufwerk")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", "release", "-overlay", filepath.Join(dir, "overlay.json"), "-o", path, "github.com/laufwerk/laufwerk/cmd/laufwerk")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path, filepath.Join("supervisors", digest, "laufwerk")
}

// A plain build has no program for an engine of another architecture, and says so before it makes anything.
func TestDockerEngineOfAnotherArchitecture(t *testing.T) {
	t.Parallel()
	b := e2e.NewDockerMachine(t, engine.Endpoint(t))
	pretendArchitecture(b)
	arch, _ := foreign()
	says := "linux/" + arch + " containers, and this build of laufwerk is for linux/" + runtime.GOARCH
	code, _, errs := b.Run(nil, "run", "job", "--no-input")
	if code != 4 || !strings.Contains(errs, says) || !strings.Contains(errs, "make release") {
		t.Errorf("exit %d: %s", code, errs)
	}
	out := b.MustRun([]int{4}, "doctor", "--json")
	if !strings.Contains(out, says) {
		t.Errorf("%s", out)
	}
	if n := b.Proxy.Count(engine.Create); n > 0 {
		t.Errorf("%d containers were made", n)
	}
}

// A release carries the program: a session runs with what was unpacked, also after its worker and its container were killed
// and the file was damaged.
func TestDockerWithTheProgramThatAReleaseCarries(t *testing.T) {
	t.Parallel()
	b := e2e.NewDockerMachine(t, engine.Endpoint(t))
	pretendArchitecture(b)
	var unpacked string
	b.Program, unpacked = release(t)
	unpacked = filepath.Join(b.Home, unpacked)
	if out := b.MustRun([]int{4, 0}, "doctor", "--json"); !strings.Contains(out, "this build contains the supervisor for them") {
		t.Errorf("%s", out)
	}
	if _, err := os.Lstat(filepath.Dir(filepath.Dir(unpacked))); err == nil {
		t.Error("doctor has unpacked it")
	}
	startBlocked(b).Kill()
	box := inspectContainer(b)
	var source string
	for _, m := range box.Mounts {
		if m.Destination == guest.Binary {
			source = m.Source
		}
	}
	if source != unpacked {
		t.Fatalf("the container has %q, want %q", source, unpacked)
	}
	at := 0
	if err := b.Client.ContainerStop(t.Context(), box.ID, container.StopOptions{Timeout: &at}); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(unpacked, 1000); err != nil {
		t.Fatal(err)
	}
	worker := b.Start(nil, "resume", b.OnlyRun().ID, "--no-input")
	e2e.Eventually(t, "the turn is made again", func() bool { return b.CountWord("begin") == 2 })
	if now := inspectContainer(b).ID; now != box.ID {
		t.Errorf("the container was %s, and is %s", box.ID, now)
	}
	b.ReleaseAgent()
	worker.CheckExit(0)
	b.CheckDone(2)
	var left []string
	_ = filepath.WalkDir(filepath.Join(b.Home, "supervisors"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			left = append(left, path)
		}
		return err
	})
	if len(left) != 2 { // and the lock
		t.Errorf("%q", left)
	}
}
