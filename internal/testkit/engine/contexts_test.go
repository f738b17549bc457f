package engine_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/cli/cli/config"
	"github.com/docker/cli/cli/context/docker"
	"github.com/docker/cli/cli/context/store"

	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

func TestConfigIsWhatTheCLIReads(t *testing.T) {
	dir := engine.Config(t, "here", map[string]string{"here": "unix:///run/some.sock", "there": "ssh://host"})
	file, err := config.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if file.CurrentContext != "here" {
		t.Errorf("current context %q", file.CurrentContext)
	}
	s := store.New(filepath.Join(dir, "contexts"), store.NewConfig(func() any { return &map[string]any{} }, store.EndpointTypeGetter(docker.DockerEndpoint, func() any { return &docker.EndpointMeta{} })))
	for name, want := range map[string]string{"here": "unix:///run/some.sock", "there": "ssh://host"} {
		meta, err := s.GetMetadata(name)
		if err != nil {
			t.Fatal(err)
		}
		endpoint, err := docker.EndpointFromContext(meta)
		if err != nil || endpoint.Host != want {
			t.Errorf("%s: %q, %v; want %q", name, endpoint.Host, err, want)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "config.json")); err != nil || !strings.Contains(string(b), `"currentContext": "here"`) {
		t.Errorf("config.json: %s, %v", b, err)
	}
}
