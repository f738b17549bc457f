package prepare

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/imagecache"
	"github.com/laufwerk/laufwerk/internal/options"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// The functions of the SDK that ask the host. Their images are for Docker targets.
const (
	loadPreparedCodexImage = "loadPreparedCodexImage"
	prepareCodexImage      = "prepareCodexImage"
	prepareDockerCodex     = "prepareDockerCodex"

	callsKind = "docker"
)

// makeManifest is how a manifest comes to be.
const makeManifest = "laufwerk script FILE.ts --call NAME   # a function that calls prepareCodexImage with this manifestPath"

// loadedImage is the answer to loadPreparedCodexImage.
type loadedImage struct {
	Image    string `json:"image"`
	Manifest string `json:"manifestPath"`
}

// AnswerConfig answers what configs and workflows may ask: what is there. Preparing takes effect, and is for scripts.
func (s *Service) AnswerConfig(_ context.Context, root, function string, args json.RawMessage) (json.RawMessage, error) {
	switch function {
	case loadPreparedCodexImage:
		return s.loadImage(root, args)
	case prepareCodexImage, prepareDockerCodex:
		return nil, failure.New(failure.Unsupported, "%s is not for configs and workflows, which may be loaded at any time: call it in a module of its own, with `laufwerk script`", function).
			WithHint("laufwerk script FILE.ts --call NAME")
	}
	return nil, failure.New(failure.Unsupported, "%s is not part of this build", function)
}

// AnswerScript answers what scripts may ask in addition.
func (s *Service) AnswerScript(ctx context.Context, root, function string, args json.RawMessage) (json.RawMessage, error) {
	switch function {
	case prepareDockerCodex:
		made, err := s.scriptImage(ctx, root, args, "image", "cacheDirectory", "resources")
		if err != nil {
			return nil, err
		}
		return json.Marshal(map[string]any{"image": made.Image, "manifestPath": made.Manifest, "reused": made.Reused})
	case prepareCodexImage:
		made, err := s.scriptImage(ctx, root, args, "image", "manifestPath", "resources")
		if err != nil {
			return nil, err
		}
		return json.Marshal(made.Image)
	}
	return s.AnswerConfig(ctx, root, function, args)
}

// AnswerPreparedConfig answers what the config of a project may ask whose images are being prepared: a stale manifest is no
// failure then, since it is what is made anew.
func (s *Service) AnswerPreparedConfig(ctx context.Context, root, function string, args json.RawMessage) (json.RawMessage, error) {
	answer, err := s.AnswerConfig(ctx, root, function, args)
	if function != loadPreparedCodexImage || !failure.Is(err, failure.NotReady) {
		return answer, err
	}
	path, _, argErr := s.manifestArguments(root, args)
	if argErr != nil {
		return nil, argErr
	}
	return json.Marshal(loadedImage{"sha256:" + strings.Repeat("0", 64), path})
}

func (s *Service) loadImage(root string, args json.RawMessage) (json.RawMessage, error) {
	path, base, err := s.manifestArguments(root, args)
	if err != nil {
		return nil, err
	}
	kind, _ := s.kind(callsKind)
	r, err := kind.Cache("", imagecache.NewProgram(s.Programs.ForImage(nil))).Load(path, base)
	if err != nil {
		if _, from := baseOf(path); from != nil { // no command can make it anew by itself
			if f := failure.As(err); f != nil {
				f.WithHint("%s", makeManifest)
			}
		}
		return nil, err
	}
	return json.Marshal(loadedImage{r.Image, path})
}

func (s *Service) manifestArguments(root string, args json.RawMessage) (path, base string, err error) {
	fields, err := options.Fields("", args, "manifestPath", "expectedBaseId")
	if err != nil {
		return "", "", err
	}
	if path, err = options.Location("manifestPath", fields["manifestPath"], "a file"); err != nil {
		return "", "", err
	}
	if raw := fields["expectedBaseId"]; !options.Absent(raw) {
		if base, err = options.String("expectedBaseId", raw, "an image's id, sha256:…"); err != nil {
			return "", "", err
		}
	}
	return s.path(path, root), base, nil
}

func (s *Service) path(option, root string) string {
	return imagecache.Path(option, root, s.UserHome)
}

func (s *Service) scriptImage(ctx context.Context, root string, args json.RawMessage, known ...string) (preparedImage, error) {
	fields, err := options.Fields("", args, known...)
	if err != nil {
		return preparedImage{}, err
	}
	base, manifest, directory := "", "", ""
	if raw := fields["image"]; !options.Absent(raw) {
		if base, err = targets.Image("image", raw); err != nil {
			return preparedImage{}, err
		}
	}
	var how Installation
	if how.Resources, err = targets.ParseResources("resources", fields["resources"]); err != nil {
		return preparedImage{}, err
	}
	if raw := fields["manifestPath"]; !options.Absent(raw) {
		if manifest, err = options.Location("manifestPath", raw, "a file"); err != nil {
			return preparedImage{}, err
		}
		manifest = s.path(manifest, root)
	}
	if raw := fields["cacheDirectory"]; !options.Absent(raw) {
		if directory, err = options.Location("cacheDirectory", raw, "a directory"); err != nil {
			return preparedImage{}, err
		}
	}
	cache, err := s.cache(callsKind, directory, root, nil)
	if err != nil {
		return preparedImage{}, err
	}
	return s.image(ctx, cache, base, manifest, how)
}
