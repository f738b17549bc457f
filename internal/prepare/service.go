// Package prepare makes ready what execution targets need: agent programs on this machine, for local targets, and images with an
// agent program, for targets whose sessions start from images.
//
// A program is installed once for a home, by the package manager of the user, from a lockfile; what is there already is left as
// it is.
//
//	harness/<name>/receipt.json   what is prepared: written last, so that what it names is whole
//	harness/<name>/<recipe>/      an installed tree, which got its name when it was whole
//	harness/<name>/.stage-*/      one that is being made, or was when its maker was killed
//
// An image is made once for a base image, a user and a recipe; package imagecache says where its receipts are.
package prepare

import (
	"context"
	"time"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/imagecache"
	"github.com/laufwerk/laufwerk/internal/project"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/store"
)

// Service prepares what the targets of projects and scripts need. Its functions are not called before something is prepared.
type Service struct {
	Vars     map[string]string // the environment
	UserHome string            // of the user, for "~/"
	Now      func() time.Time
	Command  string                           // how this process was called, for locks
	Say      func(format string, args ...any) // tells what takes its time

	Kinds    []imagecache.Kind // whose images can be prepared
	Programs agent.Programs    // of this build

	Home    func() (string, error)                                           // the path of $LAUFWERK_HOME, which may not be there yet
	Open    func(ctx context.Context, create bool) (Opened, error)           // with create it is made where it is not there
	Project func(ctx context.Context, root string) (*project.Project, error) // loads one; AnswerPreparedConfig answers its config
	Engine  func(ctx context.Context) (*dockerengine.Engine, error)          // a new connection to the engine that the settings lead to
}

// Opened is a $LAUFWERK_HOME that is there.
type Opened struct {
	Home     *store.Home
	Claims   *claims.Driver // knows Containers for claims.KindPreparation and ContainerProvider
	Provider func(kind string) (providers.Provider, bool)
	// Binary is the path of our own program for a platform ("linux/amd64").
	Binary func(ctx context.Context, platform string) (string, error)
}

func (s *Service) kind(name string) (imagecache.Kind, bool) {
	for _, k := range s.Kinds {
		if k.Name == name {
			return k, true
		}
	}
	return imagecache.Kind{}, false
}

// cache is the one in the directory that an option names, for targets of a kind with these credentials.
func (s *Service) cache(kind, option, root string, credentials []string) (imagecache.Cache, error) {
	home, err := s.Home()
	if err != nil {
		return imagecache.Cache{}, err
	}
	k, ok := s.kind(kind)
	if !ok {
		return imagecache.Cache{}, failure.New(failure.Internal, "no images are prepared for %s targets", kind)
	}
	return k.Cache(k.CacheDirectory(option, root, s.UserHome, home), imagecache.NewProgram(s.Programs.ForImage(credentials))), nil
}

// ListImages are the prepared images of the caches in a directory, absolute; "" is the default caches.
func (s *Service) ListImages(ctx context.Context, directory string) ([]imagecache.Image, error) {
	opened, err := s.Open(ctx, false)
	if err != nil {
		return nil, err
	}
	used, err := opened.usedImages(ctx)
	if err != nil {
		return nil, err
	}
	e, err := s.Engine(ctx)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	return s.caches(directory, opened.Home.Dir()).Images(ctx, e, used)
}

// PruneImages removes those of them that no receipt names and no claim needs; with dry it only says which. A failure comes with
// those that were looked at, nil where it did not come to that.
func (s *Service) PruneImages(ctx context.Context, directory string, dry bool) ([]imagecache.PruneResult, error) {
	opened, err := s.Open(ctx, false)
	if err != nil {
		return nil, err
	}
	e, err := s.Engine(ctx)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	done, err := s.caches(directory, opened.Home.Dir()).Prune(ctx, e, opened.usedImages, dry, s.Command)
	return append([]imagecache.PruneResult{}, done...), err
}

// caches are those in a directory, which can be for targets of every kind, or the default ones.
func (s *Service) caches(directory, home string) imagecache.Caches {
	var out imagecache.Caches
	for _, k := range s.Kinds {
		dir := directory
		if dir == "" {
			dir = k.CacheDirectory("", "", "", home)
		}
		for _, p := range s.Programs.Installable() {
			out = append(out, k.Cache(dir, imagecache.NewProgram(p)))
		}
	}
	return out
}

func (o Opened) usedImages(ctx context.Context) (map[string][]string, error) {
	list, err := o.Claims.List(ctx, claims.Filter{Outstanding: true})
	out := map[string][]string{}
	for _, c := range list {
		if c.Image != "" {
			out[c.Image] = append(out[c.Image], c.ID)
		}
	}
	return out, err
}
