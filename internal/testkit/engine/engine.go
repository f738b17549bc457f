// Package engine gives tests a real Docker engine, private ones that a test may restart or kill, and a proxy that injects
// faults between an engine and its client. It is for tests only. `.ci/engine` installs, starts and fills the engines.
package engine

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"github.com/laufwerk/laufwerk/internal/testkit"
)

// Endpoint is the engine that `.ci/engine start` started, as unix:///path, from LAUFWERK_TEST_DOCKER. It is shared: tests
// give what they make labels and names of their own.
func Endpoint(t testkit.T) string {
	t.Helper()
	endpoint := os.Getenv("LAUFWERK_TEST_DOCKER")
	testkit.Need(t, "a Docker engine", strings.HasPrefix(endpoint, "unix:///"), `LAUFWERK_TEST_DOCKER names none; as root: eval "$(.ci/engine start)"`)
	return endpoint
}

// Client speaks to an engine, or to a proxy in front of it, and is closed with the test.
func Client(t testkit.T, endpoint string) *client.Client {
	t.Helper()
	c, err := client.NewClientWithOpts(client.WithHost(endpoint), client.WithAPIVersionNegotiation())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Containers are those that carry a label ("key" or "key=value"), running or not, straight from the engine.
func Containers(t testkit.T, endpoint, label string) []container.Summary {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	list, err := Client(t, endpoint).ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", label))})
	if err != nil {
		t.Fatalf("list containers with the label %s: %v", label, err)
	}
	return list
}

// RemoveImage removes an image, whatever names it has; that it is not there is fine.
func RemoveImage(t testkit.T, endpoint, ref string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := Client(t, endpoint).ImageRemove(ctx, ref, image.RemoveOptions{Force: true, PruneChildren: true}); err != nil && !errdefs.IsNotFound(err) {
		t.Errorf("remove the image %s: %v", ref, err)
	}
}

// Remove removes containers with a label, running or not.
func Remove(t testkit.T, endpoint, label string) {
	t.Helper()
	for _, c := range Containers(t, endpoint, label) {
		if err := Client(t, endpoint).ContainerRemove(context.Background(), c.ID, container.RemoveOptions{Force: true, RemoveVolumes: true}); err != nil && !errdefs.IsNotFound(err) {
			t.Errorf("remove the container %s %v: %v", c.ID, c.Names, err)
		}
	}
}
