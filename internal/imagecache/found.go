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

// Current is the receipt at a path, if it holds: for a base image, which another may have the name of by now, and for an image that
// is on the engine. Failures are of kind NotReady. Where the base image is not on the engine any more (it has no id), nothing says
// that it has changed.
func (c Cache) Current(ctx context.Context, e *dockerengine.Engine, path string, base Base) (Receipt, error) {
	r, err := c.Load(path, base.ID)
	if err == nil && (r.Base.Name != base.Name || !c.published(r, path)) {
		err = failure.New(failure.NotReady, "the receipt %s is for the base image %s", path, r.Base.Name)
	}
	if err == nil {
		_, err = c.Prepared(ctx, e, r)
	}
	return r, err
}

// Made is the record of what was made from a recipe, if that is on the engine. Failures are of kind NotReady.
func (c Cache) Made(ctx context.Context, e *dockerengine.Engine, fingerprint string) (Receipt, error) {
	r, err := c.Load(c.madeFile(fingerprint), "")
	if err == nil {
		_, err = c.Prepared(ctx, e, r)
	}
	return r, err
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
