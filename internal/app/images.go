package app

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/laufwerk/laufwerk/internal/checks"
	"github.com/laufwerk/laufwerk/internal/cli"
	"github.com/laufwerk/laufwerk/internal/cli/initproject"
	cliprepare "github.com/laufwerk/laufwerk/internal/cli/prepare"
	"github.com/laufwerk/laufwerk/internal/cli/settings"
	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/imagecache"
	"github.com/laufwerk/laufwerk/internal/inside/carried"
	"github.com/laufwerk/laufwerk/internal/prepare"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/providers/docker"
	"github.com/laufwerk/laufwerk/internal/providers/openshell"
	"github.com/laufwerk/laufwerk/internal/redact"
	"github.com/laufwerk/laufwerk/internal/session"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// engines keeps one connection to each engine that a process meets.
type engines struct {
	find func() (dockerengine.Endpoint, error)
	kept keeper[*dockerengine.Engine]
}

// at is the engine at an endpoint, "" is the one that the settings lead to.
func (e *engines) at(ctx context.Context, host string) (*dockerengine.Engine, error) {
	if e == nil {
		return nil, failure.New(failure.SettingsInvalid, "no engine is looked for before the settings are right").WithHint("laufwerk config")
	}
	at, err := e.find()
	switch {
	case host == "" && err != nil:
		return nil, err
	case host != "" && (err != nil || at.Host != host):
		at = dockerengine.Endpoint{Host: host, Origin: "the claim"}
	}
	return e.kept.get(ctx, at.Host, "the engine at "+at.String(), func(ctx context.Context) (*dockerengine.Engine, error) {
		return dockerengine.Connect(ctx, at)
	})
}

// host is where the settings lead to.
func (e *engines) host() (string, error) {
	if e == nil {
		return "", nil
	}
	at, err := e.find()
	return at.Host, err
}

// newEngines finds engines by the environment and the setting docker.host.
func newEngines(env *system.Env, set *settings.Settings) *engines {
	return &engines{find: dockerengine.Finder{Vars: env.Vars, Home: env.Home(), Setting: set.Text(settings.DockerHost), UID: system.UID()}.Find}
}

// preparer prepares images of targets.
type preparer struct {
	d    *cli.Deps
	open cli.OpenRuns
}

// wanted is one image.
type wanted struct {
	base     string // "" is what the standard image has, or has by default
	cache    imagecache.Cache
	manifest string // where the receipt is written; "" makes the standard image
}

func (p preparer) prepare(ctx context.Context, w wanted, r cliprepare.ImageRequest) (prepare.DockerResult, error) {
	set, err := p.d.Settings()
	if err != nil {
		return prepare.DockerResult{}, err
	}
	s, err := p.open(ctx, true)
	if err != nil {
		return prepare.DockerResult{}, err
	}
	install, err := r.Settings.Read(p.d.Env.Vars)
	if err != nil {
		return prepare.DockerResult{}, err
	}
	at, programs := newEngines(p.d.Env, set), carried.New(system.Program(), s.Home.Dir(), carried.Files())
	return prepare.Docker(ctx, prepare.DockerOptions{
		Cache: w.cache, Engine: func(ctx context.Context) (*dockerengine.Engine, error) { return at.at(ctx, "") }, Claims: s.Driver,
		Binary: func(platform string) (string, error) { return programs.Path(ctx, platform) },
		Now:    p.d.Env.Now, Command: "laufwerk " + redact.Line(strings.Join(p.d.Env.Args, " ")), Wait: prepare.DefaultWait, Say: r.Say,
		Image: w.base, Manifest: w.manifest, Settings: install, Network: r.Network, Resources: r.Resources,
	})
}

// engine is the engine that the settings lead to.
func (p preparer) engine(ctx context.Context) (*dockerengine.Engine, error) {
	set, err := p.d.Settings()
	if err != nil {
		return nil, err
	}
	return newEngines(p.d.Env, set).at(ctx, "")
}

// cache is the one in the directory that an option names, for targets of a kind.
func (p preparer) cache(kind, option, root string) (imagecache.Cache, error) {
	set, err := p.d.Settings()
	if err != nil {
		return imagecache.Cache{}, err
	}
	home, err := set.Home()
	if kind == openshell.Kind {
		return imagecache.OpenShell(imagecache.OpenShellDirectory(option, root, p.d.Env.Home(), home)), err
	}
	return imagecache.Docker(imagecache.Directory(option, root, p.d.Env.Home(), home)), err
}

// images is cliprepare.Images.
func (p preparer) images(ctx context.Context, r cliprepare.ImageRequest) ([]cliprepare.Image, error) {
	list := r.Targets
	if list == nil { // the standard image
		list = []targets.Definition{{Kind: r.Kind, Options: json.RawMessage("{}")}}
	}
	var out []cliprepare.Image
	for _, t := range list {
		one, err := p.target(ctx, t, r)
		if err == nil || one.Image != "" { // what fails then is the sandbox from it
			out = append(out, one)
		}
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

func (p preparer) target(ctx context.Context, t targets.Definition, r cliprepare.ImageRequest) (cliprepare.Image, error) {
	out := cliprepare.Image{Target: t.ID}
	need, err := targets.PreparationOf(t.Options)
	if err != nil || need.Own {
		return out, err
	}
	if r.Cache != "" {
		need.Directory = r.Cache
	}
	w := wanted{base: r.Image, manifest: need.Manifest}
	if w.cache, err = p.cache(t.Kind, need.Directory, r.Root); err != nil {
		return out, err
	}
	if w.manifest != "" && w.base == "" {
		if w.base, err = baseOf(w.manifest); err != nil {
			return out, err
		}
	}
	made, err := p.prepare(ctx, w, r)
	if err != nil {
		return out, err
	}
	out.Image, out.Manifest, out.Reused = made.Image, made.Manifest, made.Reused
	if t.Kind == openshell.Kind && t.ID != "" {
		out.Probe, err = p.probe(ctx, t, r.Say)
	}
	return out, err
}

// probe makes a sandbox of a target and gives it up, unless something is missing for that which is made elsewhere.
func (p preparer) probe(ctx context.Context, t targets.Definition, say func(format string, args ...any)) (*cliprepare.Probe, error) {
	s, err := p.open(ctx, true)
	if err != nil {
		return nil, err
	}
	one, ok := s.Provider(t.Kind)
	if !ok {
		return nil, failure.New(failure.Internal, "there is no provider for %s", t.Kind)
	}
	if missing := one.Ready(ctx, t, providers.Need{Workspace: true}); len(missing) > 0 {
		out := &cliprepare.Probe{Status: cliprepare.Pending, Next: missing[0].Hint}
		for _, c := range missing {
			out.Waiting = append(out.Waiting, c.Message)
		}
		return out, nil
	}
	say("making a sandbox from it, and removing it\n")
	list, err := session.Prober{Driver: s.Driver, Home: s.Home.Dir(), Now: p.d.Env.Now}.Probe(ctx, one, t)
	if err != nil {
		return nil, failure.Wrap(err, failure.NotReady, "the image is prepared, and no sandbox can be made from it")
	}
	for _, c := range list {
		if c.Status == checks.Fail {
			return nil, failure.New(failure.NotReady, "the image is prepared, and a sandbox from it does not work: %s", c.Message).WithHint("%s", c.Fix)
		}
	}
	return &cliprepare.Probe{Status: cliprepare.Passed}, nil
}

// initialise is initproject.Prepare: as `prepare docker --target`, without options.
func (p preparer) initialise(load cliprepare.Project) initproject.Prepare {
	return func(ctx context.Context, root, kind, target string) (*initproject.Prepared, error) {
		if kind != docker.Kind {
			return nil, nil
		}
		project, err := load(ctx, root)
		if err != nil {
			return nil, err
		}
		for _, t := range project.Targets {
			if t.ID != target {
				continue
			}
			made, err := p.target(ctx, t, cliprepare.ImageRequest{Root: root, Say: p.d.UI.Talkf})
			if err != nil || made.Image == "" {
				return nil, err
			}
			return &initproject.Prepared{Image: made.Image, Manifest: made.Manifest, Reused: made.Reused}, nil
		}
		return nil, failure.New(failure.Internal, "the project has no target %q after it was written", target)
	}
}

// baseOf is the name of the image that a manifest's image was made from. The failure is of kind NotReady, where the manifest does
// not say from what that can be made again.
func baseOf(path string) (string, error) {
	var was imagecache.Receipt
	err := files.ReadJSON(path, &was)
	if err == nil && was.Base.Name != "" {
		return was.Base.Name, nil
	}
	e := failure.New(failure.NotReady, "nothing says what the prepared image of the manifest %s was made from", path).WithPaths(path).
		WithHint("%s", makeManifest)
	e.Err = err
	return "", e
}
