// Package openshell runs sessions in the sandboxes of an OpenShell gateway on this host: one sandbox a session, confined by the
// kernel and by the target's network policy, with the workspace and the session's private directory mounted. The login stays
// with the gateway; agents see placeholders.
package openshell

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	api "github.com/docker/docker/api/types/image"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/imagecache"
	client "github.com/laufwerk/laufwerk/internal/openshell"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/providers/guestclient"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// Config is what a Provider needs.
type Config struct {
	Executable string // this binary, which runs inside as the supervisor
	Vars       map[string]string
	Home       string // the user's home directory
	Now        func() time.Time
	UID, GID   int // of the worker
	// Gateway is a connection to the gateway that is registered under an alias now, made once or kept.
	Gateway func(ctx context.Context, alias string) (*client.Gateway, error)
	// Connect is a connection to the engine behind a socket ("unix:///…"), made once or kept; "" is the one that the worker's
	// settings lead to.
	Connect func(ctx context.Context, host string) (*dockerengine.Engine, error)
	Host    func() (string, error) // which that is; nil where it is not known without connecting
	State   string                 // $LAUFWERK_HOME
	// Programs are the agent programs of this build.
	Programs agent.Programs
}

// Provider is the openshell target.
type Provider struct {
	c            Config
	w            waitLimits
	landlock     func() (version int, err error) // of the kernel
	environments sync.Map                        // of programs in sandboxes that were entered, by the sandbox's id
	takenSockets guestclient.TakenSockets
	compared     sync.Map // the ids of the sandboxes that were compared with their intents by this process
	// cleared are the ids of sandboxes that this process deleted and whose containers were there and are gone: the observation that
	// follows need not ask the engine again.
	cleared sync.Map
}

// waitLimits bound waits.
type waitLimits struct {
	ready    time.Duration // a sandbox comes up
	absent   time.Duration // a deleted sandbox goes
	settle   time.Duration // one whose creation was not answered appears
	landing  time.Duration // the container of one that is coming up gets to the engine
	deletion time.Duration // a row says DELETING whose container is gone, until the gateway has forgotten it
	pause    time.Duration // the least between two looks
	// patience bounds our own commands inside, which other processes there can stop.
	patience time.Duration
}

// New makes a provider, which connects when it is needed. Measured with eight sandboxes at once: ready after 2.2 s, deleted after
// 0.6 s, their rows 0.2 s after their containers.
func New(c Config) *Provider {
	c.Vars = maps.Clone(c.Vars)
	return &Provider{c: c, landlock: system.Landlock, w: waitLimits{
		ready: time.Minute, absent: 30 * time.Second, settle: 5 * time.Second, landing: 5 * time.Second, deletion: 3 * time.Second, pause: 5 * time.Millisecond, patience: guestclient.CommandLimit,
	}}
}

// Info says what a sandbox enforces.
func (p *Provider) Info() providers.Info {
	return providers.Info{
		Kind:      Kind,
		Isolation: "a sandbox of an OpenShell gateway: a container with hard Landlock rules, whose programs reach the network by the target's policy only",
		ReadOnly:  true,
		Skills:    true,
		SandboxReason: "the kernel lets no program in an OpenShell sandbox make a sandbox of its own, so that every command of the agent would fail; " +
			"the sandbox confines it, and `access: \"read-only\"` of Session.open lets it only read",
		Limits:   []string{"cpus", "memoryBytes"},
		Programs: runnable(p.c.Programs),
	}
}

// runnable names the programs that run in sandboxes, sorted: those that need no login, or one that a gateway can hold.
func runnable(programs agent.Programs) []string {
	out := []string{}
	for _, p := range programs {
		if c := p.Credential(); c == nil || c.Profile != nil {
			out = append(out, p.Name())
		}
	}
	slices.Sort(out)
	return out
}

// Name is that of a claim's sandbox.
func (*Provider) Name(claim string) string { return client.Name(claim) }

func decode(def targets.Definition) (config, error) { return targets.Decode[config](def) }

// Endpoint is the gateway's identity.
func (p *Provider) Endpoint(ctx context.Context, def targets.Definition) (string, error) {
	c, err := decode(def)
	if err != nil {
		return "", err
	}
	g, err := p.c.Gateway(ctx, c.Gateway)
	if err != nil {
		return "", err
	}
	return g.Registration().Identity(), nil
}

// gateway connects to an intent's gateway, which must still be registered under its alias.
func (p *Provider) gateway(ctx context.Context, in resource.Intent, s spec) (*client.Gateway, error) {
	g, err := p.c.Gateway(ctx, s.Gateway)
	if err != nil {
		return nil, err
	}
	if identity := g.Registration().Identity(); identity != in.Endpoint {
		return nil, otherGatewayError(in, s, identity)
	}
	return g, nil
}

// otherGatewayError is the failure where another gateway than the intent's is registered.
func otherGatewayError(in resource.Intent, s spec, identity string) error {
	again := "laufwerk resume " + in.Run
	if in.Run == "" {
		again = "laufwerk cleanup --all"
	}
	return failure.New(failure.NotReady, "another gateway is registered as %q: it is the %s, and not the %s", s.Gateway, identity, in.Endpoint).
		WithHint("%s   # once that gateway is registered under this alias again\n%s --accept-identity %s   # if it is the same gateway, with new certificates or at another port",
			again, again, failure.Quote(in.Endpoint+"="+identity)).
		WithField("recorded", in.Endpoint).WithField("answers", identity)
}

// engine connects to the engine of an intent's sandbox.
func (p *Provider) engine(ctx context.Context, s spec) (*dockerengine.Engine, error) {
	engines := dockerengine.Engines{Connect: p.c.Connect, Host: p.c.Host}
	return engines.FindByIdentity(ctx, s.Socket, s.Engine, func(e *dockerengine.Engine) error { return otherEngineError(s, e) })
}

func otherEngineError(s spec, e *dockerengine.Engine) error {
	return failure.New(failure.NotReady, "another engine answers at %s: it is the %s, and the sandbox was made on the %s", e.Endpoint().Host, e.Facts().Identity(), s.Engine).
		WithHint("export LAUFWERK_DOCKER_HOST=unix:///…   # the socket at which that engine answers now, then once more")
}

// sessionBase is the gateway, engine and image of a target's sessions.
type sessionBase struct {
	config  config
	gateway *client.Gateway
	engine  *dockerengine.Engine
	image   api.InspectResponse
}

// Ready says what is missing.
func (p *Provider) Ready(ctx context.Context, def targets.Definition, need providers.Need) []failure.Condition {
	_, missing := p.find(ctx, def, need)
	return missing
}

// find finds what a session needs, and what of it is missing.
func (p *Provider) find(ctx context.Context, def targets.Definition, need providers.Need) (f sessionBase, out []failure.Condition) {
	say := func(id string, err error) { out = append(out, targets.Missing(Kind, id, err)) }
	c, err := decode(def)
	if err != nil {
		say("options", err)
		return f, out
	}
	f.config = c
	if err := p.host(); err != nil {
		say("host", err)
		return f, out
	}
	if _, err := p.landlockVersion(); err != nil {
		say("landlock", err)
	}
	g, e := p.reachBoth(ctx, c)
	if f.gateway = g.value; g.err != nil {
		say("gateway", g.err)
	}
	if f.engine = e.value; e.err == nil {
		e.err = checkEngine(f.engine.Facts())
	}
	if e.err != nil {
		say("engine", e.err)
	}
	if len(out) > 0 {
		return f, out
	}
	if err := owned.CheckLimits(f.engine.Facts(), c.Resources); err != nil {
		say("limits", err)
	}
	if f.image, err = p.image(ctx, f.engine, def, c); err != nil {
		say("image", err)
	}
	if program, ok := p.c.Programs.Find(need.Program); ok {
		if err := p.checkCarried(program, def, c); err != nil {
			say(program.Name()+".program", err)
		}
		if program.Credential() != nil {
			for _, err := range p.credentials(ctx, f.gateway, def, c) {
				say("provider", err)
			}
		}
	}
	return f, out
}

// reachResult is a connection or the error instead.
type reachResult[T any] struct {
	value T
	err   error
}

// reachBoth connects to the gateway and the engine of the settings in parallel.
func (p *Provider) reachBoth(ctx context.Context, c config) (g reachResult[*client.Gateway], e reachResult[*dockerengine.Engine]) {
	var looks sync.WaitGroup
	looks.Go(func() { g.value, g.err = p.c.Gateway(ctx, c.Gateway) })
	looks.Go(func() { e.value, e.err = p.c.Connect(ctx, "") })
	looks.Wait()
	return g, e
}

// host refuses workers whose files or processes a sandbox cannot share.
func (p *Provider) host() error {
	switch {
	case runtime.GOOS != "linux":
		return failure.New(failure.Unsupported, "OpenShell targets need a worker on Linux, on the host of the gateway; this is %s", runtime.GOOS)
	case p.c.UID == 0 || p.c.GID == 0:
		return failure.New(failure.Unsupported, "OpenShell targets need a worker that is not root: sandboxes run as the worker's user and group, and OpenShell lets neither be root's").
			WithHint("run laufwerk as an ordinary user who may use the Docker engine")
	}
	return nil
}

// landlockVersion is the version of the kernel's Landlock, which every sandbox requires.
func (p *Provider) landlockVersion() (int, error) {
	version, err := p.landlock()
	if err != nil {
		return 0, failure.New(failure.Unsupported, "the kernel does not enforce Landlock rules, which confine sandboxes: %v", err).
			WithHint("cat /sys/kernel/security/lsm   # landlock has to be in it")
	}
	return version, nil
}

// dockerDesktopOS is the system of Docker Desktop, whose engine runs in a virtual machine.
const dockerDesktopOS = "Docker Desktop"

func checkEngine(f dockerengine.Facts) error {
	switch {
	case f.System == dockerDesktopOS:
		return failure.New(failure.Unsupported, "the engine is Docker Desktop's, which runs in a virtual machine: OpenShell targets need one that runs on this host, as the gateway does").
			WithHint("export LAUFWERK_DOCKER_HOST=unix:///var/run/docker.sock   # an engine of this host")
	case f.OS != "linux" || f.Arch != runtime.GOARCH:
		return failure.New(failure.NotReady, "the engine runs %s/%s containers, and this build of laufwerk is for %s/%s: it contains no supervisor for the engine",
			f.OS, f.Arch, runtime.GOOS, runtime.GOARCH)
	case f.Rootless || f.UserNS:
		return failure.New(failure.Unsupported, "the engine maps users, so that the files that a sandbox writes would not belong to the worker's user: OpenShell targets need an engine that does not").
			WithHint("docker info --format '{{.SecurityOptions}}'")
	}
	return nil
}

// cache is where a target's prepared images are.
func (p *Provider) cache(def targets.Definition, c config) imagecache.Cache {
	k := Images()
	return k.Cache(k.CacheDirectory(c.ImageCacheDirectory, def.Root, p.c.Home, p.c.State), imagecache.NewProgram(p.program(c)))
}

// program is what the prepared images of a target carry; nil in a build with nothing to install.
func (p *Provider) program(c config) agent.Program {
	return p.c.Programs.ForImage([]string{c.Credentials.Kind})
}

// checkCarried refuses a program that would have to be in the image, and is not.
func (p *Provider) checkCarried(program agent.Program, def targets.Definition, c config) error {
	if carried := p.program(c); program.Recipe() != nil && program.Name() != carried.Name() {
		return failure.New(failure.NotReady, "the prepared images of the target %q contain %s, and not %s", def.ID, carried.Title(), program.Title())
	}
	return nil
}

// Images describes what sandboxes of OpenShell targets start from. Network policies name the folder of programs.
//
// Every directory that a sandbox's file system policy names has to be in the image, or the sandbox does not start; which ones
// those are for us, the policy says (internal/openshell/policy). bash and ip are what OpenShell's own supervisor needs.
func Images() imagecache.Kind {
	return imagecache.Kind{
		Name: Kind, Directory: "openshell", Bootstrap: "/sandbox/.harness-bootstrap", Gateway: true,
		Layout: imagecache.Layout{
			Workdir: "/sandbox", Directories: []string{"/opt", "/sandbox/home", "/sandbox/ops", "/sandbox/work"},
			Paths: []string{"/bin", "/etc", "/lib", "/lib64", "/sbin", "/tmp", "/usr"}, Tools: []string{"ip"}, Volumeless: true,
		},
		Help: imagecache.Help{
			Short: "Build the images for the sandboxes of OpenShell targets",
			Long: `Build the images of the project's OpenShell targets: a base image plus the version of %[1]s that this version of laufwerk is
made for, in /sandbox/.harness-bootstrap, where network policies expect it, and the directories that a sandbox's file system
policy names. %[1]s is installed from a lockfile with checksums, tested in a container, and recorded in a receipt; while the
receipt is valid nothing is done. The containers in which images are built have no access to workspaces and credentials.

Then a sandbox is made from the image and removed, which shows that the gateway makes sandboxes on the engine of this host, and
that they have access to files of this host. If the gateway is not registered or the target's gateway provider does not exist,
the image is built, and this test is reported as pending.

The base image needs Node.js 22 or newer with npm or pnpm, git, bash, setsid and ip (iproute2), and no VOLUME. The values of
--ca, --npmrc, --registry and --proxy are used for the installation only and are not stored in an image.`,
			Example: "$ laufwerk prepare openshell\n\n# One target, from your own base image\n$ laufwerk prepare openshell --target secure-coding --image registry.example/team/node:22",
		},
	}
}

// image finds the target's image on the engine, without a pull. The target's own image has to be a prepared one, too: nothing is
// installed in a session.
func (p *Provider) image(ctx context.Context, e *dockerengine.Engine, def targets.Definition, c config) (api.InspectResponse, error) {
	cache := p.cache(def, c)
	if c.Image == "" {
		r, err := cache.Standard()
		if err != nil {
			return api.InspectResponse{}, err
		}
		return cache.FindPrepared(ctx, e, r)
	}
	i, err := imagecache.FindOwn(ctx, e, c.Image, c.ID)
	if err != nil {
		return i, err
	}
	return i, failure.Wrap(cache.Carries(i), failure.NotReady, "the image %s of the target %q is not a prepared image", c.Image, c.ID)
}

func (p *Provider) evidence(format string, args ...any) []resource.Evidence {
	return resource.Seen(p.c.Now(), format, args...)
}

// errUnseen is the error of an observation without another one.
var errUnseen = errors.New("the gateway reports nothing about it")
