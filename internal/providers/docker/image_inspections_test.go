package docker

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/agent/codex"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/targets"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// Each session looks for its image once, and anew.
func TestEachSessionInspectsItsImageOnce(t *testing.T) {
	proxy := engine.NewProxy(t, engine.Endpoint(t))
	w := newProviderFixture(t, proxy.Endpoint)
	image := fmt.Sprintf("laufwerk-test/leaves:%d", time.Now().UnixNano())
	e, err := w.c.Connect(w.ctx(), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Tag(w.ctx(), busybox, image); err != nil {
		t.Fatal(err)
	}
	remove := func() { _, _ = e.RemoveImage(w.ctx(), image) }
	t.Cleanup(remove)
	def := w.target(`{"image":"` + image + `"}`)
	plan := func(key string) (providers.Plan, error) {
		proxy.Reset()
		p, missing, err := w.Plan(w.ctx(), def, providers.Need{Workspace: true, Program: "command"}, providers.SessionSpec{
			Key: key, Dir: filepath.Join(w.dir, key), Workspace: w.workspace, Mark: key,
		})
		if n := proxy.Count(); n != 1 {
			t.Errorf("%s: %d calls, want one: %v", key, n, proxy.Calls())
		}
		if len(missing) > 0 {
			err = targets.NotReady(def, missing)
		}
		return p, err
	}
	if p, err := plan("first"); err != nil || !strings.HasPrefix(p.Image, "sha256:") {
		t.Fatalf("%+v %v", p, err)
	}
	remove()
	if p, err := plan("second"); !failure.Is(err, failure.NotReady) || !strings.Contains(failure.As(err).Hint, "docker pull "+image) {
		t.Errorf("%+v %v", p, err)
	}
}

// What a target lacks for Codex is told from the same look.
func TestReadinessForCodexInspectsOnce(t *testing.T) {
	proxy := engine.NewProxy(t, engine.Endpoint(t))
	w := newProviderFixture(t, proxy.Endpoint)
	def := w.target(`{"image":"` + busybox + `","network":"none","credentials":"codex-subscription"}`)
	proxy.Reset()
	missing := w.Ready(w.ctx(), def, providers.Need{Workspace: true, Program: codex.Name})
	if len(missing) == 0 || missing[0].ID != "docker.codex.program" || proxy.Count() != 1 {
		t.Errorf("%+v, with %v", missing, proxy.Calls())
	}
}
