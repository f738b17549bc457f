package prepare

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/imagecache"
	"github.com/laufwerk/laufwerk/internal/providers/openshell"
)

// An image for OpenShell targets: one layer more than its base, with every directory that a sandbox's policy names, also those
// that the base lacks, and nothing in it that others than root could change.
func TestOpenShellImage(t *testing.T) {
	w := newImageFixture(t)
	o := w.options()
	o.Cache = openshell.Images().Cache(filepath.Join(w.home.Dir(), "images", "openshell"), w.program)
	o.Cache.Layout.Paths = append(o.Cache.Layout.Paths, "/lacking") // as /lib64 is on other machines
	o.Image = w.base("no-opt", "RUN rm -rf /opt", "WORKDIR /app")
	r, _ := w.prepare(o)
	if r.Reused || r.Manifest != filepath.Join(w.home.Dir(), "images/openshell/tiny-openshell.json") {
		t.Errorf("%+v", r)
	}
	base, made := w.inspect(o.Image), w.inspect(r.Image)
	if n := len(base.RootFS.Layers); len(made.RootFS.Layers) != n+1 || made.Config.WorkingDir != "/sandbox" {
		t.Errorf("layers %v on %v, working directory %s", made.RootFS.Layers, base.RootFS.Layers, made.Config.WorkingDir)
	}
	if err := o.Cache.Carries(made); err != nil {
		t.Error(err)
	}
	if err := w.cache().Carries(made); !failure.Is(err, failure.NotReady) {
		t.Errorf("a Docker target could use it: %v", err)
	}
	out := w.shell(r.Image, `set -e; stat -c '%n %u:%g %a' / /lacking /opt /sandbox /sandbox/home /sandbox/ops /sandbox/work /sandbox/.harness-bootstrap/tiny; ls -A /opt /sandbox/home; find /sandbox -not -user 0 -o -perm /022 -not -type l`)
	want := "/ 0:0 755\n/lacking 0:0 755\n/opt 0:0 755\n/sandbox 0:0 755\n/sandbox/home 0:0 755\n/sandbox/ops 0:0 755\n/sandbox/work 0:0 755\n/sandbox/.harness-bootstrap/tiny 0:0 755\n/opt:\n\n/sandbox/home:\n"
	if out != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
	if again, said := w.prepare(o); !again.Reused || said != "" {
		t.Errorf("%+v\n%s", again, said)
	}

	// Both caches are looked at together, and each receipt is judged as what it is.
	ofDocker := w.options()
	ofDocker.Image = o.Image
	other, _ := w.prepare(ofDocker)
	e, err := connect(w.ctx(), w.endpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	list, err := imagecache.Caches{w.cache(), o.Cache}.Images(w.ctx(), e, nil)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{}
	for _, i := range list {
		if i.State != "foreign" {
			kinds[i.ID] = i.Kind + " " + i.State
		}
	}
	if len(kinds) != 2 || kinds[r.Image] != "openshell current" || kinds[other.Image] != "docker current" {
		t.Errorf("%v", kinds)
	}
	if _, err := w.cache().Load(r.Manifest, ""); !failure.Is(err, failure.NotReady) || !strings.Contains(err.Error(), "openshell targets") {
		t.Error(err)
	}
}

func TestOpenShellImageLacksIP(t *testing.T) {
	w := newImageFixture(t)
	o := w.options()
	o.Cache = openshell.Images().Cache(filepath.Join(w.home.Dir(), "images", "openshell"), w.program)
	o.Image = w.base("no-ip", "RUN rm -f /bin/ip /sbin/ip /usr/bin/ip /usr/sbin/ip")
	if _, err := o.run(w.ctx()); !failure.Is(err, failure.NotReady) || !strings.Contains(err.Error(), "lacks ip:") || !strings.Contains(failure.As(err).Hint, "laufwerk prepare openshell") {
		t.Error(err)
	}
}

// shell is what a script prints in a container of an image.
func (w *imageFixture) shell(image, script string) string {
	w.t.Helper()
	c := w.client()
	made, err := c.ContainerCreate(w.ctx(), &container.Config{Image: image, User: "0:0", Entrypoint: []string{"sh", "-c", script}, Cmd: []string{}}, &container.HostConfig{NetworkMode: "none"}, nil, nil, "")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := c.ContainerRemove(context.Background(), made.ID, container.RemoveOptions{Force: true, RemoveVolumes: true}); err != nil {
			w.t.Errorf("remove the container of a script: %v", err)
		}
	})
	ended, failed := c.ContainerWait(w.ctx(), made.ID, container.WaitConditionNextExit)
	if err := c.ContainerStart(w.ctx(), made.ID, container.StartOptions{}); err != nil {
		w.t.Fatal(err)
	}
	select {
	case err := <-failed:
		w.t.Fatal(err)
	case <-ended:
	}
	log, err := c.ContainerLogs(w.ctx(), made.ID, container.LogsOptions{ShowStdout: true, ShowStderr: true})
	if err != nil {
		w.t.Fatal(err)
	}
	defer log.Close()
	var out bytes.Buffer
	if _, err := stdcopy.StdCopy(&out, &out, log); err != nil {
		w.t.Fatal(err)
	}
	return out.String()
}
