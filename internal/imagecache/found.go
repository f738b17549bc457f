package imagecache

import (
	"context"

	"github.com/docker/docker/api/types/image"

	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/resource"
)

// Prepared is the image of a receipt on an engine, which is asked once. The failure is of kind NotReady, also where what is there
// is not what the receipt says.
func (c Cache) Prepared(ctx context.Context, e *dockerengine.Engine, r Receipt) (image.InspectResponse, error) {
	i, err := find(ctx, e, r.Image, func() error {
		return failure.New(failure.NotReady, "the prepared image %s is not on the engine any more", r.Image).WithHint("%s", c.Prepare)
	})
	if err != nil {
		return i, err
	}
	has := ""
	if i.Config != nil {
		has = i.Config.Labels[LabelRecipe]
	}
	if i.ID != r.Image || has != r.Recipe || Platform(i) != r.Platform {
		return i, failure.New(failure.NotReady, "the image %s on the engine is not the prepared one: its id, recipe label or platform differ from the receipt", r.Image).WithHint("%s", c.Prepare)
	}
	return i, nil
}

// Own is an image that a target names itself, on an engine, which is asked once. It is never fetched. The failure is of kind
// NotReady.
func Own(ctx context.Context, e *dockerengine.Engine, ref, target string) (image.InspectResponse, error) {
	return find(ctx, e, ref, func() error {
		return failure.New(failure.NotReady, "the image %s of the target %q is not on the engine", ref, target).WithHint("docker pull %s", failure.Quote(ref))
	})
}

func find(ctx context.Context, e *dockerengine.Engine, ref string, absent func() error) (image.InspectResponse, error) {
	i, presence, err := e.Image(ctx, ref)
	switch presence {
	case resource.Present:
		return i, nil
	case resource.Absent:
		return i, absent()
	}
	return i, failure.Wrap(err, failure.NotReady, "look for the image %s", ref)
}
