package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/agent/codex"
	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/imagecache"
	"github.com/laufwerk/laufwerk/internal/prepare"
	"github.com/laufwerk/laufwerk/internal/providers/docker"
	"github.com/laufwerk/laufwerk/internal/providers/openshell"
	"github.com/laufwerk/laufwerk/internal/store"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// imagesFixture is a home whose cache has images, as three preparations with other base images leave them: a receipt names the last.
type imagesFixture struct {
	t        *testing.T
	endpoint string
	home     *store.Home
	store    *store.Store
	cache    imagecache.Cache
	ids      []string
	tags     []string
}

func newImagesFixture(t *testing.T) *imagesFixture {
	t.Helper()
	home, err := store.OpenHome(filepath.Join(t.TempDir(), "home"), true)
	if err != nil {
		t.Fatal(err)
	}
	w := &imagesFixture{t: t, endpoint: engine.Endpoint(t), home: home, store: store.Open(home, time.Now, "test")}
	w.cache = docker.Images().Cache(filepath.Join(home.Dir(), "images"), imagecache.NewProgram(codex.New()))
	cl := engine.Client(t, w.endpoint)
	base, err := cl.ImageInspect(t.Context(), engine.Busybox)
	if err != nil {
		t.Fatal(err)
	}
	from, err := cl.ContainerCreate(t.Context(), &container.Config{Image: base.ID, Cmd: []string{"true"}}, nil, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cl.ContainerRemove(context.Background(), from.ID, container.RemoveOptions{Force: true}) }()
	if err := w.cache.Make(); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		rec := w.cache.Recipe("sha256:"+strings.Repeat(fmt.Sprint(n), 64), imagecache.Platform(base))
		made, err := cl.ContainerCommit(t.Context(), from.ID, container.CommitOptions{Changes: []string{"LABEL " + imagecache.LabelRecipe + "=" + rec.Fingerprint(), "LABEL test=" + home.Dir()}})
		if err == nil {
			err = cl.ImageTag(t.Context(), made.ID, w.cache.Tag(rec.Fingerprint()))
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = cl.ImageRemove(context.Background(), made.ID, image.RemoveOptions{Force: true}) })
		w.ids, w.tags = append(w.ids, made.ID), append(w.tags, w.cache.Tag(rec.Fingerprint()))
		if n == 2 {
			r := w.cache.NewReceipt(made.ID, rec, imagecache.Base{Name: "node:22", ID: rec.Base}, "an engine", time.Now())
			if err := w.cache.Publish(r, w.cache.StandardFile()); err != nil {
				t.Fatal(err)
			}
		}
	}
	return w
}

func (w *imagesFixture) laufwerk(tty bool, args ...string) (code int, out, errs string) {
	w.t.Helper()
	var stdout, stderr bytes.Buffer
	env := &system.Env{Args: args, Vars: map[string]string{"HOME": w.t.TempDir(), "LAUFWERK_HOME": w.home.Dir()}, Dir: "/", Out: &stdout, Err: &stderr, OutTTY: tty, ErrTTY: tty, Now: time.Now}
	connect := func(ctx context.Context) (*dockerengine.Engine, error) {
		return dockerengine.Connect(ctx, dockerengine.Endpoint{Host: w.endpoint, Origin: "the test"})
	}
	service := &prepare.Service{
		Command: "test", Kinds: []imagecache.Kind{docker.Images(), openshell.Images()}, Programs: agent.Programs{codex.New()}, Engine: connect,
		Open: func(context.Context, bool) (prepare.Opened, error) {
			driver := claims.NewDriver(claims.Options{Store: w.store, Now: time.Now, Owner: w.store.ID})
			return prepare.Opened{Home: w.home, Claims: driver}, nil
		},
	}
	code = Execute(w.t.Context(), env, func(d *Deps) Commands {
		return NewCommands(d, UseCases{Preparation: service})
	})
	return code, stdout.String(), stderr.String()
}

// prunable are the lines about the fixture's images.
func (w *imagesFixture) prunable(out string) (lines []string) {
	for line := range strings.Lines(out) {
		for _, tag := range w.tags {
			if strings.Contains(line, tag) {
				lines = append(lines, strings.Join(strings.Fields(line), " "))
			}
		}
	}
	return lines
}

func TestListAndPrune(t *testing.T) {
	w := newImagesFixture(t)
	for _, tty := range []bool{false, true} {
		code, out, errs := w.laufwerk(tty, "images", "list")
		lines := w.prunable(out)
		if code != 0 || len(lines) != 3 || errs != "" {
			t.Fatalf("exit %d\n%s%s", code, out, errs)
		}
		if text := strings.Join(lines, "\n"); strings.Count(text, " unused ") != 2 || !strings.Contains(text, w.tags[2]+" docker current ") || !strings.Contains(text, " node:22 ") {
			t.Errorf("%s", text)
		}
	}
	type row struct {
		ID, Tag, State, Why string
		Present, Removed    bool
		Receipts, Claims    []string
	}
	document := func(args ...string) (mine map[string]row) {
		t.Helper()
		code, out, errs := w.laufwerk(false, append(args, "--json")...)
		var doc struct{ Images []row }
		if err := json.Unmarshal([]byte(out), &doc); code != 0 || err != nil || errs != "" {
			t.Fatalf("%v: exit %d, %v\n%s%s", args, code, err, out, errs)
		}
		mine = map[string]row{}
		for _, r := range doc.Images {
			for _, id := range w.ids {
				if r.ID == id {
					mine[id] = r
				}
			}
		}
		return mine
	}
	listed := document("images", "list")
	if r := listed[w.ids[2]]; !r.Present || r.State != "current" || len(r.Receipts) != 1 || r.Receipts[0] != w.cache.StandardFile() || r.Claims == nil {
		t.Errorf("%+v", r)
	}
	// As the first session's claim would: its image stays.
	err := w.store.Update(t.Context(), func(tx store.Tx) error {
		return tx.Put(store.Claims, "c1", claims.Claim{ID: "c1", Kind: claims.KindSession, State: claims.Allocated, Provider: "docker", Image: w.ids[0]})
	})
	if err != nil {
		t.Fatal(err)
	}
	dry := document("images", "prune", "--dry-run")
	if dry[w.ids[0]].Removed || dry[w.ids[0]].Why != "a claim needs it" || !dry[w.ids[1]].Removed || dry[w.ids[2]].Removed || dry[w.ids[2]].Why != "a receipt names it" {
		t.Errorf("%+v", dry)
	}
	if n := len(document("images", "list")); n != 3 {
		t.Errorf("a dry run left %d", n)
	}
	err = w.store.Update(t.Context(), func(tx store.Tx) error { return tx.Delete(store.Claims, "c1") })
	if err != nil {
		t.Fatal(err)
	}
	code, out, errs := w.laufwerk(true, "images", "prune")
	if lines := strings.Join(w.prunable(out), "\n"); code != 0 || strings.Count(lines, "removed ") != 2 || strings.Count(lines, "kept ") != 1 {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	if left := document("images", "list"); len(left) != 1 || left[w.ids[2]].State != "current" {
		t.Errorf("%+v", left)
	}
	if code, out, errs := w.laufwerk(false, "images", "prune"); code != 0 || errs != "nothing to remove\n" || len(w.prunable(out)) != 1 {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	// Another cache has nothing to do with them.
	if code, out, errs := w.laufwerk(false, "images", "prune", "--cache-directory", t.TempDir()); code != 0 || len(w.prunable(out)) != 0 {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
}
