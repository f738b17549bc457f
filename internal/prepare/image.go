package prepare

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"time"

	"github.com/docker/docker/api/types/image"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/imagecache"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/system/lock"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// ContainerProvider is the provider of the claims of preparations' containers, for images of every kind.
const ContainerProvider = "docker"

// ImageOptions of the preparation of one image.
type ImageOptions struct {
	Cache  imagecache.Cache
	Engine func(ctx context.Context) (*dockerengine.Engine, error)
	Claims *claims.Driver // knows imagecache.Containers for claims.KindPreparation and ContainerProvider
	// Binary is the path of our own program for a platform ("linux/amd64").
	Binary  func(ctx context.Context, platform string) (string, error)
	Now     func() time.Time
	Command string // how this process was called, for the lock
	Wait    time.Duration
	// Say tells what takes its time.
	Say func(format string, args ...any)

	Image     string // the base image; "" is that of the standard image, where there is one, else imagecache.DefaultBase
	Manifest  string // where the receipt is written, absolute; "" makes the standard image, which targets use that name none
	Settings  imagecache.Settings
	Network   string // of the installation; "" is the engine's bridge
	Resources targets.Resources
}

// ImageResult is what is prepared now.
type ImageResult struct {
	Image    string          `json:"image"`        // its id
	Manifest string          `json:"manifestPath"` // the receipt
	Reused   bool            `json:"reused"`       // the image was there already
	Tag      string          `json:"tag"`
	Base     imagecache.Base `json:"base"`
	Program  string          `json:"program"`
	Version  string          `json:"version"`
	Recipe   string          `json:"recipe"`
}

// Image prepares an image with an agent program, or finds that a receipt still holds: then nothing is built, and nothing is
// written but a receipt that is not there yet. Failures: NotReady (what the image, the engine or the network
// lacks; what to do is said), LockHeld with the holder, Retained where the end of a container could not be confirmed.
func Image(ctx context.Context, o ImageOptions) (ImageResult, error) {
	if o.Image == "" {
		o.Image = o.Cache.StandardBase()
	}
	if o.Image == "" {
		o.Image = imagecache.DefaultBase
	}
	if o.Manifest == "" {
		o.Manifest = o.Cache.StandardFile()
	}
	e, err := o.Engine(ctx)
	if err != nil {
		return ImageResult{}, err
	}
	p := preparation{ImageOptions: o, e: e}
	if err := p.lookAtBase(ctx); err != nil {
		return ImageResult{}, err
	}
	if r, err := p.published(ctx); err == nil {
		return p.result(r, true), nil
	} else if !failure.Is(err, failure.NotReady) {
		return ImageResult{}, err
	}
	if p.base.ID == "" {
		if err := p.pull(ctx); err != nil {
			return ImageResult{}, err
		}
	}
	if err := o.Cache.Suits(p.base, e.Facts().Arch); err != nil {
		return ImageResult{}, err
	}
	p.recipe = o.Cache.Recipe(p.base.ID, imagecache.Platform(p.base))
	if err := o.Cache.Make(); err != nil {
		return ImageResult{}, err
	}
	l, err := o.Cache.Lock(ctx, p.recipe.Fingerprint(), o.Command, o.Wait, o.Say)
	if err != nil {
		return ImageResult{}, err
	}
	defer l.Release()
	r, err := o.Cache.Made(p.recipe.Fingerprint())
	if err == nil {
		_, err = o.Cache.Prepared(ctx, e, r)
	}
	reused := err == nil
	if failure.Is(err, failure.NotReady) {
		if err = p.sweep(ctx); err == nil {
			r, err = p.make(ctx)
		}
	}
	r.Base.Name = o.Image // one image can have several names
	if err == nil {
		err = o.Cache.Done(p.recipe.Fingerprint())
	}
	if err == nil && !o.Cache.Published(r, o.Manifest) {
		err = o.Cache.Publish(r, o.Manifest)
	}
	if err != nil {
		return ImageResult{}, err
	}
	return p.result(r, reused), nil
}

// preparation is the preparation of one image.
type preparation struct {
	ImageOptions
	e      *dockerengine.Engine
	base   image.InspectResponse // no ID: not on the engine
	recipe imagecache.Recipe
}

func (p *preparation) lookAtBase(ctx context.Context) error {
	i, presence, err := p.e.Image(ctx, p.Image)
	if presence == resource.Unobserved {
		return failure.Wrap(err, failure.NotReady, "look for the base image %s", p.Image)
	}
	p.base = i
	return nil
}

// published is the receipt at its place, if it holds. Where the base image is not on the engine any more, nothing says that it
// has changed.
func (p *preparation) published(ctx context.Context) (imagecache.Receipt, error) {
	r, err := p.Cache.Load(p.Manifest, p.base.ID)
	if err == nil && (r.Base.Name != p.Image || !p.Cache.Published(r, p.Manifest)) {
		err = failure.New(failure.NotReady, "the receipt %s is for the base image %s", p.Manifest, r.Base.Name)
	}
	if err == nil {
		_, err = p.Cache.Prepared(ctx, p.e, r)
	}
	return r, err
}

func (p *preparation) result(r imagecache.Receipt, reused bool) ImageResult {
	return ImageResult{
		Image: r.Image, Manifest: p.Manifest, Reused: reused, Tag: r.Tag, Base: r.Base, Program: r.Program, Version: r.Version, Recipe: r.Recipe,
	}
}

func (p *preparation) pull(ctx context.Context) error {
	p.Say("pulling the image %s\n", p.Image)
	if _, err := p.e.Pull(ctx, p.Image, nil); err != nil {
		if ctx.Err() != nil {
			return failure.Wrap(context.Cause(ctx), failure.Cancelled, "pull the image %s", p.Image)
		}
		e := failure.New(failure.NotReady, "the base image %s is not on the engine, and could not be pulled", p.Image).
			WithHint("docker pull %s   # with your login for the registry%s", failure.Quote(p.Image), p.then())
		e.Err = err
		return e
	}
	if err := p.lookAtBase(ctx); err != nil {
		return err
	}
	if p.base.ID == "" {
		return failure.New(failure.NotReady, "the image %s was pulled, and is not on the engine", p.Image).WithHint("docker pull %s", failure.Quote(p.Image))
	}
	return nil
}

// then is what to type once a base image was pulled, or instead of it: of the standard image, since only a module of the project
// knows how it makes others.
func (p *preparation) then() string {
	if p.Manifest != p.Cache.StandardFile() {
		return ""
	}
	again := p.Cache.Prepare
	if p.Image != imagecache.DefaultBase {
		again += " --image " + failure.Quote(p.Image)
	}
	return "\n" + again + "\n" + p.Cache.Prepare + " --image REF   # to begin with another image"
}

// extra is what a claim remembers for sweepers: whose lock says that its preparation lives.
type extra struct {
	Lock string `json:"lock"`
}

// sweep ends the containers of preparations that were killed. One that cannot be ended now stays for cleanup: it is in
// nobody's way.
func (p *preparation) sweep(ctx context.Context) error {
	list, err := p.Claims.List(ctx, claims.Filter{NoRun: true, Kind: claims.KindPreparation, Outstanding: true})
	if err != nil {
		return err
	}
	mine := p.Cache.LockFile(p.recipe.Fingerprint())
	for _, c := range list {
		var x extra
		_ = json.Unmarshal(c.Extra, &x)
		if _, held, err := lock.Query(x.Lock); x.Lock != mine && (held || err != nil) {
			continue // its preparation lives
		}
		if _, err := p.Claims.Release(ctx, c.ID); err != nil {
			p.Say("an earlier preparation left something: %v\n%s\n", err, c.CleanupHint())
		}
	}
	return ctx.Err()
}

// make builds, proves and records the image, from whatever an earlier attempt has left.
func (p *preparation) make(ctx context.Context) (imagecache.Receipt, error) {
	fingerprint := p.recipe.Fingerprint()
	id, err := p.Cache.Left(ctx, p.e, p.recipe, p.base)
	if err == nil && id == "" {
		id, err = p.build(ctx)
	}
	if err != nil {
		return imagecache.Receipt{}, err
	}
	prepared, presence, err := p.e.Image(ctx, id)
	if presence != resource.Present {
		return imagecache.Receipt{}, errors.Join(failure.New(failure.NotReady, "the prepared image %s is gone from the engine", id).WithHint("%s", p.Cache.Prepare), err)
	}
	err = p.inContainer(ctx, imagecache.Prove, prepared, func(ctx context.Context, container string) error {
		return p.Cache.Prove(ctx, p.e, container, p.recipe.Platform)
	})
	if errors.Is(err, imagecache.ErrUnproved) {
		return imagecache.Receipt{}, errors.Join(err, p.Cache.Discard(ctx, p.e, prepared, fingerprint))
	}
	if err == nil {
		err = p.Cache.Name(ctx, p.e, id, fingerprint)
	}
	if err != nil {
		return imagecache.Receipt{}, err
	}
	r := p.Cache.NewReceipt(id, p.recipe, imagecache.Base{Name: p.Image, ID: p.base.ID}, p.e.Facts().Identity(), p.Now())
	if err := p.Cache.Record(r); err != nil {
		return imagecache.Receipt{}, err
	}
	return r, nil
}

// build installs the program in a container of the base image and builds the image from what is there then.
func (p *preparation) build(ctx context.Context) (string, error) {
	path := p.Cache.LogFile(p.recipe.Fingerprint())
	if err := files.Remove(path); err != nil {
		return "", failure.Wrap(err, failure.HomeInvalid, "remove the log of an earlier build")
	}
	log, err := files.Append(path)
	if err != nil {
		return "", failure.Wrap(err, failure.HomeInvalid, "write the build log")
	}
	defer log.Close()
	var id string
	err = p.inContainer(ctx, imagecache.Install, p.base, func(ctx context.Context, container string) (err error) {
		if err := p.Cache.Install(ctx, p.e, container, p.Image, p.Settings, log, p.Say); err != nil {
			return err
		}
		p.Say("building the image\n")
		b, err := p.Cache.Begin(p.recipe.Fingerprint(), p.base.ID, p.Now())
		if err != nil {
			return err
		}
		id, err = p.Cache.Assemble(ctx, p.e, container, p.recipe, p.base, b, log)
		return err
	})
	if err != nil {
		_, _ = io.WriteString(log, "failed: "+err.Error()+"\n")
		if f := failure.As(err); f != nil && f.Kind != failure.Cancelled {
			f.Message += "; the log is " + path
			f.Paths = append(f.Paths, path)
		}
	}
	return id, err
}

// inContainer makes and starts a container of an image, uses it, and ends it. It is a claim of no run: whatever ends this
// process, the next preparation or cleanup --all knows of it.
func (p *preparation) inContainer(ctx context.Context, purpose imagecache.Purpose, from image.InspectResponse, use func(ctx context.Context, container string) error) error {
	nonce := make([]byte, 16)
	_, _ = rand.Read(nonce) // never fails
	operation := "prepare/" + string(purpose) + "/" + hex.EncodeToString(nonce)
	id := claims.ID("", operation)
	spec := p.Cache.Plan(purpose, p.e, from)
	spec.Nonce = hex.EncodeToString(nonce)
	var err error
	if spec.Binary, err = p.Binary(ctx, p.recipe.Platform); err != nil {
		return err
	}
	if purpose == imagecache.Install {
		spec.Stage, spec.Resources, spec.Network = filepath.Join(p.Cache.Dir, "stage", id), p.Resources, p.Network
		if spec.Network == "" {
			spec.Network = "bridge"
		}
	}
	rawSpec, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	rawExtra, err := json.Marshal(extra{Lock: p.Cache.LockFile(p.recipe.Fingerprint())})
	if err != nil {
		return err
	}
	c, err := p.Claims.Allocate(ctx, claims.Request{
		ID: id, Kind: claims.KindPreparation, Provider: ContainerProvider, Operation: operation, Image: from.ID,
		Intent: resource.Intent{Name: owned.Name(id), Endpoint: p.e.Facts().Identity(), Spec: rawSpec}, Extra: rawExtra,
	})
	if err != nil { // whatever may have come of it is not needed any more
		if _, rerr := p.Claims.Release(context.WithoutCancel(ctx), id); !failure.Is(rerr, failure.NotFound) {
			err = errors.Join(err, rerr)
		}
		return err
	}
	crash.Point("prepare/before-use")
	err = imagecache.Start(ctx, p.e, c.Intent.Resource, spec)
	if err == nil {
		err = use(ctx, c.Intent.Resource)
	}
	crash.Point("prepare/after-use")
	if _, rerr := p.Claims.Release(context.WithoutCancel(ctx), id); rerr != nil {
		return errors.Join(err, rerr)
	}
	return err
}
