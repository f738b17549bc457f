package app_test

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

	"github.com/laufwerk/laufwerk/internal/imagecache"
	"github.com/laufwerk/laufwerk/internal/recipe"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// preparation is a world that prepares the real Codex, from packages that are here, in a cache of its own.
type preparation struct {
	*boxed
	cache  string
	args   []string
	builds map[string]bool // what the killed ones have built: the label's values
	made   string          // the image
}

func newPreparation(t *testing.T) *preparation {
	t.Helper()
	endpoint := engine.Endpoint(t)
	packages := engine.Packages(t, endpoint)
	p := &preparation{boxed: newBoxed(t, endpoint), builds: map[string]bool{}}
	p.env = []string{"DOCKER_HOST=" + endpoint}
	if err := os.RemoveAll(filepath.Join(p.project, "laufwerk")); err != nil { // outside of a project it is the standard image
		t.Fatal(err)
	}
	ca := filepath.Join(p.dir, "registry-ca.crt")
	p.write(ca, string(packages.Authority))
	p.cache = filepath.Join(p.dir, "cache")
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
	p.t.Helper()
	for build := range p.builds {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		list, err := p.client.ImageList(ctx, image.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", imagecache.LabelBuild+"="+build))})
		cancel()
		if err != nil {
			p.t.Error(err)
		}
		for _, i := range list {
			ids = append(ids, i.ID)
		}
	}
	return ids
}

// forgotten removes all that has been prepared, so that the next preparation begins anew.
func (p *preparation) forgotten() {
	p.t.Helper()
	p.t.Log("all was made already: once more from the beginning")
	engine.RemoveImage(p.t, p.endpoint, p.prepares().Image)
	if err := os.RemoveAll(p.cache); err != nil {
		p.t.Fatal(err)
	}
}

// noted takes up which build is under way, or was.
func (p *preparation) noted() {
	p.t.Helper()
	notes, _ := filepath.Glob(filepath.Join(p.cache, "building/*.json"))
	for _, path := range notes {
		b, err := os.ReadFile(path)
		var note imagecache.Building
		if err == nil {
			err = json.Unmarshal(b, &note)
		}
		if err != nil || note.Build == "" {
			p.t.Errorf("%s: %v: %s", path, err, b)
		}
		p.builds[note.Build] = true
	}
}

// killedAfter kills one preparation some time after it has said a word, and says whether it came to that: one that finds
// everything made has ended before.
func (p *preparation) killedAfter(word string, wait time.Duration) bool {
	p.t.Helper()
	r := p.start(nil, p.args...)
	ended := make(chan struct{})
	go func() { // the killer: whoever waits for the end sees it whatever comes first
		for deadline := time.Now().Add(hang); !strings.Contains(r.errs.String(), word) && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			select {
			case <-ended:
				return
			default:
			}
		}
		time.Sleep(wait)
		_ = r.cmd.Process.Signal(syscall.SIGKILL)
	}()
	code, out, errs := r.wait()
	close(ended)
	p.noted()
	switch code {
	case 128 + int(syscall.SIGKILL):
		lines := strings.Split(strings.TrimSpace(errs), "\n")
		p.t.Logf("killed %s after %q; the last that it said: %q", wait.Round(time.Millisecond), word, lines[len(lines)-1])
		return true
	case 0:
		return false
	}
	p.t.Fatalf("exit %d\n%s%s", code, out, errs)
	return false
}

type preparedImage struct {
	Image, ManifestPath string
	Reused              bool
}

func (p *preparation) prepares() preparedImage {
	p.t.Helper()
	began := time.Now()
	code, out, errs := p.laufwerk(nil, append(p.args, "--json")...)
	var made struct{ Targets []preparedImage }
	if err := json.Unmarshal([]byte(out), &made); code != 0 || err != nil || len(made.Targets) != 1 {
		p.t.Fatalf("exit %d, %v\n%s%s", code, err, out, errs)
	}
	p.t.Logf("prepared in %s, reused %t", time.Since(began).Round(time.Millisecond), made.Targets[0].Reused)
	p.made = made.Targets[0].Image
	return made.Targets[0]
}

// prints is the stdout of a program in a container of an image, as somebody without rights.
func (p *preparation) prints(image string, argv ...string) string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	made, err := p.client.ContainerCreate(ctx, &container.Config{Image: image, Cmd: argv, User: "65534:65534", Env: []string{"HOME=/tmp"}}, &container.HostConfig{NetworkMode: "none"}, nil, nil, "")
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() {
		_ = p.client.ContainerRemove(context.Background(), made.ID, container.RemoveOptions{Force: true})
	}()
	if err := p.client.ContainerStart(ctx, made.ID, container.StartOptions{}); err != nil {
		p.t.Fatal(err)
	}
	ended, failed := p.client.ContainerWait(ctx, made.ID, container.WaitConditionNotRunning)
	select {
	case <-ended:
	case err := <-failed:
		p.t.Fatal(err)
	}
	logs, err := p.client.ContainerLogs(ctx, made.ID, container.LogsOptions{ShowStdout: true})
	if err != nil {
		p.t.Fatal(err)
	}
	defer logs.Close()
	var out bytes.Buffer
	if _, err := stdcopy.StdCopy(&out, &out, logs); err != nil {
		p.t.Fatal(err)
	}
	return out.String()
}

// TestTheRealPreparationIsKilledFiveTimes kills the preparation of the real Codex at moments of all its stages, each time going on
// with what the ones before have left. One more call then makes the image, and leaves nothing else behind.
func TestTheRealPreparationIsKilledFiveTimes(t *testing.T) {
	t.Parallel()
	p := newPreparation(t)
	random := chance(t)
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
		p.accounted()
	}
	made := p.prepares()
	if again := p.prepares(); !again.Reused || again.Image != made.Image || again.ManifestPath != made.ManifestPath {
		t.Errorf("the receipt does not hold: %+v, %+v", made, again)
	}
	if left := p.claims(); len(left) > 0 {
		t.Errorf("claims are outstanding: %v", left)
	}
	if left := p.ours(); len(left) > 0 {
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
	program := filepath.Join(imagecache.DockerPrefix, imagecache.Codex().Binary("linux/amd64"))
	if says := strings.TrimSpace(p.prints(made.Image, program, "--version")); says != "codex-cli "+recipe.CodexVersion {
		t.Errorf("the prepared Codex says %q", says)
	}
}
