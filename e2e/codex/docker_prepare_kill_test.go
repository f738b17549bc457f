package codex_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/agent/codex"
	"github.com/laufwerk/laufwerk/internal/imagecache"
	"github.com/laufwerk/laufwerk/internal/providers/docker"
	"github.com/laufwerk/laufwerk/internal/testkit"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// preparation is a machine that prepares the real Codex, from packages that are here, in a cache of its own.
type preparation struct {
	*e2e.DockerMachine
	cache  string
	args   []string
	builds map[string]bool // what the killed ones have built: the label's values
	made   string          // the image
}

func newPreparation(t *testing.T) *preparation {
	t.Helper()
	endpoint := engine.Endpoint(t)
	packages := engine.Packages(t, endpoint)
	p := &preparation{DockerMachine: e2e.NewDockerMachine(t, endpoint), builds: map[string]bool{}}
	p.Env = []string{"DOCKER_HOST=" + endpoint}
	if err := os.RemoveAll(filepath.Join(p.Project, "laufwerk")); err != nil { // outside of a project it is the standard image
		t.Fatal(err)
	}
	ca := filepath.Join(p.Dir, "registry-ca.crt")
	p.WriteFile(ca, string(packages.Authority))
	p.cache = filepath.Join(p.Dir, "cache")
	p.args = []string{"prepare", "docker", "--image", engine.Base, "--cache-directory", p.cache, "--registry", packages.URL, "--ca", ca}
	t.Cleanup(func() {
		for _, id := range p.left() {
			engine.RemoveImage(t, endpoint, id)
		}
		if p.made != "" {
			engine.RemoveImage(t, endpoint, p.made)
		}
	})
	return p
}

// left are the images of this preparation's builds.
func (p *preparation) left() (ids []string) {
	p.T.Helper()
	for build := range p.builds {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		list, err := p.Client.ImageList(ctx, image.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", imagecache.LabelBuild+"="+build))})
		cancel()
		if err != nil {
			p.T.Error(err)
		}
		for _, i := range list {
			ids = append(ids, i.ID)
		}
	}
	return ids
}

// forgotten removes all that has been prepared, so that the next preparation begins anew.
func (p *preparation) forgotten() {
	p.T.Helper()
	p.T.Log("all was made already: once more from the beginning")
	engine.RemoveImage(p.T, p.Endpoint, p.prepares().Image)
	if err := os.RemoveAll(p.cache); err != nil {
		p.T.Fatal(err)
	}
}

// noted takes up which build is under way, or was.
func (p *preparation) noted() {
	p.T.Helper()
	notes, _ := filepath.Glob(filepath.Join(p.cache, "building/*.json"))
	for _, path := range notes {
		b, err := os.ReadFile(path)
		var note imagecache.BuildRecord
		if err == nil {
			err = json.Unmarshal(b, &note)
		}
		if err != nil || note.Build == "" {
			p.T.Errorf("%s: %v: %s", path, err, b)
		}
		p.builds[note.Build] = true
	}
}

// killedAfter kills one preparation some time after it has said a word, and says whether it came to that: one that finds
// everything made has ended before.
func (p *preparation) killedAfter(word string, wait time.Duration) bool {
	p.T.Helper()
	r := p.Start(nil, p.args...)
	ended := make(chan struct{})
	go func() { // the killer: whoever waits for the end sees it whatever comes first
		for deadline := time.Now().Add(e2e.HangLimit); !strings.Contains(r.Stderr.String(), word) && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			select {
			case <-ended:
				return
			default:
			}
		}
		time.Sleep(wait)
		_ = r.Cmd.Process.Signal(syscall.SIGKILL)
	}()
	code, out, errs := r.Wait()
	close(ended)
	p.noted()
	switch code {
	case 128 + int(syscall.SIGKILL):
		lines := strings.Split(strings.TrimSpace(errs), "\n")
		p.T.Logf("killed %s after %q; the last that it said: %q", wait.Round(time.Millisecond), word, lines[len(lines)-1])
		return true
	case 0:
		return false
	}
	p.T.Fatalf("exit %d\n%s%s", code, out, errs)
	return false
}

type preparedImage struct {
	Image, ManifestPath string
	Reused              bool
}

func (p *preparation) prepares() preparedImage {
	p.T.Helper()
	began := time.Now()
	code, out, errs := p.Run(nil, append(p.args, "--json")...)
	var made struct{ Targets []preparedImage }
	if err := json.Unmarshal([]byte(out), &made); code != 0 || err != nil || len(made.Targets) != 1 {
		p.T.Fatalf("exit %d, %v\n%s%s", code, err, out, errs)
	}
	p.T.Logf("prepared in %s, reused %t", time.Since(began).Round(time.Millisecond), made.Targets[0].Reused)
	p.made = made.Targets[0].Image
	return made.Targets[0]
}

// prints is the stdout of a program in a container of an image, as somebody without rights.
func (p *preparation) prints(image string, argv ...string) string {
	p.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), e2e.HangLimit)
	defer cancel()
	made, err := p.Client.ContainerCreate(ctx, &container.Config{Image: image, Cmd: argv, User: "65534:65534", Env: []string{"HOME=/tmp"}}, &container.HostConfig{NetworkMode: "none"}, nil, nil, "")
	if err != nil {
		p.T.Fatal(err)
	}
	defer func() {
		_ = p.Client.ContainerRemove(context.Background(), made.ID, container.RemoveOptions{Force: true})
	}()
	if err := p.Client.ContainerStart(ctx, made.ID, container.StartOptions{}); err != nil {
		p.T.Fatal(err)
	}
	ended, failed := p.Client.ContainerWait(ctx, made.ID, container.WaitConditionNotRunning)
	select {
	case <-ended:
	case err := <-failed:
		p.T.Fatal(err)
	}
	logs, err := p.Client.ContainerLogs(ctx, made.ID, container.LogsOptions{ShowStdout: true})
	if err != nil {
		p.T.Fatal(err)
	}
	defer logs.Close()
	var out bytes.Buffer
	if _, err := stdcopy.StdCopy(&out, &out, logs); err != nil {
		p.T.Fatal(err)
	}
	return out.String()
}

// TestTheRealPreparationIsKilledFiveTimes kills the preparation of the real Codex at moments of all its stages, each time going on
// with what the ones before have left. One more call then makes the image, and leaves nothing else behind.
func TestTheRealPreparationIsKilledFiveTimes(t *testing.T) {
	t.Parallel()
	p := newPreparation(t)
	random := testkit.NewRandom(t)
	for _, moment := range []struct {
		after    string // what it has said
		from, to time.Duration
	}{
		{"", 0, 400 * time.Millisecond},
		{"installing Codex", 0, 300 * time.Millisecond},
		{"installing Codex", 300 * time.Millisecond, 2 * time.Second},
		{"building the image", 0, 300 * time.Millisecond},
		{"building the image", 300 * time.Millisecond, 1500 * time.Millisecond},
	} {
		wait := moment.from + time.Duration(random.Int64N(int64(moment.to-moment.from)))
		if !p.killedAfter(moment.after, wait) { // the one before was killed when all was made
			p.forgotten()
			if !p.killedAfter(moment.after, wait) {
				t.Fatalf("no preparation lives until %s after %q", wait, moment.after)
			}
		}
		p.CheckAccounted()
	}
	made := p.prepares()
	if again := p.prepares(); !again.Reused || again.Image != made.Image || again.ManifestPath != made.ManifestPath {
		t.Errorf("the receipt does not hold: %+v, %+v", made, again)
	}
	if left := p.ListClaims(); len(left) > 0 {
		t.Errorf("claims are outstanding: %v", left)
	}
	if left := p.Containers(); len(left) > 0 {
		t.Errorf("containers are left: %v", left)
	}
	for _, dir := range []string{"stage", "building"} {
		if left, err := os.ReadDir(filepath.Join(p.cache, dir)); err != nil || len(left) > 0 {
			t.Errorf("%s has %v: %v", dir, left, err)
		}
	}
	for _, id := range p.left() {
		if id != made.Image {
			t.Errorf("the image %s of a killed build is left", id)
		}
	}
	program := filepath.Join(docker.Images().Prefix("codex"), imagecache.NewProgram(codex.New()).Binary("linux/amd64"))
	if says := strings.TrimSpace(p.prints(made.Image, program, "--version")); says != "codex-cli "+codex.Version {
		t.Errorf("the prepared Codex says %q", says)
	}
}
