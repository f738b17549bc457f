package prepare

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/image"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/imagecache"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// preparation prepares one image.
type preparation struct {
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

	engine      *dockerengine.Engine
	base        image.InspectResponse // no ID: not on the engine
	recipe      imagecache.Recipe
	fingerprint string // of the recipe
}

type preparedImage struct {
	imagecache.Receipt
	Manifest string // where the receipt is
	Reused   bool   // the image was there already
}

// run prepares the image, or finds that a receipt still holds: then nothing is built, and nothing is written but a receipt that is
// not there yet. Failures: NotReady (what the image, the engine or the network lacks; what to do is said), LockHeld with the
// holder, Retained where the end of a container could not be confirmed.
func (p preparation) run(ctx context.Context) (out preparedImage, err error) {
	p.Image = cmp.Or(p.Image, p.Cache.StandardBase(), imagecache.DefaultBase)
	p.Manifest = cmp.Or(p.Manifest, p.Cache.StandardFile())
	if p.engine, err = p.Engine(ctx); err != nil {
		return out, err
	}
	defer p.engine.Close()
	if err := p.inspectBase(ctx); err != nil {
		return out, err
	}
	r, err := p.Cache.FindCurrent(ctx, p.engine, p.Manifest, imagecache.Base{Name: p.Image, ID: p.base.ID})
	reused := err == nil
	if failure.Is(err, failure.NotReady) {
		r, reused, err = p.make(ctx)
	}
	if err != nil {
		return out, err
	}
	return preparedImage{Receipt: r, Manifest: p.Manifest, Reused: reused}, nil
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
	r, err = p.Cache.FindMade(ctx, p.engine, p.fingerprint)
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
		return failure.Wrap(err, failure.NotReady, "inspect the base image %s", p.Image)
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
		return failure.New(failure.NotReady, "the base image %s is not on the engine, and could not be pulled", p.Image).
			WithHint("docker pull %s   # with your login for the registry%s", failure.Quote(p.Image), p.afterPull()).WithCause(err)
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

// checkBase says why nothing can be built on a base image, nil if it can: what would run while it is built, or would hide what
// was built. arch is the engine's.
func checkBase(c imagecache.Cache, base image.InspectResponse, arch string) error {
	name := base.ID
	if base.Os != "linux" || base.Architecture != arch {
		return failure.New(failure.NotReady, "the image %s is for %s, and the engine runs linux/%s", name, imagecache.Platform(base), arch)
	}
	if c.Program.Binary(imagecache.Platform(base)) == "" {
		return failure.New(failure.NotReady, "there is no %s for %s", c.Program.Title, imagecache.Platform(base))
	}
	if base.Config == nil {
		return nil
	}
	if len(base.Config.OnBuild) > 0 {
		return failure.New(failure.NotReady, "the image %s has ONBUILD instructions, which would run while the prepared image is built: %s", name, strings.Join(base.Config.OnBuild, "; "))
	}
	for v := range base.Config.Volumes {
		if c.Layout.Volumeless {
			return failure.New(failure.NotReady, "the image %s has a volume at %s, and whoever removes a sandbox leaves its volumes on the engine: take that VOLUME out of its Dockerfile", name, v)
		}
		if v = path.Clean(v); v == "/" || strings.HasPrefix(c.Prefix+"/", v+"/") {
			return failure.New(failure.NotReady, "the image %s has a volume at %s, which would hide %s", name, v, c.Prefix)
		}
	}
	return nil
}

// buildImage builds, proves and records the image, from whatever an earlier attempt has left. The recipe's lock is held.
func (p *preparation) buildImage(ctx context.Context) (imagecache.Receipt, error) {
	if err := p.sweepContainers(ctx); err != nil {
		return imagecache.Receipt{}, err
	}
	id, err := p.leftImage(ctx)
	if err == nil && id == "" {
		id, err = p.installAndAssemble(ctx)
	}
	if err == nil {
		err = p.prove(ctx, id)
	}
	if err == nil {
		err = p.tag(ctx, id)
	}
	if err != nil {
		return imagecache.Receipt{}, err
	}
	return p.Cache.Record(id, p.recipe, imagecache.Base{Name: p.Image, ID: p.base.ID}, p.engine.Facts().Identity(), p.Now())
}

// leftImage is the whole image that an earlier build of the recipe left without a receipt, "" if there is none. What it left half
// done is removed.
func (p *preparation) leftImage(ctx context.Context) (string, error) {
	tagged, presence, err := p.engine.Image(ctx, p.Cache.Tag(p.fingerprint))
	if presence == resource.Unobserved {
		return "", err
	}
	if presence == resource.Present && p.isBuilt(tagged, "") {
		return tagged.ID, nil
	}
	b, ok := p.Cache.UnfinishedBuild(p.fingerprint)
	if !ok {
		return "", nil
	}
	list, err := p.engine.Images(ctx, map[string]string{imagecache.LabelBuild: b.Build})
	if err != nil {
		return "", err
	}
	found := ""
	for _, s := range list {
		i, presence, err := p.engine.Image(ctx, s.ID)
		switch {
		case presence == resource.Unobserved:
			return "", err
		case presence == resource.Absent || len(i.RepoTags) > 0: // somebody has given it a name: it is theirs now
		case found == "" && p.isBuilt(i, b.Build):
			found = i.ID
		default:
			crash.Point("imagecache/before-remove-left")
			if _, err := p.engine.RemoveImage(ctx, i.ID); err != nil {
				return "", failure.Wrap(err, failure.Failed, "remove a half-made image")
			}
			crash.Point("imagecache/after-remove-left")
		}
	}
	return found, nil
}

// isBuilt says whether an image is what a build of the recipe makes: the base image and one layer, with its labels. build is the
// label of one build, "" is any.
func (p *preparation) isBuilt(i image.InspectResponse, build string) bool {
	base := p.base.RootFS.Layers
	n := len(base)
	return i.Config != nil && i.Config.Labels[imagecache.LabelRecipe] == p.fingerprint && (build == "" || i.Config.Labels[imagecache.LabelBuild] == build) &&
		len(i.RootFS.Layers) == n+1 && slices.Equal(i.RootFS.Layers[:n], base) && imagecache.Platform(i) == p.recipe.Platform
}

// installAndAssemble installs the program in a container of the base image and builds the image from what is there then.
func (p *preparation) installAndAssemble(ctx context.Context) (string, error) {
	path := p.Cache.LogFile(p.fingerprint)
	if err := files.Remove(path); err != nil {
		return "", failure.Wrap(err, failure.HomeInvalid, "remove the log of an earlier build")
	}
	log, err := files.Append(path)
	if err != nil {
		return "", failure.Wrap(err, failure.HomeInvalid, "write the build log")
	}
	defer log.Close()
	var id string
	err = p.inContainer(ctx, toInstall, p.base, func(ctx context.Context, container string) (err error) {
		if err := p.install(ctx, container, log); err != nil {
			return err
		}
		p.Say("building the image\n")
		b, err := p.Cache.BeginBuild(p.fingerprint, p.base.ID, p.Now())
		if err != nil {
			return err
		}
		id, err = p.assemble(ctx, container, b.Build, log)
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

// assemble builds the image from the tree in a container. No step of it runs anything: it is the base image, labels, and one
// layer with the tree. The image gets no name.
func (p *preparation) assemble(ctx context.Context, container, build string, log io.Writer) (string, error) {
	file, err := dockerfile(p.recipe, p.base, build)
	if err != nil {
		return "", err
	}
	dirs := slices.Clone(p.recipe.Directories)
	for _, dir := range p.recipe.Paths {
		exists, err := p.engine.HasPath(ctx, container, dir)
		if err != nil {
			return "", failure.Wrap(err, failure.Failed, "check which programs the image %s has", p.base.ID)
		}
		if !exists {
			dirs = append(dirs, dir)
		}
	}
	tree, err := p.engine.CopyFrom(ctx, container, p.Cache.Prefix)
	if err != nil {
		return "", failure.Wrap(err, failure.Failed, "read what was installed")
	}
	defer tree.Close()
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := pack(p.recipe, w, file, dirs, tree)
		_ = w.CloseWithError(err)
		packed <- err
	}()
	crash.Point("imagecache/before-build")
	id, done, err := p.engine.Build(ctx, dockerengine.BuildInput{Context: r, Network: "none", NoCache: true, Log: log})
	crash.Point("imagecache/after-build")
	_ = r.CloseWithError(errors.New("the builder has ended"))
	_ = tree.Close()
	if perr := <-packed; done == resource.NotDone && perr != nil {
		err = perr // the builder's complaint follows from it
	}
	if done == resource.Unknown { // the answer was lost; the image may be there all the same
		if found, lerr := p.leftImage(ctx); lerr == nil && found != "" {
			return found, nil
		}
	}
	return id, failure.Wrap(err, failure.Failed, "build the prepared image")
}

// errUnproved says that an image was tried, and cannot be used.
var errUnproved = errors.New("the image cannot be used")

// prove tries a new image in a container. One that cannot be used is removed.
func (p *preparation) prove(ctx context.Context, id string) error {
	built, presence, err := p.engine.Image(ctx, id)
	if presence != resource.Present {
		return errors.Join(failure.New(failure.NotReady, "the prepared image %s is gone from the engine", id).WithHint("%s", p.Cache.Prepare), err)
	}
	err = p.inContainer(ctx, toProve, built, p.runProgram)
	if errors.Is(err, errUnproved) {
		return errors.Join(err, p.discard(ctx, built))
	}
	return err
}

// runProgram runs the program's native executable in a started container of a new image. The failure is errUnproved where that
// ran to its end, and was wrong.
func (p *preparation) runProgram(ctx context.Context, container string) error {
	var out, errs bytes.Buffer // not mixed: a warning in the middle of the version would be neither
	says := p.Cache.Program.Says
	program := path.Join(p.Cache.Prefix, p.Cache.Program.Binary(p.recipe.Platform))
	env := []string{"HOME=/tmp"}
	if name := p.Cache.Program.HomeVariable; name != "" {
		env = append(env, name+"=/tmp")
	}
	c := dockerengine.Command{Argv: []string{program, "--version"}, Env: env, Dir: "/"}
	code, _, err := p.engine.Exec(ctx, container, c, &limitedWriter{w: &out, left: 4096}, &limitedWriter{w: &errs, left: 4096})
	if err != nil {
		return failure.Wrap(err, failure.Failed, "try the prepared %s", p.Cache.Program.Title)
	}
	for line := range strings.Lines(out.String()) {
		if code == 0 && strings.TrimSpace(line) == says {
			return nil
		}
	}
	printed := strings.TrimSpace(out.String() + errs.String())
	return failure.New(failure.NotReady, "`%s --version` in the prepared image ended with %d and printed %q instead of %q", program, code, printed, says).WithHint("%s", p.Cache.Prepare).WithCause(errUnproved)
}

type limitedWriter struct {
	w    io.Writer
	left int
}

func (l *limitedWriter) Write(p []byte) (int, error) {
	take := min(len(p), l.left)
	l.left -= take
	_, err := l.w.Write(p[:take])
	return len(p), err
}

// discard removes an image that was not proved, so that the next attempt builds a new one. One that somebody named or uses
// stays, without our name.
func (p *preparation) discard(ctx context.Context, i image.InspectResponse) error {
	ref := i.ID
	if tag := p.Cache.Tag(p.fingerprint); slices.Contains(i.RepoTags, tag) {
		ref = tag
	}
	crash.Point("imagecache/before-discard")
	_, err := p.engine.RemoveImage(ctx, ref)
	crash.Point("imagecache/after-discard")
	if err == nil {
		err = p.Cache.ForgetBuild(p.fingerprint)
	}
	return failure.Wrap(err, failure.Failed, "remove the image that cannot be used")
}

// tag gives the image, which was proved, the name of its recipe.
func (p *preparation) tag(ctx context.Context, id string) error {
	crash.Point("imagecache/before-name")
	_, err := p.engine.Tag(ctx, id, p.Cache.Tag(p.fingerprint))
	crash.Point("imagecache/after-name")
	return failure.Wrap(err, failure.Failed, "name the prepared image")
}
