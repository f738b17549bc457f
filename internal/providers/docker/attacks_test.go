package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"

	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/providers/sessiondir"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// made is an image: busybox with another configuration, and with files, given by their headers.
func made(t *testing.T, endpoint string, c *container.Config, files ...tar.Header) string {
	t.Helper()
	cl := engine.Client(t, endpoint)
	id, err := cl.ContainerCreate(t.Context(), &container.Config{Image: busybox, Cmd: []string{"true"}}, nil, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cl.ContainerRemove(context.Background(), id.ID, container.RemoveOptions{Force: true}) }()
	if len(files) > 0 {
		var b bytes.Buffer
		tw := tar.NewWriter(&b)
		for _, h := range files {
			content := h.PAXRecords["content"]
			h.PAXRecords, h.Mode, h.Size = nil, 0o644, int64(len(content))
			if err := tw.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			if _, err := tw.Write([]byte(content)); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(tw.Close(), cl.CopyToContainer(t.Context(), id.ID, "/", &b, container.CopyToContainerOptions{})); err != nil {
			t.Fatal(err)
		}
	}
	i, err := cl.ContainerCommit(t.Context(), id.ID, container.CommitOptions{Config: c})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = cl.ImageRemove(context.Background(), i.ID, image.RemoveOptions{Force: true, PruneChildren: true})
	})
	return i.ID
}

func file(name, content string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, PAXRecords: map[string]string{"content": content}}
}

func paths(all ...string) map[string]struct{} {
	out := map[string]struct{}{}
	for _, p := range all {
		out[p] = struct{}{}
	}
	return out
}

// below are the paths below a directory, with their types.
func below(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && path != dir {
			out = append(out, d.Type().String()[:1]+path[len(dir):])
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return out
}

// TestAnImageThatMeansNoGood in all that can be withstood: volumes at odd places, variables, an entry point, a health check, a
// user, labels of ours.
func TestAnImageThatMeansNoGood(t *testing.T) {
	w := newWorld(t, engine.Endpoint(t))
	id := made(t, w.endpoint, &container.Config{
		Volumes: paths("/laufwerk", "/laufwerk/login", "/workspace", "/tmp", "/run/a/b", "/var", "/data/", "/data/../more", "/a:b", "/etc"),
		Env: []string{
			"PATH=/nowhere", "LD_PRELOAD=/x.so", "HOME=/h", "TMPDIR=/t", "GODEBUG=inittrace=1", "GOMEMLIMIT=1", "GOGC=off", "GOTRACEBACK=crash",
			"LAUFWERK_MARK=m", "LAUFWERK_HOME=/x", "OPENAI_API_KEY=k", "CODEX_API_KEY=k", "KEPT=yes",
		},
		Entrypoint: []string{"/nowhere"}, Healthcheck: &container.HealthConfig{Test: []string{"CMD", "touch", "/workspace/healthy"}, Interval: time.Second},
		User: "nobody-knows", StopSignal: "SIGCONT", WorkingDir: "/proc", OnBuild: []string{"RUN false"},
		Labels: map[string]string{owned.LabelOwner: "x", owned.LabelClaim: "y", owned.LabelRun: "z"},
	})
	def := w.target(`{"image":"` + id + `"}`)
	if missing := w.Ready(w.ctx(), def, providers.Need{Workspace: true}); len(missing) > 0 {
		t.Errorf("%+v", missing)
	}
	in, sb := w.open(def, false)
	script := `export PATH=/bin:/usr/bin; env | grep -c -e API_KEY -e LAUFWERK_HOME; echo $KEPT $HOME $TMPDIR $LAUFWERK_MARK $PWD; echo kept >kept
mkdir /laufwerk/mine /var/mine /data/mine /a:b/mine && mv /laufwerk/ops /laufwerk/other; rm -f /laufwerk/laufwerk; umount /laufwerk/home; ls /laufwerk`
	said, _ := w.run(in, sb, "1", "/bin/sh", "-c", script)
	if want := "0\nyes /laufwerk/home /tmp " + in.Claim + "/1 /workspace\nhome\nlaufwerk\nlogin\nmine\nops\n"; !strings.HasPrefix(said, want) {
		t.Errorf("%q, want %q", said, want)
	}
	if said, code := w.run(in, sb, "2", "/bin/cat", "kept"); said != "kept\n" || code != 0 {
		t.Errorf("%q %d", said, code)
	}
	if got := below(t, w.workspace); !slices.Equal(got, []string{"-/kept"}) {
		t.Errorf("%q", got)
	}
	for _, c := range engine.Containers(t, w.endpoint, owned.LabelClaim+"="+in.Claim) {
		for _, m := range c.Mounts {
			if m.Type == "volume" {
				t.Errorf("a volume: %+v", m)
			}
		}
	}
	if r := w.Delete(w.ctx(), in); r.Done != providers.Yes {
		t.Errorf("%+v", r)
	}
	w.absent(in)
}

// TestAnImageThatIsRefused: where its volumes or links would put what sessions mount somewhere else, or its users a session
// into another group.
func TestAnImageThatIsRefused(t *testing.T) {
	w := newWorld(t, engine.Endpoint(t))
	for _, c := range []struct {
		name, says string
		config     container.Config
		files      []tar.Header
	}{
		{"volume", "a volume at /workspace/a/b", container.Config{Volumes: paths("/workspace/a/b")}, nil},
		{"link", "a link where sessions need a directory", container.Config{}, []tar.Header{{Typeflag: tar.TypeSymlink, Name: "laufwerk", Linkname: "/workspace"}}},
		{"group", "into groups besides its own", container.Config{}, []tar.Header{
			file("etc/passwd", w.user()+":x:0:0::/:/bin/sh\n"), file("etc/group", w.user()+":x:0:\n"),
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			def := w.target(`{"image":"` + made(t, w.endpoint, &c.config, c.files...) + `"}`)
			if c.files == nil { // else only the start of a container shows it
				missing := w.Ready(w.ctx(), def, providers.Need{Workspace: true})
				if len(missing) != 1 || !strings.Contains(missing[0].Message, c.says) {
					t.Errorf("%+v", missing)
				}
				return
			}
			in, sb := w.open(def, false)
			s, _, _ := read(in)
			_, err := supervise.Start(w.ctx(), sb.Launcher(), filepath.Join(s.Dir, sessiondir.Ops, "1"), supervise.Spec{
				Argv: []string{"true"}, Dir: "/", Mark: supervise.Mark(s.Mark, "1"),
			})
			if !failure.Is(err, failure.NotReady) || !errors.Is(err, supervise.ErrRefused) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v", err)
			}
			if r := w.Delete(w.ctx(), in); r.Done != providers.Yes {
				t.Errorf("%+v", r)
			}
			w.absent(in)
		})
	}
}

// user is the user of a container, as a number.
func (w *world) user() string {
	e, err := w.c.Connect(w.ctx(), "")
	if err != nil {
		w.t.Fatal(err)
	}
	inside, _, _ := w.Provider.user(e.Facts())
	uid, _, _ := strings.Cut(inside, ":")
	return uid
}
