package prepare

import (
	"context"
	"encoding/json"

	"github.com/laufwerk/laufwerk/internal/checks"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/imagecache"
	"github.com/laufwerk/laufwerk/internal/project"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/session"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// ImageRequest says whose images are wanted, and how they are made.
type ImageRequest struct {
	Kind    string // of the targets
	Dir     string // where the search for the project starts
	Project string // the project's root, where the user names it; then it must be there
	Target  string // the only target that is meant; "" is every one of the kind, or the standard image where there is none

	Image string // the base image; "" is that of the image which is there, or the default one
	Cache string // the cache's directory, absolute; "" is that of each target
	Installation
}

// Installation is how a program is installed into an image. None of it stays there.
type Installation struct {
	Settings  InstallationSettings
	Network   string // of the engine; "" is its default
	Resources targets.Resources
}

// TargetImage is the prepared image of a target. Image is "" for a target with an image of its own, which nobody prepares.
type TargetImage struct {
	Target   string `json:"target"` // "" outside of a project
	Image    string `json:"image"`  // its id
	Manifest string `json:"manifestPath"`
	Reused   bool   `json:"reused"`          // nothing was done
	Probe    *Probe `json:"probe,omitempty"` // of targets behind a gateway: a sandbox was made from the image, and removed
}

// Probe is what a sandbox that was made for nothing but that has shown.
type Probe struct {
	Status  string   `json:"status"`
	Waiting []string `json:"waiting,omitempty"` // what the sandbox waits for
	Hint    string   `json:"hint,omitempty"`    // the command that helps

	DeprecatedNext string `json:"next,omitempty"` // Hint, for one release
}

// The statuses of a probe.
const (
	ProbePassed  = "passed"
	ProbePending = "pending" // no sandbox could be made yet
)

// Images prepares images, one target's after the other. With a failure come those that are prepared, nil where it did not come
// to that. Failures: those of the project, NotReady (the engine, the base image, the network), LockHeld with the holder, OutcomeUnknown and Retained where
// something may have been left on the engine.
func (s *Service) Images(ctx context.Context, r ImageRequest) ([]TargetImage, error) {
	root, list, err := s.targets(ctx, r)
	if err != nil {
		return nil, err
	}
	out := []TargetImage{}
	for _, t := range list {
		one, err := s.targetImage(ctx, root, t, r)
		if err == nil || one.Image != "" { // what fails then is the sandbox from it
			out = append(out, one)
		}
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// targets are those that a request means. Without an id there need be no project.
func (s *Service) targets(ctx context.Context, r ImageRequest) (root string, list []targets.Definition, err error) {
	home, err := s.Home()
	if err != nil {
		return "", nil, err
	}
	standard := []targets.Definition{{Kind: r.Kind, Options: json.RawMessage("{}")}}
	root, err = project.Find(r.Dir, r.Project, home)
	if failure.Is(err, failure.ProjectNotFound) && r.Target == "" && r.Project == "" {
		return "", standard, nil
	}
	if err != nil {
		return "", nil, err
	}
	p, err := s.Project(ctx, root)
	if err != nil {
		return "", nil, err
	}
	list, err = p.TargetsOf(r.Kind, r.Target, "laufwerk prepare "+r.Kind)
	if err == nil && len(list) == 0 {
		list = standard
	}
	return root, list, err
}

// NewTarget prepares the image of a target that a project has just got. It is nil where there is nothing to prepare, or not yet:
// behind a gateway, a login has to be provisioned first.
func (s *Service) NewTarget(ctx context.Context, root, kind, id string) (*TargetImage, error) {
	if k, ok := s.kind(kind); !ok || k.Gateway {
		return nil, nil
	}
	p, err := s.Project(ctx, root)
	if err != nil {
		return nil, err
	}
	for _, t := range p.Targets {
		if t.ID != id {
			continue
		}
		image, err := s.targetImage(ctx, root, t, ImageRequest{Kind: kind})
		if err != nil || image.Image == "" {
			return nil, err
		}
		return &image, nil
	}
	return nil, failure.New(failure.Internal, "the project has no target %q after it was written", id)
}

func (s *Service) targetImage(ctx context.Context, root string, t targets.Definition, r ImageRequest) (TargetImage, error) {
	out := TargetImage{Target: t.ID}
	need, err := targets.PreparationOf(t.Options)
	if err != nil || need.Own {
		return out, err
	}
	if r.Cache != "" {
		need.Directory = r.Cache
	}
	credentials := t.Credentials()
	if need.Manifest != "" {
		credentials = nil
	}
	cache, err := s.cache(t.Kind, need.Directory, root, credentials)
	if err != nil {
		return out, err
	}
	base := r.Image
	if base == "" && need.Manifest != "" {
		if base, err = baseOf(need.Manifest); err != nil {
			return out, err
		}
	}
	made, err := s.image(ctx, cache, base, need.Manifest, r.Installation)
	if err != nil {
		return out, err
	}
	out.Image, out.Manifest, out.Reused = made.Image, made.Manifest, made.Reused
	if k, _ := s.kind(t.Kind); k.Gateway && t.ID != "" {
		out.Probe, err = s.probe(ctx, t)
	}
	return out, err
}

// image prepares one image. manifest is where its receipt is written, "" for the standard image.
func (s *Service) image(ctx context.Context, cache imagecache.Cache, base, manifest string, how Installation) (preparedImage, error) {
	opened, err := s.Open(ctx, true)
	if err != nil {
		return preparedImage{}, err
	}
	settings, err := how.Settings.read(s.Vars)
	if err != nil {
		return preparedImage{}, err
	}
	return preparation{
		Cache: cache, Engine: s.Engine, Claims: opened.Claims, Binary: opened.Binary, Now: s.Now, Command: s.Command, Wait: DefaultWait, Say: s.Say,
		Image: base, Manifest: manifest, Settings: settings, Network: how.Network, Resources: how.Resources,
	}.run(ctx)
}

// baseOf is the name of the image that a manifest's image was made from. The failure is of kind NotReady, where the manifest does
// not say from what that can be made again.
func baseOf(manifest string) (string, error) {
	var r imagecache.Receipt
	err := files.ReadJSON(manifest, &r)
	if err == nil && r.Base.Name != "" {
		return r.Base.Name, nil
	}
	return "", failure.New(failure.NotReady, "nothing says what the prepared image of the manifest %s was made from", manifest).WithPaths(manifest).
		WithHint("%s", makeManifest).WithCause(err)
}

// probe makes a sandbox of a target and gives it up, unless something is missing for that which is made elsewhere.
func (s *Service) probe(ctx context.Context, t targets.Definition) (*Probe, error) {
	opened, err := s.Open(ctx, true)
	if err != nil {
		return nil, err
	}
	provider, ok := opened.Provider(t.Kind)
	if !ok {
		return nil, failure.New(failure.Internal, "there is no provider for %s", t.Kind)
	}
	if missing := provider.Ready(ctx, t, providers.Need{Workspace: true}); len(missing) > 0 {
		out := &Probe{Status: ProbePending, Hint: missing[0].Hint, DeprecatedNext: missing[0].Hint}
		for _, c := range missing {
			out.Waiting = append(out.Waiting, c.Message)
		}
		return out, nil
	}
	s.Say("making a sandbox from it, and removing it\n")
	list, err := session.Prober{Driver: opened.Claims, Home: opened.Home.Dir(), Now: s.Now}.Probe(ctx, provider, t)
	if err != nil {
		return nil, failure.Wrap(err, failure.NotReady, "the image is prepared, and no sandbox can be made from it")
	}
	for _, c := range list {
		if c.Status == checks.Fail {
			return nil, failure.New(failure.NotReady, "the image is prepared, and a sandbox from it does not work: %s", c.Message).WithHint("%s", c.Hint)
		}
	}
	return &Probe{Status: ProbePassed}, nil
}
