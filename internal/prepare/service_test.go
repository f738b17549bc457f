package prepare

import (
	"context"
	"errors"
	"testing"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/agent/codex"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/imagecache"
	"github.com/laufwerk/laufwerk/internal/project"
	"github.com/laufwerk/laufwerk/internal/providers/docker"
	"github.com/laufwerk/laufwerk/internal/providers/openshell"
)

var errOpened = errors.New("the home is opened")

// bareService can do nothing but say that it would.
func bareService(t *testing.T) *Service {
	home := t.TempDir()
	return &Service{
		Kinds: []imagecache.Kind{docker.Images(), openshell.Images()}, Programs: agent.Programs{codex.New()},
		Home: func() (string, error) { return home, nil },
		Open: func(context.Context, bool) (Opened, error) { return Opened{}, errOpened },
		Project: func(context.Context, string) (*project.Project, error) {
			t.Error("a project is loaded")
			return nil, errors.New("there is none")
		},
	}
}

// Outside of a project the standard image is prepared, unless a target or a project is named.
func TestImagesOutsideOfAProject(t *testing.T) {
	dir := t.TempDir()
	for _, kind := range []string{"docker", "openshell"} {
		made, err := bareService(t).Images(t.Context(), ImageRequest{Kind: kind, Dir: dir})
		if !errors.Is(err, errOpened) || made == nil {
			t.Errorf("%s: %v, %v", kind, made, err)
		}
		for _, r := range []ImageRequest{{Kind: kind, Dir: dir, Target: "x"}, {Kind: kind, Dir: dir, Project: dir}} {
			if made, err := bareService(t).Images(t.Context(), r); !failure.Is(err, failure.ProjectNotFound) || made != nil {
				t.Errorf("%+v: %v, %v", r, made, err)
			}
		}
	}
}

// A new target of these kinds needs nothing, or something else first.
func TestNewTargetsThatAreNotPrepared(t *testing.T) {
	for _, kind := range []string{"local", "openshell"} {
		if made, err := bareService(t).NewTarget(t.Context(), t.TempDir(), kind, kind); made != nil || err != nil {
			t.Errorf("%s: %v, %v", kind, made, err)
		}
	}
}
