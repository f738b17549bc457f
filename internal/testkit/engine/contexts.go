package engine

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/docker/cli/cli/config"
	"github.com/docker/cli/cli/context/docker"
	"github.com/docker/cli/cli/context/store"
)

// Config makes a directory for DOCKER_CONFIG as Docker's own CLI writes it: with the contexts (name → endpoint) in its store
// and one of them as the current one ("" for none).
func Config(t testing.TB, current string, contexts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	kinds := store.NewConfig(func() any { return &map[string]any{} }, store.EndpointTypeGetter(docker.DockerEndpoint, func() any { return &docker.EndpointMeta{} }))
	s := store.New(filepath.Join(dir, "contexts"), kinds)
	for name, endpoint := range contexts {
		err := s.CreateOrUpdate(store.Metadata{Name: name, Metadata: map[string]any{}, Endpoints: map[string]any{docker.DockerEndpoint: docker.EndpointMeta{Host: endpoint}}})
		if err != nil {
			t.Fatalf("make the Docker context %s: %v", name, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, config.ConfigFileName), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := config.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	file.CurrentContext = current
	if err := file.Save(); err != nil {
		t.Fatal(err)
	}
	return dir
}
