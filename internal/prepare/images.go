package prepare

import (
	"context"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/imagecache"
)

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
func (s *Service) PruneImages(ctx context.Context, directory string, dry bool) ([]imagecache.Pruned, error) {
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
	return append([]imagecache.Pruned{}, done...), err
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

// usedImages says which claims need an image.
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
