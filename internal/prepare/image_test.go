package prepare

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"github.com/laufwerk/laufwerk/internal/agent/codex"
	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/imagecache"
	"github.com/laufwerk/laufwerk/internal/providers/docker"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/store"
	"github.com/laufwerk/laufwerk/internal/targets"
	"github.com/laufwerk/laufwerk/internal/testkit"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

const testBase = "laufwerk-test/base:1"

// tiny is a program that installs in a second and from no registry.
func tiny(version string) imagecache.Program {
	return imagecache.Program{
		Name: "tiny", Title: "Tiny", Version: version, Says: "tiny " + version, Install: []string{"install", "--frozen-lockfile", "--offline", "--ignore-scripts"},
		Binary: func(platform string) string {
			return map[string]string{"linux/amd64": "bin/tool", "linux/arm64": "bin/tool"}[platform]
		},
		Files: []imagecache.File{
			{Path: "package.json", Mode: 0o644, Data: []byte(`{"name":"tiny","private":true}`)},
			{Path: "pnpm-lock.yaml", Mode: 0o644, Data: []byte("lockfileVersion: '9.0'\n\nsettings:\n  autoInstallPeers: true\n  excludeLinksFromLockfile: false\n\nimporters:\n\n  .: {}\n")},
			{Path: "bin/tool", Mode: 0o755, Data: []byte("#!/bin/sh\necho tiny " + version + "\n")},
		},
	}
}

// imageFixture is a home with an image cache, and an engine.
type imageFixture struct {
	t        testing.TB
	endpoint string
	binary   string
	home     *store.Home
	store    *store.Store
	program  imagecache.Program
	settings string // the endpoint that they lead to; "" is none

	mu   sync.Mutex
	said strings.Builder
}

func openImageFixture(t testing.TB, dir, endpoint, binary string) *imageFixture {
	t.Helper()
	home, err := store.OpenHome(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	return &imageFixture{t: t, endpoint: endpoint, binary: binary, home: home, store: store.Open(home, time.Now, "test"), program: tiny("1.0.0")}
}

// newImageFixture is on the shared engine, where nothing of it is left behind.
func newImageFixture(t testing.TB) *imageFixture {
	t.Helper()
	w := openImageFixture(t, filepath.Join(t.TempDir(), "home"), engine.Endpoint(t), testkit.Binary(t))
	t.Cleanup(w.clear)
	return w
}

// clear removes everything of this fixture from the engine: images made in one second are listed in any order, and one goes only
// after those that were built on it.
func (w *imageFixture) clear() {
	engine.Remove(w.t, w.endpoint, owned.LabelOwner+"="+w.owner())
	for list := w.images(); len(list) > 0; {
		left := slices.DeleteFunc(slices.Clone(list), func(i image.Summary) bool { return w.remove(i) == nil })
		if len(left) == len(list) {
			users, _ := w.client().ContainerList(w.ctx(), container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("ancestor", left[0].ID))})
			w.t.Errorf("remove %s: %v; containers that use it: %+v", left[0].ID, w.remove(left[0]), users)
			return
		}
		list = left
	}
}

func (w *imageFixture) remove(i image.Summary) error {
	for _, name := range append(slices.DeleteFunc(slices.Clone(i.RepoTags), func(s string) bool { return s == "<none>:<none>" }), i.ID) {
		if _, err := w.client().ImageRemove(w.ctx(), name, image.RemoveOptions{Force: true, PruneChildren: true}); err != nil && !errdefs.IsNotFound(err) {
			return err
		}
	}
	return nil
}

func (w *imageFixture) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	w.t.Cleanup(cancel)
	return ctx
}

func (w *imageFixture) client() *client.Client { return engine.Client(w.t, w.endpoint) }

func (w *imageFixture) owner() string {
	w.t.Helper()
	id, err := w.store.ID(w.ctx())
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

func (w *imageFixture) cache() imagecache.Cache {
	return docker.Images().Cache(filepath.Join(w.home.Dir(), "images"), w.program)
}

func connect(ctx context.Context, host string) (*dockerengine.Engine, error) {
	return dockerengine.Connect(ctx, dockerengine.Endpoint{Host: host, Origin: "the test"})
}

func (w *imageFixture) driver() *claims.Driver {
	engines := dockerengine.Engines{Connect: func(ctx context.Context, host string) (*dockerengine.Engine, error) {
		return connect(ctx, cmp.Or(host, w.settings))
	}}
	return claims.NewDriver(claims.Options{
		Store: w.store, Now: time.Now, Owner: w.store.ID,
		Resources: func(kind claims.Kind, provider string) (resource.Manager, bool) {
			return Containers{Engines: engines, Now: time.Now}, kind == claims.KindPreparation && provider == ContainerProvider
		},
	})
}

func (w *imageFixture) options() preparation {
	return preparation{
		Cache: w.cache(), Engine: func(ctx context.Context) (*dockerengine.Engine, error) { return connect(ctx, w.endpoint) }, Claims: w.driver(),
		Binary: func(context.Context, string) (string, error) { return w.binary, nil }, Now: time.Now, Command: "test", Wait: 8 * time.Minute, Image: testBase,
		Say: func(format string, args ...any) {
			w.mu.Lock()
			defer w.mu.Unlock()
			fmt.Fprintf(&w.said, format, args...)
		},
	}
}

// prepare prepares, and gives what was told meanwhile.
func (w *imageFixture) prepare(o preparation) (preparedImage, string) {
	w.t.Helper()
	w.said.Reset()
	r, err := o.run(w.ctx())
	if err != nil {
		w.t.Fatalf("%v\n%s\n%s", err, w.said.String(), w.logs())
	}
	w.settled()
	return r, w.said.String()
}

func (w *imageFixture) logs() string {
	var out strings.Builder
	all, _ := filepath.Glob(filepath.Join(w.cache().Dir, "logs", "*.log"))
	for _, path := range all {
		b, _ := os.ReadFile(path)
		out.Write(b)
	}
	return out.String()
}

// settled holds that nothing but images is left of preparations.
func (w *imageFixture) settled() {
	w.t.Helper()
	if left := engine.Containers(w.t, w.endpoint, owned.LabelOwner+"="+w.owner()); len(left) > 0 {
		w.t.Errorf("%d containers are left: %v", len(left), left[0].Names)
	}
	list, err := w.driver().List(w.ctx(), claims.Filter{Outstanding: true})
	if err != nil || len(list) > 0 {
		w.t.Errorf("claims are left: %+v, %v", list, err)
	}
	for _, dir := range []string{"stage", "building"} {
		if left, _ := os.ReadDir(filepath.Join(w.cache().Dir, dir)); len(left) > 0 {
			w.t.Errorf("%s has %v", dir, left)
		}
	}
}

// images are those of this fixture's cache on the engine, named or not: those that this fixture's builds have made.
func (w *imageFixture) images() (out []image.Summary) {
	w.t.Helper()
	list, err := w.client().ImageList(w.ctx(), image.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	_, suffix, _ := strings.Cut(w.cache().Tag("sha256:"+strings.Repeat("0", 64)), ":"+strings.Repeat("0", 16))
	for _, i := range list {
		if slices.ContainsFunc(i.RepoTags, func(tag string) bool { return strings.HasSuffix(tag, suffix) }) || i.Labels[testOwner] == w.imageOwner() {
			out = append(out, i)
		}
	}
	return out
}

// recipeImages are the ids of this fixture's images of a recipe: those that are named for its cache, and those without a name.
func (w *imageFixture) recipeImages(recipe string) (out []string) {
	w.t.Helper()
	list, err := w.client().ImageList(w.ctx(), image.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, i := range list {
		named := slices.DeleteFunc(slices.Clone(i.RepoTags), func(s string) bool { return s == "<none>:<none>" })
		if i.Labels[imagecache.LabelRecipe] == recipe && (len(named) == 0 || slices.Contains(named, w.cache().Tag(recipe))) {
			out = append(out, i.ID)
		}
	}
	return out
}

// testOwner labels base images of tests; what is built from them inherits it.
const testOwner = "test.owner"

// imageOwner is one run of one test: another run of it, at the same time on the same engine, makes images of its own.
func (w *imageFixture) imageOwner() string { return fmt.Sprintf("%s-%d", w.t.Name(), os.Getpid()) }

// base builds a base image with instructions, named for this test.
func (w *imageFixture) base(name string, instructions ...string) string {
	w.t.Helper()
	return w.baseFrom(testBase, name, "", instructions...)
}

// baseFrom is base on another image, with a directory of this machine in the build's context.
func (w *imageFixture) baseFrom(from, name, dir string, instructions ...string) string {
	w.t.Helper()
	name = "laufwerk-test-own/" + strings.ToLower(regexp.MustCompile(`[^A-Za-z0-9]`).ReplaceAllString(w.imageOwner(), "-")) + ":" + name
	file := strings.Join(append([]string{"FROM " + from, fmt.Sprintf("LABEL %s=%q", testOwner, w.imageOwner())}, instructions...), "\n")
	var b bytes.Buffer
	a := tar.NewWriter(&b)
	_ = a.WriteHeader(&tar.Header{Name: "Dockerfile", Mode: 0o644, Size: int64(len(file))})
	_, _ = a.Write([]byte(file))
	if dir != "" {
		if err := a.AddFS(os.DirFS(dir)); err != nil {
			w.t.Fatal(err)
		}
	}
	_ = a.Close()
	r, err := w.client().ImageBuild(w.ctx(), &b, build.ImageBuildOptions{Tags: []string{name}, Remove: true, ForceRemove: true})
	if err != nil {
		w.t.Fatal(err)
	}
	defer r.Body.Close()
	if out, err := io.ReadAll(r.Body); err != nil || strings.Contains(string(out), "errorDetail") {
		w.t.Fatalf("%v\n%s", err, out)
	}
	return name
}

func (w *imageFixture) inspect(ref string) image.InspectResponse {
	w.t.Helper()
	i, err := w.client().ImageInspect(w.ctx(), ref)
	if err != nil {
		w.t.Fatal(err)
	}
	return i
}

// snapshot is every file below a directory with its time, lock files left out.
func snapshot(t testing.TB, dir string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || strings.Contains(path, "/locks") {
			return err
		}
		info, err := d.Info()
		if err == nil {
			fmt.Fprintln(&out, path, info.Mode(), info.Size(), info.ModTime().UnixNano())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestDockerImage(t *testing.T) {
	w := newImageFixture(t)
	o := w.options()
	// What the base was made from must not make an image of ours out of it, or give it an owner.
	o.Image = w.base("labelled", `LABEL dev.laufwerk.owner="somebody" dev.laufwerk.claim="c1" dev.laufwerk.recipe="sha256:00" kept="yes"`, `ENV KEPT="a b"`, "USER 1234:1234", `CMD ["true"]`)
	r, said := w.prepare(o)
	if r.Reused || r.Version != "1.0.0" || r.Base.Name != o.Image || r.Manifest != w.cache().StandardFile() || !strings.Contains(said, "installing Tiny 1.0.0") {
		t.Errorf("%+v\n%s", r, said)
	}
	base, made := w.inspect(o.Image), w.inspect(r.Image)
	if n := len(base.RootFS.Layers); len(made.RootFS.Layers) != n+1 || !slices.Equal(made.RootFS.Layers[:n], base.RootFS.Layers) {
		t.Errorf("layers %v on %v", made.RootFS.Layers, base.RootFS.Layers)
	}
	if !slices.Equal(made.Config.Env, base.Config.Env) || !slices.Equal(made.Config.Cmd, base.Config.Cmd) || made.Config.User != base.Config.User || made.Config.WorkingDir != base.Config.WorkingDir {
		t.Errorf("the configuration %+v is not the base's %+v", made.Config, base.Config)
	}
	for name, value := range made.Config.Labels {
		if strings.HasPrefix(name, owned.LabelPrefix) && value != "" && name != imagecache.LabelRecipe && name != imagecache.LabelBootstrap && name != imagecache.LabelBuild {
			t.Errorf("the label %s=%s is left", name, value)
		}
	}
	if l := made.Config.Labels; l[imagecache.LabelRecipe] != r.Recipe || l["kept"] != "yes" {
		t.Errorf("%v", l)
	}
	if err := w.cache().Carries(made); err != nil {
		t.Error(err)
	}
	if err := w.cache().Carries(base); !failure.Is(err, failure.NotReady) {
		t.Errorf("the base carries it: %v", err)
	}

	before := snapshot(t, w.home.Dir())
	started := time.Now()
	again, said := w.prepare(o)
	t.Logf("warm: %v", time.Since(started))
	if !again.Reused || again.Image != r.Image || said != "" {
		t.Errorf("%+v\n%s", again, said)
	}
	if after := snapshot(t, w.home.Dir()); after != before {
		t.Errorf("a warm preparation wrote:\n%s\n%s", before, after)
	}
	o.Image = "" // the one that the standard image has
	if again, _ := w.prepare(o); !again.Reused || again.Image != r.Image {
		t.Errorf("%+v", again)
	}
}

func TestDockerManifests(t *testing.T) {
	w := newImageFixture(t)
	o := w.options()
	o.Manifest = filepath.Join(t.TempDir(), "a folder", "codex.json")
	first, _ := w.prepare(o)
	if first.Reused || first.Manifest != o.Manifest {
		t.Errorf("%+v", first)
	}
	if _, err := w.cache().Standard(); !failure.Is(err, failure.NotReady) {
		t.Errorf("an image for a manifest became the standard one: %v", err)
	}
	r, err := w.cache().Load(o.Manifest, first.Base.ID)
	if err != nil || r.Image != first.Image {
		t.Errorf("%+v, %v", r, err)
	}
	o.Manifest = "" // the same recipe: the same image
	second, said := w.prepare(o)
	if !second.Reused || second.Image != first.Image || strings.Contains(said, "installing") {
		t.Errorf("%+v\n%s", second, said)
	}
	if r, err := w.cache().Standard(); err != nil || r.Image != first.Image {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestDockerStaleReceipts(t *testing.T) {
	w := newImageFixture(t)
	first := w.base("1", "ENV N=1")
	o := w.options()
	o.Image = first
	made, _ := w.prepare(o)
	retag := func(from string) {
		if err := w.client().ImageTag(w.ctx(), from, o.Image); err != nil {
			t.Fatal(err)
		}
	}
	oldBase := w.inspect(first).ID
	next := w.base("2", "ENV N=2")
	for _, c := range []struct {
		name    string
		change  func()
		install bool // it has to be made from the start
	}{
		{name: "the receipt is gone: the image is found again", change: func() {
			_ = os.Remove(w.cache().StandardFile())
			_ = os.RemoveAll(filepath.Join(w.cache().Dir, "made"))
		}},
		{name: "the receipt is damaged", change: func() { _ = os.WriteFile(w.cache().StandardFile(), []byte("{"), 0o600) }},
		{name: "the base image's name moved on", change: func() { retag(next) }, install: true},
		{name: "and back", change: func() { retag(oldBase) }},
		{name: "the image is gone", change: func() {
			if _, err := w.client().ImageRemove(w.ctx(), made.Image, image.RemoveOptions{Force: true, PruneChildren: true}); err != nil {
				t.Fatal(err)
			}
		}, install: true},
		{name: "the recipe changed", change: func() { w.program = tiny("2.0.0"); o.Cache = w.cache() }, install: true},
		{name: "its name is another image's", change: func() {
			if err := w.client().ImageTag(w.ctx(), oldBase, made.Tag); err != nil {
				t.Fatal(err)
			}
			_ = os.RemoveAll(filepath.Join(w.cache().Dir, "made"))
			_ = os.Remove(w.cache().StandardFile())
		}, install: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.change()
			r, said := w.prepare(o)
			if strings.Contains(said, "installing") != c.install {
				t.Errorf("installed: %t\n%s", !c.install, said)
			}
			if again, _ := w.prepare(o); !again.Reused || again.Image != r.Image {
				t.Errorf("%+v after %+v", again, r)
			}
			if i := w.inspect(r.Tag); i.ID != r.Image {
				t.Errorf("%s is %s and not %s", r.Tag, i.ID, r.Image)
			}
			made = r
		})
	}
}

// TestDockerWithoutItsBase: a base image that was removed meanwhile is not fetched while nothing says that it changed.
func TestDockerWithoutItsBase(t *testing.T) {
	w := newImageFixture(t)
	o := w.options()
	o.Image = w.base("gone", "ENV N=1")
	r, _ := w.prepare(o)
	if _, err := w.client().ImageRemove(w.ctx(), o.Image, image.RemoveOptions{}); err != nil {
		t.Fatal(err)
	}
	if again, said := w.prepare(o); !again.Reused || again.Image != r.Image {
		t.Errorf("%+v\n%s", again, said)
	}
}

func TestDocker64AtOnce(t *testing.T) {
	w := newImageFixture(t)
	var wg sync.WaitGroup
	results := make([]preparedImage, 64)
	for i := range results {
		wg.Go(func() {
			var err error
			if results[i], err = w.options().run(w.ctx()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	w.settled()
	built := 0
	for _, r := range results {
		if r.Image != results[0].Image {
			t.Errorf("%s and %s", r.Image, results[0].Image)
		}
		if !r.Reused {
			built++
		}
	}
	said := w.said.String()
	if built != 1 || strings.Count(said, "installing") != 1 || strings.Count(said, "building") != 1 || len(w.images()) != 1 {
		t.Errorf("%d of 64 built, %d images\n%s", built, len(w.images()), said)
	}
	if !strings.Contains(said, fmt.Sprintf("waiting for process %d (test)", os.Getpid())) {
		t.Errorf("the holder is not named:\n%s", said)
	}
}

func TestDockerNamesWhatABaseLacks(t *testing.T) {
	w := newImageFixture(t)
	for ref, c := range map[string]struct {
		kind failure.Kind
		says []string
	}{
		"laufwerk-test/base-no-git:1":                   {failure.NotReady, []string{"lacks git:"}},
		"laufwerk-test/base-no-node:1":                  {failure.NotReady, []string{"lacks node"}},
		"laufwerk-test/base-no-setsid:1":                {failure.NotReady, []string{"lacks setsid:"}},
		"laufwerk-test/base-no-pnpm:1":                  {failure.NotReady, []string{"lacks pnpm (npm would do):"}},
		"laufwerk-test/sh:1":                            {failure.NotReady, []string{"bash", "git", "setsid", "node", "pnpm"}},
		"laufwerk-test/bare:1":                          {failure.NotReady, []string{"bash", "git", "setsid", "node", "pnpm"}},
		w.base("onbuild", "ONBUILD RUN touch /tmp/ran"): {failure.NotReady, []string{"ONBUILD"}},
		w.base("volume", `VOLUME /opt`):                 {failure.NotReady, []string{"a volume at /opt"}},
		"laufwerk-test-nosuch.invalid/x:1":              {failure.NotReady, []string{"laufwerk-test-nosuch.invalid/x:1", "pulled"}},
	} {
		t.Run(ref, func(t *testing.T) {
			o := w.options()
			o.Image = ref
			_, err := o.run(w.ctx())
			if !failure.Is(err, c.kind) || failure.As(err).Hint == "" && c.says[0] != "ONBUILD" && !strings.Contains(c.says[0], "volume") {
				t.Errorf("%v", err)
			}
			for _, s := range c.says {
				if err == nil || !strings.Contains(err.Error(), s) {
					t.Errorf("%v does not say %q", err, s)
				}
			}
			w.settled()
		})
	}
}

func TestDockerWhatFailsIsSaid(t *testing.T) {
	w := newImageFixture(t)
	for name, c := range map[string]struct {
		change func(*imagecache.Program)
		says   string
	}{
		"the installation": {func(p *imagecache.Program) {
			p.Install = []string{"install", "--frozen-lockfile", "--offline", "--no-such-option-at-all"}
		}, "could not install Tiny"},
		"the program": {func(p *imagecache.Program) { p.Says = "tiny 9" }, `printed "tiny 1.0.0" instead of "tiny 9"`},
		"no program":  {func(p *imagecache.Program) { p.Binary = func(string) string { return "bin/none" } }, "--version"},
	} {
		t.Run(name, func(t *testing.T) {
			w.program = tiny("1.0.0")
			c.change(&w.program)
			_, err := w.options().run(w.ctx())
			if err == nil || !strings.Contains(err.Error(), c.says) || failure.KindOf(err) != failure.NotReady {
				t.Fatalf("%v", err)
			}
			if name == "the installation" {
				path := failure.As(err).Paths[0]
				if b, rerr := os.ReadFile(path); rerr != nil || !bytes.Contains(b, []byte("no-such-option")) || !strings.Contains(err.Error(), path) {
					t.Errorf("the log %s: %s, %v; %v", path, b, rerr, err)
				}
			}
			w.settled()
			if n := len(w.images()); n > 0 {
				t.Errorf("%d images are left", n)
			}
			if _, err := w.cache().Standard(); err == nil {
				t.Error("there is a receipt")
			}
		})
	}
}

// TestDockerNoCredential looks for every word that an installation was told, and for the worker's own, in everything that an
// image consists of, and in everything that stays on this host.
func TestDockerNoCredential(t *testing.T) {
	w := newImageFixture(t)
	const canary = "canary-5ecre7"
	t.Setenv("OPENAI_API_KEY", canary+"-environment")
	o := w.options()
	o.Settings = installSettings{
		CA:    []byte("# " + canary + "-ca\n"),
		NPMRC: []byte("//registry.example/:_authToken=" + canary + "-token\n//registry.example/:_password=\"" + canary + "-password\"\n"),
		Env:   map[string]string{"https_proxy": "http://user:" + canary + "-proxy@127.0.0.1:9/", "npm_config_registry": "http://127.0.0.1:9/" + canary + "-registry/"},
	}
	// A package manager that tells all that it knows.
	o.Image = w.base("talks", `RUN printf '#!/bin/sh\nif [ "$1" = --version ]; then echo 10.0.0; else env; cat /laufwerk/private/*; fi\n' >/usr/local/bin/pnpm.new && chmod 755 /usr/local/bin/pnpm.new && mv /usr/local/bin/pnpm.new /usr/local/bin/pnpm`)
	r, _ := w.prepare(o)

	saved, err := w.client().ImageSave(w.ctx(), []string{r.Image})
	if err != nil {
		t.Fatal(err)
	}
	defer saved.Close()
	layers := 0
	var walk func(name string, in io.Reader)
	walk = func(name string, in io.Reader) {
		a := tar.NewReader(in)
		for {
			h, err := a.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(h.Name, "layer.tar") {
				layers++
				walk(name+h.Name+"!", a)
				continue
			}
			for _, s := range []string{h.Name, h.Linkname, fmt.Sprint(h.PAXRecords)} {
				if strings.Contains(s, canary) {
					t.Errorf("%s%s: %s", name, h.Name, s)
				}
			}
			if b, _ := io.ReadAll(a); bytes.Contains(b, []byte(canary)) || bytes.Contains(b, []byte(w.home.Dir())) {
				t.Errorf("%s%s holds a canary", name, h.Name)
			}
			if strings.Contains(h.Name, ".harness-bootstrap/") && (h.Uid != 0 || h.Gid != 0 || h.Mode&0o7022 != 0 && h.Typeflag != tar.TypeSymlink) {
				t.Errorf("%s belongs to %d:%d, mode %o", h.Name, h.Uid, h.Gid, h.Mode)
			}
		}
	}
	walk("", saved)
	if want := len(w.inspect(r.Image).RootFS.Layers); layers < want {
		t.Errorf("%d layers were read, not %d", layers, want)
	}
	// On this host, the log may have what is no secret: the addresses.
	log := w.logs()
	for _, s := range []string{"-token", "-password", "-proxy", "-environment"} {
		if strings.Contains(log, canary+s) {
			t.Errorf("the log has %s%s:\n%s", canary, s, log)
		}
	}
	if !strings.Contains(log, "npm_config_userconfig=/laufwerk/private/npmrc") || !strings.Contains(log, "-registry/") {
		t.Errorf("the installation was not told:\n%s", log)
	}
	err = filepath.WalkDir(w.home.Dir(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, ".log") {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(canary)) {
			t.Errorf("%s holds a canary", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestDockerInstallsWithinItsLimits: the network and the limits of an installation are those that were asked for.
func TestDockerInstallsWithinItsLimits(t *testing.T) {
	w := newImageFixture(t)
	o := w.options()
	o.Image = w.base("tells", `RUN printf '#!/bin/sh\nif [ "$1" = --version ]; then echo 10.0.0; exit; fi\necho net $(ls /sys/class/net)\ncat /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu.max /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null\nexit 0\n' >/tmp/pnpm && chmod 755 /tmp/pnpm && mv /tmp/pnpm /usr/local/bin/pnpm`)
	o.Network, o.Resources = "none", targets.Resources{CPUs: 0.5, MemoryBytes: 512 << 20, PIDs: 345}
	w.prepare(o)
	for _, line := range []string{"net lo", "50000", "536870912", "345"} {
		if log := "\n" + w.logs(); !strings.Contains(log, "\n"+line+"\n") && !strings.Contains(log, "\n"+line+" ") {
			t.Errorf("the installation had no %q:\n%s", line, log)
		}
	}
}

func TestImagesPrune(t *testing.T) {
	w := newImageFixture(t)
	other := newImageFixture(t) // another home on the same engine: the same recipes, another cache
	otherMade, _ := other.prepare(other.options())
	var made []preparedImage
	manifest := filepath.Join(t.TempDir(), "kept.json")
	for n := range 5 {
		o := w.options()
		o.Image = w.base(fmt.Sprint(n), fmt.Sprintf("ENV N=%d", n))
		if n == 3 {
			o.Manifest = manifest
		}
		r, _ := w.prepare(o)
		made = append(made, r)
	}
	e, err := connect(w.ctx(), w.endpoint)
	if err != nil {
		t.Fatal(err)
	}
	need := map[string][]string{made[2].Image: {"c123"}}
	used := func(context.Context) (map[string][]string, error) { return need, nil }
	removed := func(dry bool) (out []string) {
		t.Helper()
		list, err := imagecache.Caches{w.cache()}.Prune(w.ctx(), e, used, dry, "test")
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list {
			if p.Removed {
				out = append(out, p.ID)
			} else if p.Why == "" {
				t.Errorf("%s is kept for no reason", p.ID)
			}
		}
		slices.Sort(out)
		return out
	}
	there := func() map[string]bool {
		out := map[string]bool{}
		for _, r := range append(slices.Clone(made), otherMade) {
			_, err := w.client().ImageInspect(w.ctx(), r.Image)
			out[r.Image] = err == nil
		}
		return out
	}
	want := []string{made[0].Image, made[1].Image}
	slices.Sort(want)
	if got := removed(true); !slices.Equal(got, want) || slices.Contains(slices.Collect(maps.Values(there())), false) {
		t.Errorf("dry: %v, want %v; %v", got, want, there())
	}
	// The first one has got another name; the second one a container.
	named := fmt.Sprintf("laufwerk-test-own/named:%d", os.Getpid())
	if err := w.client().ImageTag(w.ctx(), made[0].Image, named); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = w.client().ImageRemove(w.ctx(), named, image.RemoveOptions{}) }()
	made1, err := w.client().ContainerCreate(w.ctx(), &container.Config{Image: made[1].Image, Cmd: []string{"true"}, Labels: map[string]string{owned.LabelOwner: w.owner()}}, nil, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := removed(false); !slices.Equal(got, []string{made[0].Image}) || slices.Contains(slices.Collect(maps.Values(there())), false) {
		t.Errorf("%v; %v", got, there())
	}
	if err := w.client().ContainerRemove(w.ctx(), made1.ID, container.RemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	need = nil
	if err := os.Remove(manifest); err != nil {
		t.Fatal(err)
	}
	want = []string{made[1].Image, made[2].Image, made[3].Image}
	slices.Sort(want)
	if got := removed(false); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if now := there(); !now[made[4].Image] || !now[otherMade.Image] || now[made[1].Image] || now[made[2].Image] {
		t.Errorf("%v", now)
	}
	if got := removed(false); len(got) > 0 {
		t.Errorf("%v", got)
	}
	// A receipt that cannot be read may name anything.
	note := filepath.Join(w.cache().Dir, "elsewhere", "broken.json")
	if err := os.WriteFile(note, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := w.options()
	o.Image = w.base("last", "ENV N=last")
	w.prepare(o)
	if got := removed(false); len(got) > 0 {
		t.Errorf("%v", got)
	}
	if err := os.Remove(note); err != nil {
		t.Fatal(err)
	}
	if got := removed(false); !slices.Equal(got, []string{made[4].Image}) {
		t.Errorf("%v", got)
	}
}

// fromRegistry are the settings that this machine needs to reach a registry.
func fromRegistry(t *testing.T) installSettings {
	t.Helper()
	vars := map[string]string{}
	for _, kv := range os.Environ() {
		k, v, _ := strings.Cut(kv, "=")
		vars[k] = v
	}
	s, err := InstallationSettings{}.read(vars)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestDockerBringsPNPM: the public images of Node.js have npm, and no pnpm.
func TestDockerBringsPNPM(t *testing.T) {
	w := newImageFixture(t)
	out, err := exec.Command("npm", "root", "-g").Output()
	npm := strings.TrimSpace(string(out))
	testkit.Need(t, "npm", err == nil && npm != "", "it comes with Node.js")
	o := w.options()
	o.Image = w.baseFrom("laufwerk-test/base-no-pnpm:1", "npm", filepath.Join(npm, "npm"), "COPY . /usr/local/lib/npm", "RUN rm /usr/local/lib/npm/Dockerfile && ln -s ../lib/npm/bin/npm-cli.js /usr/local/bin/npm && npm --version")
	o.Settings = fromRegistry(t)
	if r, said := w.prepare(o); r.Reused || !strings.Contains(said, "installing pnpm ") {
		t.Errorf("%+v\n%s", r, said)
	}
}

// TestDockerCodex prepares the pinned Codex, once for all tests of this checkout: the cache stays.
func TestDockerCodex(t *testing.T) {
	w := newImageFixture(t)
	dir, err := filepath.Abs("../../.tools/test/images")
	if err != nil {
		t.Fatal(err)
	}
	o := w.options()
	o.Cache = docker.Images().Cache(dir, imagecache.NewProgram(codex.New()))
	o.Settings = fromRegistry(t)
	started := time.Now()
	r, said := w.prepare(o)
	t.Logf("%v, reused: %t\n%s", time.Since(started), r.Reused, said)
	if r.Version != codex.Version || r.Program != codex.Name {
		t.Errorf("%+v", r)
	}
	binary := o.Cache.Program.Binary("linux/" + runtime.GOARCH)
	made, err := w.client().ContainerCreate(w.ctx(), &container.Config{
		Image: r.Image, User: "1234:20", Labels: map[string]string{owned.LabelOwner: w.owner()},
		// The tool that new models need, and whoever changes what is installed.
		Entrypoint: []string{"bash", "-ec", `cd "$0"; test -x "$(dirname "$1")/codex-code-mode-host"; ! touch "$1" 2>/dev/null; ! mkdir new 2>/dev/null; exec "$1" --version`, o.Cache.Prefix, binary},
	}, &container.HostConfig{ReadonlyRootfs: true, NetworkMode: "none", CapDrop: []string{"ALL"}, Tmpfs: map[string]string{"/tmp": "mode=1777"}}, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	done, failed := w.client().ContainerWait(w.ctx(), made.ID, container.WaitConditionNextExit)
	if err := w.client().ContainerStart(w.ctx(), made.ID, container.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case end := <-done:
		logs, err := w.client().ContainerLogs(w.ctx(), made.ID, container.LogsOptions{ShowStdout: true, ShowStderr: true})
		if err != nil {
			t.Fatal(err)
		}
		defer logs.Close()
		if b, _ := io.ReadAll(logs); end.StatusCode != 0 || !bytes.Contains(b, []byte("codex-cli "+codex.Version)) {
			t.Errorf("exit %d\n%s", end.StatusCode, b)
		}
	case err := <-failed:
		t.Fatal(err)
	}
}

// TestDockerFaults loses, cuts and falsifies what the engine says to a preparation. With the engine back, the next one leaves
// one image and nothing else.
func TestDockerFaults(t *testing.T) {
	const another = "another engine from then on"
	first := newImageFixture(t)
	base := first.quickBase()
	n := 0
	for _, op := range []engine.Operation{engine.Create, engine.Inspect, engine.Start, engine.ExecCreate, engine.ExecStart, engine.ExecInspect, engine.GetArchive, engine.Build, engine.ImageTag, engine.ImageInspect, engine.Delete} {
		faults := engine.Faults()
		faults[another] = engine.Fault{} // made with its proxy
		for name, fault := range faults {
			n++
			version := fmt.Sprintf("2.0.%d", n)
			if strings.Contains(name, "before the effect") || name == "request lost" || name == "status 500 after the effect" {
				continue // they differ from others to the engine's client alone
			}
			t.Run(string(op)+", "+name, func(t *testing.T) {
				t.Parallel()
				w := openImageFixture(t, filepath.Join(t.TempDir(), "home"), first.endpoint, first.binary)
				t.Cleanup(w.clear)
				w.program = tiny(version) // a recipe of its own
				p := engine.NewProxy(t, w.endpoint)
				o := w.options()
				o.Image = base
				o.Engine = func(ctx context.Context) (*dockerengine.Engine, error) { return connect(ctx, p.Endpoint) }
				nth := 1
				if op == engine.ImageInspect {
					nth = 2 // the one of what was built
				}
				if name == another {
					fault = engine.Before(func() { p.Pretend("another") })
				}
				p.On(op, nth, fault)
				if _, err := o.run(w.ctx()); err != nil && failure.KindOf(err) == failure.Internal {
					t.Error(err)
				}
				p.Return()
				p.Reset()
				p.Pretend("")
				r, _ := w.prepare(o)
				if again, _ := w.prepare(o); !again.Reused || again.Image != r.Image {
					t.Errorf("%+v", again)
				}
				if made := w.recipeImages(r.Recipe); len(made) != 1 || made[0] != r.Image {
					t.Errorf("%v, and %s is known", made, r.Image)
				}
			})
		}
	}
}

// TestDockerWhoseEngineMoved: what a preparation left on an engine is ended where the settings lead to that engine now.
func TestDockerWhoseEngineMoved(t *testing.T) {
	w := newImageFixture(t)
	p := engine.NewProxy(t, w.endpoint)
	o := w.options()
	o.Image = w.quickBase()
	o.Engine = func(ctx context.Context) (*dockerengine.Engine, error) { return connect(ctx, p.Endpoint) }
	p.On(engine.Start, 1, engine.VanishAfter())
	if r, err := o.run(w.ctx()); err == nil {
		t.Fatalf("%+v", r)
	}
	left, err := w.driver().List(w.ctx(), claims.Filter{Outstanding: true})
	if err != nil || len(left) != 1 || len(engine.Containers(t, w.endpoint, owned.LabelOwner+"="+w.owner())) != 1 {
		t.Fatalf("%+v, %v", left, err)
	}
	w.settings = w.endpoint
	if _, err := w.driver().Release(w.ctx(), left[0].ID); err != nil {
		t.Error(err)
	}
	w.settled()
}

// TestDockerWhoseEngineHasOtherFiles: one of another host would install into a directory that is not this one's.
func TestDockerWhoseEngineHasOtherFiles(t *testing.T) {
	w := newImageFixture(t)
	p := engine.NewProxy(t, w.endpoint)
	p.OnOtherHost(w.home.Dir())
	o := w.options()
	o.Image = w.quickBase()
	o.Engine = func(ctx context.Context) (*dockerengine.Engine, error) { return connect(ctx, p.Endpoint) }
	ctx, cancel := context.WithTimeout(w.ctx(), 15*time.Second) // of two minutes that the file would have to appear
	defer cancel()
	if _, err := o.run(ctx); !failure.Is(err, failure.NotReady) || !strings.Contains(err.Error(), "does not see the files of this host") || failure.As(err).Hint == "" {
		t.Errorf("%v", err)
	}
	w.settled()
	if p.Count(engine.ExecCreate) > 0 || p.Count(engine.Build) > 0 {
		t.Errorf("it went on: %v", p.Counts())
	}
}

// quickBase is a base image whose package manager does nothing: what the program needs is among its files.
func (w *imageFixture) quickBase() string {
	return w.base("quick", `RUN printf '#!/bin/sh\nif [ "$1" = --version ]; then echo 10.0.0; fi\n' >/tmp/pnpm && chmod 755 /tmp/pnpm && mv /tmp/pnpm /usr/local/bin/pnpm`)
}
