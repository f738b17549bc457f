// Package docker runs sessions in containers of a Docker engine on this host: one container a session, with the workspace and
// the session's private directory mounted, no way to new privileges, and no credential in its image, its configuration, the
// arguments of its processes or its writable layer.
package docker

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"sync"
	"time"

	api "github.com/docker/docker/api/types/image"

	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// Images knows what the cache of prepared images holds.
type Images interface {
	// Prepared is the id of a prepared image: of the standard one in a cache's directory ("" is the default one), or of a
	// manifest. What is missing or stale is a failure of kind NotReady with the command to type.
	Prepared(ctx context.Context, q Wanted) (id string, err error)
	// Carries says whether an image carries the pinned Codex, by its label: nil if it does.
	Carries(i api.InspectResponse) error
	// Binary is the program's path below the directory of a bootstrap, for an engine's architecture ("amd64").
	Binary(program, arch string) (string, error)
	// Install is how the pinned Codex is installed: the files that it needs beside each other, and what bash does there.
	Install() (files map[string][]byte, command string)
	// Prefix is the directory of the bootstrap in a prepared image.
	Prefix() string
}

// Wanted is what a target says of its prepared image.
type Wanted struct {
	Target    string
	Directory string // of the cache, as the target has it
	Manifest  string // of an image that loadPreparedCodexImage gave
	Image     string // its id
	Engine    *dockerengine.Engine
}

// Config is what a Provider needs.
type Config struct {
	Executable string // this binary, which runs inside as the supervisor
	Vars       map[string]string
	Home       string // the user's home directory
	Now        func() time.Time
	UID, GID   int // of the worker
	Find       func() (dockerengine.Endpoint, error)
	Images     Images
}

// Provider is the docker target. It keeps one connection to each engine that it has met.
type Provider struct {
	c       Config
	mu      sync.Mutex
	engines map[string]*dockerengine.Engine // by socket
}

var _ providers.Provider = (*Provider)(nil)

// New makes it; nothing is connected to before it is needed.
func New(c Config) *Provider {
	c.Vars = maps.Clone(c.Vars)
	return &Provider{c: c, engines: map[string]*dockerengine.Engine{}}
}

// Info says what a container enforces.
func (*Provider) Info() providers.Info {
	return providers.Info{
		Kind:      Kind,
		Isolation: "a container: its own processes, files and limits; the kernel is this host's",
		ReadOnly:  true,
		SkillsReason: "this version does not bring skills into a container; " +
			"put their text into `instructions`",
		Limits: []string{"cpus", "memoryBytes", "swapBytes", "pids"},
	}
}

// Validate holds the rules of createDockerExecution.
func (*Provider) Validate(given json.RawMessage) (providers.Definition, error) {
	return Validate(given)
}

// Credentials are the logins that a described target gives to agents.
func (*Provider) Credentials(def json.RawMessage) []string { return Credentials(def) }

// Endpoint is the engine's identity.
func (p *Provider) Endpoint(ctx context.Context, _ providers.Definition) (string, error) {
	e, err := p.engine(ctx, "")
	if err != nil {
		return "", err
	}
	return e.Facts().Identity(), nil
}

// engine is a connection to the engine behind a socket, "" is the one that this worker's settings lead to.
func (p *Provider) engine(ctx context.Context, host string) (*dockerengine.Engine, error) {
	at := dockerengine.Endpoint{Host: host, Origin: "the claim"}
	if host == "" {
		var err error
		if at, err = p.c.Find(); err != nil {
			return nil, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if e, ok := p.engines[at.Host]; ok {
		return e, nil
	}
	e, err := dockerengine.Connect(ctx, at)
	if err != nil {
		return nil, err
	}
	p.engines[at.Host] = e
	return e, nil
}

// known is the engine that an intent names. Where another one answers on its socket, the one that the settings lead to may
// be it: a socket can move, an identity cannot.
func (p *Provider) known(ctx context.Context, in providers.Intent, s spec) (*dockerengine.Engine, error) {
	e, err := p.engine(ctx, s.Engine)
	if err == nil && e.Facts().Identity() == in.Endpoint {
		return e, nil
	}
	other, oerr := p.engine(ctx, "")
	if oerr == nil && other.Facts().Identity() == in.Endpoint {
		return other, nil
	}
	if err != nil {
		return nil, err
	}
	return nil, anotherEngine(in, e.Facts().Identity())
}

func anotherEngine(in providers.Intent, here string) error {
	return failure.New(failure.NotReady, "it was made on the %s, and the engine here is the %s", in.Endpoint, here).
		WithHint("start that engine again, or point DOCKER_HOST at it")
}

// decode reads the options of a definition; of the zero definition it is the zero config.
func decode(def providers.Definition) (c config, err error) {
	if len(def.Options) > 0 {
		err = json.Unmarshal(def.Options, &c)
	}
	return c, err
}

// Ready says what is missing.
func (p *Provider) Ready(ctx context.Context, def providers.Definition, need providers.Need) []failure.Condition {
	var out []failure.Condition
	say := func(id string, err error) { out = append(out, condition(id, err)) }
	c, err := decode(def)
	if err != nil {
		say("options", err)
		return out
	}
	for _, name := range c.Env.Missing(p.c.Vars) {
		say("env", fmt.Errorf("the variable %s, which the target %q takes from the worker's environment, is not set", name, def.ID))
	}
	e, err := p.engine(ctx, "")
	if err != nil {
		say("engine", err)
		return out
	}
	if err := p.fits(e.Facts()); err != nil {
		say("engine", err)
		return out
	}
	if err := enforced(c.Resources, e.Facts()); err != nil {
		say("limits", err)
	}
	if _, err := p.image(ctx, e, c); err != nil {
		say("image", err)
	}
	return append(out, p.readyFor(ctx, e, need.Program, c)...)
}

// fits says why sessions cannot run on an engine at all.
func (p *Provider) fits(f dockerengine.Facts) error {
	if f.OS != "linux" || f.Arch != runtime.GOARCH || runtime.GOOS != "linux" {
		return failure.New(failure.NotReady, "the engine runs %s/%s containers, and this build of laufwerk is for %s/%s: it carries no supervisor for the engine",
			f.OS, f.Arch, runtime.GOOS, runtime.GOARCH)
	}
	return nil
}

// enforced says which limit the engine would drop without an error.
func enforced(r targets.Resources, f dockerengine.Facts) error {
	for _, l := range []struct {
		option      string
		wanted, can bool
	}{
		{"cpus", r.CPUs > 0, f.CPU}, {"memoryBytes", r.MemoryBytes > 0, f.Memory},
		{"swapBytes", r.SwapBytes != nil, f.Swap}, {"pids", r.PIDs > 0, f.Pids},
	} {
		if l.wanted && !l.can {
			return failure.New(failure.NotReady, "the engine cannot enforce `resources.%s` here: the kernel's control group for it is not available to it", l.option).
				WithHint("docker info")
		}
	}
	return nil
}

func condition(id string, err error) failure.Condition {
	text := err.Error()
	if f := failure.As(err); f != nil && f.Hint != "" {
		text += "; type: " + f.Hint
	}
	return failure.Condition{ID: Kind + "." + id, Message: text}
}

// selected is the image of a target's sessions.
type selected struct {
	image    api.InspectResponse
	prepared bool // it carries the pinned Codex
}

// image finds it on the engine, and never fetches one.
func (p *Provider) image(ctx context.Context, e *dockerengine.Engine, c config) (selected, error) {
	ref, prepared := c.Image, false
	if ref == "" {
		w := Wanted{Target: c.ID, Directory: c.ImageCacheDirectory, Engine: e}
		if c.Prepared != nil {
			w.Image, w.Manifest = c.Prepared.Image, c.Prepared.Manifest
		}
		id, err := p.c.Images.Prepared(ctx, w)
		if err != nil {
			return selected{}, err
		}
		ref, prepared = id, true
	}
	i, presence, err := e.Image(ctx, ref)
	switch {
	case presence == providers.Absent && prepared:
		return selected{}, failure.New(failure.NotReady, "the prepared image %s is not on the engine any more", ref).WithHint("laufwerk prepare docker")
	case presence == providers.Absent:
		return selected{}, failure.New(failure.NotReady, "the image %s of the target %q is not on the engine", ref, c.ID).WithHint("docker pull %s", failure.Quote(ref))
	case presence != providers.Present:
		return selected{}, failure.Wrap(err, failure.NotReady, "look for the image %s", ref)
	}
	if i.Os != "" && i.Os != "linux" {
		return selected{}, failure.New(failure.NotReady, "the image %s is for %s, and sessions run in Linux containers", ref, i.Os)
	}
	if carries := p.c.Images.Carries(i); carries == nil {
		prepared = true
	} else if c.CodexBootstrap == bootstrapPrepared {
		return selected{}, carries
	}
	return selected{image: i, prepared: prepared}, nil
}

func (p *Provider) saw(format string, args ...any) []providers.Evidence {
	return []providers.Evidence{{At: p.c.Now().UTC(), What: fmt.Sprintf(format, args...)}}
}
