package prepare

import (
	"cmp"
	"context"
	"time"

	"github.com/docker/docker/api/types/image"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/imagecache"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// imageOptions of the preparation of one image.
type imageOptions struct {
	Cache  imagecache.Cache
	Engine func(ctx context.Context) (*dockerengine.Engine, error)
	Claims *claims.Driver // knows Containers for claims.KindPreparation and ContainerProvider
	// Binary is the path of our own program for a platform ("linux/amd64").
	Binary  func(ctx context.Context, platform string) (string, error)
	Now     func() time.Time
	Command string // how this process was called, for the lock
	Wait    time.Duration
	// Say tells what takes its time.
	Say func(format string, args ...any)

	Image     string // the base image; "" is that of the standard image, where there is one, else imagecache.DefaultBase
	Manifest  string // where the receipt is written, absolute; "" makes the standard image, which targets use that name none
	Settings  installSettings
	Network   string // of the installation; "" is the engine's bridge
	Resources targets.Resources
}

// preparedImage is what is prepared now.
type preparedImage struct {
	imagecache.Receipt
	Manifest string // where the receipt is
	Reused   bool   // the image was there already
}

// prepareImage prepares an image with an agent program, or finds that a receipt still holds: then nothing is built, and nothing is
// written but a receipt that is not there yet. Failures: NotReady (what the image, the engine or the network lacks; what to do is
// said), LockHeld with the holder, Retained where the end of a container could not be confirmed.
func prepareImage(ctx context.Context, o imageOptions) (preparedImage, error) {
	o.Image = cmp.Or(o.Image, o.Cache.StandardBase(), imagecache.DefaultBase)
	o.Manifest = cmp.Or(o.Manifest, o.Cache.StandardFile())
	e, err := o.Engine(ctx)
	if err != nil {
		return preparedImage{}, err
	}
	p := preparation{imageOptions: o, engine: e}
	if err := p.inspectBase(ctx); err != nil {
		return preparedImage{}, err
	}
	r, err := o.Cache.Current(ctx, e, o.Manifest, imagecache.Base{Name: o.Image, ID: p.base.ID})
	reused := err == nil
	if failure.Is(err, failure.NotReady) {
		r, reused, err = p.make(ctx)
	}
	if err != nil {
		return preparedImage{}, err
	}
	return preparedImage{Receipt: r, Manifest: o.Manifest, Reused: reused}, nil
}

// preparation is the preparation of one image.
type preparation struct {
	imageOptions
	engine      *dockerengine.Engine
	base        image.InspectResponse // no ID: not on the engine
	recipe      imagecache.Recipe
	fingerprint string // of the recipe
}

// make writes a receipt of the image, which is built unless one of the same recipe is there.
func (p *preparation) make(ctx context.Context) (r imagecache.Receipt, reused bool, err error) {
	if p.base.ID == "" {
		if err := p.pullBase(ctx); err != nil {
			return r, false, err
		}
	}
	if err := checkBase(p.Cache, p.base, p.engine.Facts().Arch); err != nil {
		return r, false, err
	}
	p.recipe = p.Cache.Recipe(p.base.ID, imagecache.Platform(p.base))
	p.fingerprint = p.recipe.Fingerprint()
	l, err := p.Cache.Lock(ctx, p.fingerprint, p.Command, p.Wait, p.Say)
	if err != nil {
		return r, false, err
	}
	defer l.Release()
	r, err = p.Cache.Made(ctx, p.engine, p.fingerprint)
	reused = err == nil
	if failure.Is(err, failure.NotReady) {
		r, err = p.buildImage(ctx)
	}
	if err != nil {
		return r, false, err
	}
	r.Base.Name = p.Image // one image can have several names
	return r, reused, p.Cache.Publish(r, p.Manifest)
}

func (p *preparation) inspectBase(ctx context.Context) error {
	i, presence, err := p.engine.Image(ctx, p.Image)
	if presence == resource.Unobserved {
		return failure.Wrap(err, failure.NotReady, "look for the base image %s", p.Image)
	}
	p.base = i
	return nil
}

func (p *preparation) pullBase(ctx context.Context) error {
	p.Say("pulling the image %s\n", p.Image)
	if _, err := p.engine.Pull(ctx, p.Image, nil); err != nil {
		if ctx.Err() != nil {
			return failure.Wrap(context.Cause(ctx), failure.Cancelled, "pull the image %s", p.Image)
		}
		e := failure.New(failure.NotReady, "the base image %s is not on the engine, and could not be pulled", p.Image).
			WithHint("docker pull %s   # with your login for the registry%s", failure.Quote(p.Image), p.afterPull())
		e.Err = err
		return e
	}
	if err := p.inspectBase(ctx); err != nil {
		return err
	}
	if p.base.ID == "" {
		return failure.New(failure.NotReady, "the image %s was pulled, and is not on the engine", p.Image).WithHint("docker pull %s", failure.Quote(p.Image))
	}
	return nil
}

// afterPull is what to type once a base image was pulled, or instead of it: of the standard image, since only a module of the
// project knows how it makes others.
func (p *preparation) afterPull() string {
	if p.Manifest != p.Cache.StandardFile() {
		return ""
	}
	again := p.Cache.Prepare
	if p.Image != imagecache.DefaultBase {
		again += " --image " + failure.Quote(p.Image)
	}
	return "\n" + again + "\n" + p.Cache.Prepare + " --image REF   # to begin with another image"
}
