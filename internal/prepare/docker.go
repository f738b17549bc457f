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

// DockerProvider is the provider of the claims of preparations.
const DockerProvider = "docker"

// DockerOptions of a preparation of an image.
type DockerOptions struct {
	Cache  imagecache.Cache
	Engine func(ctx context.Context) (*dockerengine.Engine, error)
	Claims *claims.Driver // knows imagecache.Containers for claims.KindPreparation and DockerProvider
	// Binary is the path of our own program for a platform ("linux/amd64").
	Binary  func(platform string) (string, error)
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

// DockerResult is what is prepared now.
type DockerResult struct {
	Image    string          `json:"image"`        // its id
	Manifest string          `json:"manifestPath"` // the receipt
	Reused   bool            `json:"reused"`       // the image was there already
	Tag      string          `json:"tag"`
	Base     imagecache.Base `json:"base"`
	Program  string          `json:"program"`
	Version  string          `json:"version"`
	Recipe   string          `json:"recipe"`
}

// Docker prepares an image with Codex for Docker targets, or finds that a receipt still holds: then nothing is built, and
// nothing is written but a receipt that is not there yet. Failures: NotReady (what the image, the engine or the network
// lacks; what to do is said), LockHeld with the holder, Retained where the end of a container could not be confirmed.
func Docker(ctx context.Context, o DockerOptions) (DockerResult, error) {
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
		return DockerResult{}, err
	}
	d := docker{DockerOptions: o, e: e}
	if err := d.lookAtBase(ctx); err != nil {
		return DockerResult{}, err
	}
	if r, err := d.published(ctx); err == nil {
		return d.result(r, true), nil
	} else if !failure.Is(err, failure.NotReady) {
		return DockerResult{}, err
	}
	if d.base.ID == "" {
		if err := d.pull(ctx); err != nil {
			return DockerResult{}, err
		}
	}
	if err := o.Cache.Suits(d.base, e.Facts().Arch); err != nil {
		return DockerResult{}, err
	}
	d.recipe = o.Cache.Recipe(d.base.ID, imagecache.Platform(d.base))
	if err := o.Cache.Make(); err != nil {
		return DockerResult{}, err
	}
	l, err := o.Cache.Lock(ctx, d.recipe.Fingerprint(), o.Command, o.Wait, o.Say)
	if err != nil {
		return DockerResult{}, err
	}
	defer l.Release()
	r, err := o.Cache.Made(d.recipe.Fingerprint())
	if err == nil {
		_, err = o.Cache.Prepared(ctx, e, r)
	}
	reused := err == nil
	if failure.Is(err, failure.NotReady) {
		if err = d.sweep(ctx); err == nil {
			r, err = d.make(ctx)
		}
	}
	r.Base.Name = o.Image // one image can have several names
	if err == nil {
		err = o.Cache.Done(d.recipe.Fingerprint())
	}
	if err == nil && !o.Cache.Published(r, o.Manifest) {
		err = o.Cache.Publish(r, o.Manifest)
	}
	if err != nil {
		return DockerResult{}, err
	}
	return d.result(r, reused), nil
}

// docker is one preparation.
type docker struct {
	DockerOptions
	e      *dockerengine.Engine
	base   image.InspectResponse // no ID: not on the engine
	recipe imagecache.Recipe
}

func (d *docker) lookAtBase(ctx context.Context) error {
	i, presence, err := d.e.Image(ctx, d.Image)
	if presence == resource.Unobserved {
		return failure.Wrap(err, failure.NotReady, "look for the base image %s", d.Image)
	}
	d.base = i
	return nil
}

// published is the receipt at its place, if it holds. Where the base image is not on the engine any more, nothing says that it
// has changed.
func (d *docker) published(ctx context.Context) (imagecache.Receipt, error) {
	r, err := d.Cache.Load(d.Manifest, d.base.ID)
	if err == nil && (r.Base.Name != d.Image || !d.Cache.Published(r, d.Manifest)) {
		err = failure.New(failure.NotReady, "the receipt %s is for the base image %s", d.Manifest, r.Base.Name)
	}
	if err == nil {
		_, err = d.Cache.Prepared(ctx, d.e, r)
	}
	return r, err
}

func (d *docker) result(r imagecache.Receipt, reused bool) DockerResult {
	return DockerResult{
		Image: r.Image, Manifest: d.Manifest, Reused: reused, Tag: r.Tag, Base: r.Base, Program: r.Program, Version: r.Version, Recipe: r.Recipe,
	}
}

func (d *docker) pull(ctx context.Context) error {
	d.Say("pulling the image %s\n", d.Image)
	if _, err := d.e.Pull(ctx, d.Image, nil); err != nil {
		if ctx.Err() != nil {
			return failure.Wrap(context.Cause(ctx), failure.Cancelled, "pull the image %s", d.Image)
		}
		e := failure.New(failure.NotReady, "the base image %s is not on the engine, and could not be pulled", d.Image).
			WithHint("docker pull %s   # with your login for the registry%s", failure.Quote(d.Image), d.then())
		e.Err = err
		return e
	}
	if err := d.lookAtBase(ctx); err != nil {
		return err
	}
	if d.base.ID == "" {
		return failure.New(failure.NotReady, "the image %s was pulled, and is not on the engine", d.Image).WithHint("docker pull %s", failure.Quote(d.Image))
	}
	return nil
}

// then is what to type once a base image was pulled, or instead of it: of the standard image, since only a module of the project
// knows how it makes others.
func (d *docker) then() string {
	if d.Manifest != d.Cache.StandardFile() {
		return ""
	}
	again := d.Cache.Prepare
	if d.Image != imagecache.DefaultBase {
		again += " --image " + failure.Quote(d.Image)
	}
	return "\n" + again + "\n" + d.Cache.Prepare + " --image REF   # to begin with another image"
}

// extra is what a claim remembers for sweepers: whose lock says that its preparation lives.
type extra struct {
	Lock string `json:"lock"`
}

// sweep ends the containers of preparations that were killed. One that cannot be ended now stays for cleanup: it is in
// nobody's way.
func (d *docker) sweep(ctx context.Context) error {
	list, err := d.Claims.List(ctx, claims.Filter{NoRun: true, Kind: claims.KindPreparation, Outstanding: true})
	if err != nil {
		return err
	}
	mine := d.Cache.LockFile(d.recipe.Fingerprint())
	for _, c := range list {
		var x extra
		_ = json.Unmarshal(c.Extra, &x)
		if _, held, err := lock.Query(x.Lock); x.Lock != mine && (held || err != nil) {
			continue // its preparation lives
		}
		if _, err := d.Claims.Release(ctx, c.ID); err != nil {
			d.Say("an earlier preparation left something: %v\n%s\n", err, c.CleanupHint())
		}
	}
	return ctx.Err()
}

// make builds, proves and records the image, from whatever an earlier attempt has left.
func (d *docker) make(ctx context.Context) (imagecache.Receipt, error) {
	fingerprint := d.recipe.Fingerprint()
	id, err := d.Cache.Left(ctx, d.e, d.recipe, d.base)
	if err == nil && id == "" {
		id, err = d.build(ctx)
	}
	if err != nil {
		return imagecache.Receipt{}, err
	}
	prepared, presence, err := d.e.Image(ctx, id)
	if presence != resource.Present {
		return imagecache.Receipt{}, errors.Join(failure.New(failure.NotReady, "the prepared image %s is gone from the engine", id).WithHint("%s", d.Cache.Prepare), err)
	}
	err = d.inContainer(ctx, imagecache.Prove, prepared, func(ctx context.Context, container string) error {
		return d.Cache.Prove(ctx, d.e, container, d.recipe.Platform)
	})
	if errors.Is(err, imagecache.ErrUnproved) {
		return imagecache.Receipt{}, errors.Join(err, d.Cache.Discard(ctx, d.e, prepared, fingerprint))
	}
	if err == nil {
		err = d.Cache.Name(ctx, d.e, id, fingerprint)
	}
	if err != nil {
		return imagecache.Receipt{}, err
	}
	r := d.Cache.NewReceipt(id, d.recipe, imagecache.Base{Name: d.Image, ID: d.base.ID}, d.e.Facts().Identity(), d.Now())
	if err := d.Cache.Record(r); err != nil {
		return imagecache.Receipt{}, err
	}
	return r, nil
}

// build installs the program in a container of the base image and builds the image from what is there then.
func (d *docker) build(ctx context.Context) (string, error) {
	path := d.Cache.LogFile(d.recipe.Fingerprint())
	if err := files.Remove(path); err != nil {
		return "", failure.Wrap(err, failure.HomeInvalid, "remove the log of an earlier build")
	}
	log, err := files.Append(path)
	if err != nil {
		return "", failure.Wrap(err, failure.HomeInvalid, "write the build log")
	}
	defer log.Close()
	var id string
	err = d.inContainer(ctx, imagecache.Install, d.base, func(ctx context.Context, container string) (err error) {
		if err := d.Cache.Install(ctx, d.e, container, d.Image, d.Settings, log, d.Say); err != nil {
			return err
		}
		d.Say("building the image\n")
		b, err := d.Cache.Begin(d.recipe.Fingerprint(), d.base.ID, d.Now())
		if err != nil {
			return err
		}
		id, err = d.Cache.Assemble(ctx, d.e, container, d.recipe, d.base, b, log)
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
func (d *docker) inContainer(ctx context.Context, purpose imagecache.Purpose, from image.InspectResponse, use func(ctx context.Context, container string) error) error {
	nonce := make([]byte, 16)
	_, _ = rand.Read(nonce) // never fails
	operation := "prepare/" + string(purpose) + "/" + hex.EncodeToString(nonce)
	id := claims.ID("", operation)
	spec := d.Cache.Plan(purpose, d.e, from)
	spec.Nonce = hex.EncodeToString(nonce)
	var err error
	if spec.Binary, err = d.Binary(d.recipe.Platform); err != nil {
		return err
	}
	if purpose == imagecache.Install {
		spec.Stage, spec.Resources, spec.Network = filepath.Join(d.Cache.Dir, "stage", id), d.Resources, d.Network
		if spec.Network == "" {
			spec.Network = "bridge"
		}
	}
	rawSpec, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	rawExtra, err := json.Marshal(extra{Lock: d.Cache.LockFile(d.recipe.Fingerprint())})
	if err != nil {
		return err
	}
	c, err := d.Claims.Allocate(ctx, claims.Request{
		ID: id, Kind: claims.KindPreparation, Provider: DockerProvider, Operation: operation, Image: from.ID,
		Intent: resource.Intent{Name: owned.Name(id), Endpoint: d.e.Facts().Identity(), Spec: rawSpec}, Extra: rawExtra,
	})
	if err != nil { // whatever may have come of it is not needed any more
		if _, rerr := d.Claims.Release(context.WithoutCancel(ctx), id); !failure.Is(rerr, failure.NotFound) {
			err = errors.Join(err, rerr)
		}
		return err
	}
	crash.Point("prepare/before-use")
	err = imagecache.Start(ctx, d.e, c.Intent.Resource, spec)
	if err == nil {
		err = use(ctx, c.Intent.Resource)
	}
	crash.Point("prepare/after-use")
	if _, rerr := d.Claims.Release(context.WithoutCancel(ctx), id); rerr != nil {
		return errors.Join(err, rerr)
	}
	return err
}
