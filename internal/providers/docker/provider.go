// Package docker runs sessions in containers of a Docker engine on this host: one container a session, with the workspace and
// the session's private directory mounted, no way to new privileges, and no credential in its image, its configuration, the
// arguments of its processes or its writable layer.
package docker

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"time"

	api "github.com/docker/docker/api/types/image"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/guest/carried"
	"github.com/laufwerk/laufwerk/internal/imagecache"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/providers/guestclient"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// Config is what a Provider needs.
type Config struct {
	Executable string // this binary, which runs inside as the supervisor where the engine's platform is its own
	Carried    fs.FS  // those for other platforms, nil is none: see carried.New
	Vars       map[string]string
	Home       string // the user's home directory
	Now        func() time.Time
	UID, GID   int // of the worker
	// Connect is a connection to the engine behind a socket ("unix:///…"), made once or kept; "" is the one that the worker's
	// settings lead to.
	Connect func(ctx context.Context, host string) (*dockerengine.Engine, error)
	Host    func() (string, error) // which that is; nil where it is not known without connecting
	State   string                 // $LAUFWERK_HOME
	// Programs are the agent programs of this build.
	Programs agent.Programs
}

// Provider is the docker target.
type Provider struct {
	c            Config
	programs     carried.Programs
	patience     time.Duration
	takenSockets guestclient.TakenSockets
}

var _ providers.Provider = (*Provider)(nil)

// New makes it; nothing is connected to before it is needed.
func New(c Config) *Provider {
	c.Vars = maps.Clone(c.Vars)
	return &Provider{c: c, programs: carried.New(c.Executable, c.State, c.Carried), patience: guestclient.CommandLimit}
}

// Info says what a container enforces.
func (*Provider) Info() providers.Info {
	return providers.Info{
		Kind:      Kind,
		Isolation: "a container: its own processes, files and limits; the kernel is this host's",
		ReadOnly:  true,
		Skills:    true,
		SandboxReason: "the kernel lets no program in a container make a sandbox of its own, so that every command of the agent would fail; " +
			"the container confines it, and `access: \"read-only\"` of Session.open lets it only read",
		Limits: []string{"cpus", "memoryBytes", "swapBytes", "pids"},
	}
}

func decode(def targets.Definition) (config, error) { return targets.Decode[config](def) }

// Endpoint is the engine's identity.
func (p *Provider) Endpoint(ctx context.Context, _ targets.Definition) (string, error) {
	e, err := p.c.Connect(ctx, "")
	if err != nil {
		return "", err
	}
	return e.Facts().Identity(), nil
}

func (p *Provider) engineOf(ctx context.Context, in resource.Intent, s spec) (*dockerengine.Engine, error) {
	return owned.EngineOf(ctx, dockerengine.Engines{Connect: p.c.Connect, Host: p.c.Host}, in, s.Engine)
}

// sessionBase is what a target's sessions are made on, and of.
type sessionBase struct {
	config config
	engine *dockerengine.Engine
	image  selectedImage
}

// Ready says what is missing.
func (p *Provider) Ready(ctx context.Context, def targets.Definition, need providers.Need) []failure.Condition {
	_, missing := p.find(ctx, def, need)
	return missing
}

func (p *Provider) find(ctx context.Context, def targets.Definition, need providers.Need) (f sessionBase, out []failure.Condition) {
	say := func(id string, err error) { out = append(out, condition(id, err)) }
	c, err := decode(def)
	if err != nil {
		say("options", err)
		return f, out
	}
	for _, name := range c.Env.Missing(p.c.Vars) {
		say("env", fmt.Errorf("the variable %s, which the target %q takes from the worker's environment, is not set", name, def.ID))
	}
	e, err := p.c.Connect(ctx, "")
	if err != nil {
		say("engine", err)
		return f, out
	}
	if err := p.checkEngine(e.Facts()); err != nil {
		say("engine", err)
		return f, out
	}
	if err := owned.CheckLimits(e.Facts(), c.Resources); err != nil {
		say("limits", err)
	}
	i, err := p.image(ctx, e, def, c)
	if err != nil {
		say("image", err)
	}
	return sessionBase{config: c, engine: e, image: i}, append(out, p.readyFor(need.Program, c, i, err)...)
}

// checkEngine says why sessions cannot run on an engine at all.
func (p *Provider) checkEngine(f dockerengine.Facts) error { return p.programs.Has(platform(f)) }

// platform is that of the programs which an engine's kernel runs.
func platform(f dockerengine.Facts) string { return f.OS + "/" + f.Arch }

func condition(id string, err error) failure.Condition { return targets.Missing(Kind, id, err) }

type selectedImage struct {
	image    api.InspectResponse
	prepared bool // it carries the program of the target's prepared images, as its recipe pins it
}

// program is what the prepared images of a target carry; nil in a build with nothing to install.
func (p *Provider) program(c config) agent.Program {
	if c.CodexBootstrap != "" { // the image is named by a function that prepares the same program for every target
		return p.c.Programs.ForImage(nil)
	}
	return p.c.Programs.ForImage(c.Credentials)
}

// imageName is what messages call a target's image.
func (c config) imageName() string {
	if c.Image == "" {
		return "prepared image"
	}
	return "image " + c.Image
}

// carried says whether a program is in a target's image, which is a prepared one or not.
func (p *Provider) carried(program agent.Program, c config, prepared bool) bool {
	return prepared && program.Name() == p.program(c).Name()
}

// cache is where a target's prepared images are.
func (p *Provider) cache(def targets.Definition, c config) imagecache.Cache {
	k := Images()
	return k.Cache(k.CacheDirectory(c.ImageCacheDirectory, def.Root, p.c.Home, p.c.State), imagecache.NewProgram(p.program(c)))
}

// Images describes what sessions of Docker targets start from.
func Images() imagecache.Kind {
	return imagecache.Kind{
		Name: Kind, Bootstrap: "/opt/laufwerk/.harness-bootstrap",
		Help: imagecache.Help{
			Short: "Build the images for the containers of Docker targets",
			Long: `Build the images of the project's Docker targets: a base image plus the version of %[1]s that this version of laufwerk is made
for, installed from a lockfile with checksums, tested in a container, and recorded in a receipt. While the receipt is valid
nothing is done, so that the command can be called before every run; after an upgrade of laufwerk it builds the images again.
Outside of a project the standard image is built. The containers in which images are built have no access to workspaces and
logins.

The base image needs Node.js 22 or newer with npm or pnpm, git, bash and setsid. The values of --ca, --npmrc, --registry and
--proxy are used for the installation only and are not stored in an image.`,
			Example: "$ laufwerk prepare docker\n\n# One target, from your own base image\n$ laufwerk prepare docker --target docker --image registry.example/team/node:22\n\n" +
				"# Behind a proxy that intercepts TLS\n$ laufwerk prepare docker --proxy http://proxy.example:3128 --ca /etc/ssl/certs/ca-certificates.crt",
		},
	}
}

// image finds it on the engine, and never fetches one.
func (p *Provider) image(ctx context.Context, e *dockerengine.Engine, def targets.Definition, c config) (selectedImage, error) {
	cache := p.cache(def, c)
	i, err := inspectImage(ctx, e, cache, c)
	switch {
	case err != nil:
		return selectedImage{}, err
	case i.Os != "" && i.Os != "linux":
		return selectedImage{}, failure.New(failure.NotReady, "the image %s is for %s, and sessions run in Linux containers", c.Image, i.Os)
	}
	if err := refuseVolumes(i); err != nil {
		return selectedImage{}, err
	}
	if c.Image == "" {
		return selectedImage{image: i, prepared: true}, nil
	}
	carries := cache.Carries(i)
	if carries != nil && c.CodexBootstrap == bootstrapPrepared {
		return selectedImage{}, carries
	}
	return selectedImage{image: i, prepared: carries == nil}, nil
}

func inspectImage(ctx context.Context, e *dockerengine.Engine, cache imagecache.Cache, c config) (api.InspectResponse, error) {
	if c.Image != "" {
		return imagecache.FindOwn(ctx, e, c.Image, c.ID)
	}
	r, err := readReceipt(cache, c)
	if err != nil {
		return api.InspectResponse{}, err
	}
	return cache.FindPrepared(ctx, e, r)
}

// readReceipt is that of the prepared image which a target without one of its own uses.
func readReceipt(cache imagecache.Cache, c config) (imagecache.Receipt, error) {
	if c.Prepared == nil {
		return cache.Standard()
	}
	r, err := cache.Load(c.Prepared.Manifest, "")
	if err == nil && r.Image != c.Prepared.Image {
		err = failure.New(failure.NotReady, "the image of the manifest %s was prepared again since the project was loaded", c.Prepared.Manifest)
	}
	return r, err
}
