package app

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/laufwerk/laufwerk/internal/cli"
	cliprepare "github.com/laufwerk/laufwerk/internal/cli/prepare"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/imagecache"
	"github.com/laufwerk/laufwerk/internal/options"
	"github.com/laufwerk/laufwerk/internal/prepare"
	"github.com/laufwerk/laufwerk/internal/providers/docker"
	"github.com/laufwerk/laufwerk/internal/script"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// The functions of the SDK that ask the host.
const (
	loadPreparedCodexImage = "loadPreparedCodexImage"
	prepareCodexImage      = "prepareCodexImage"
	prepareDockerCodex     = "prepareDockerCodex"
)

// reading answers what configs and workflows may ask: what is there. Preparing takes effect, and is for scripts.
func reading(d *cli.Deps) script.Host {
	return func(_ context.Context, root, function string, args json.RawMessage) (json.RawMessage, error) {
		switch function {
		case loadPreparedCodexImage:
			return loadPrepared(d, root, args)
		case prepareCodexImage, prepareDockerCodex:
			return nil, failure.New(failure.Unsupported, "%s is not for configs and workflows, which may be loaded at any time: call it in a module of its own, with `laufwerk script`", function).
				WithHint("laufwerk script FILE.ts --call NAME")
		}
		return nil, failure.New(failure.Unsupported, "%s is not part of this build", function)
	}
}

// scripting answers what scripts may ask in addition.
func scripting(p preparer) script.Host {
	read := reading(p.d)
	return func(ctx context.Context, root, function string, args json.RawMessage) (json.RawMessage, error) {
		switch function {
		case prepareDockerCodex:
			made, err := p.asked(ctx, root, args, "image", "cacheDirectory", "resources")
			if err != nil {
				return nil, err
			}
			return json.Marshal(map[string]any{"image": made.Image, "manifestPath": made.Manifest, "reused": made.Reused})
		case prepareCodexImage:
			made, err := p.asked(ctx, root, args, "image", "manifestPath", "resources")
			if err != nil {
				return nil, err
			}
			return json.Marshal(made.Image)
		}
		return read(ctx, root, function, args)
	}
}

// preparing answers what the config of a project may ask whose images are being prepared: a stale manifest is no failure
// then, since it is what is made anew.
func preparing(d *cli.Deps) script.Host {
	read := reading(d)
	return func(ctx context.Context, root, function string, args json.RawMessage) (json.RawMessage, error) {
		answer, err := read(ctx, root, function, args)
		if function != loadPreparedCodexImage || !failure.Is(err, failure.NotReady) {
			return answer, err
		}
		path, _, argErr := manifestOf(d, root, args)
		if argErr != nil {
			return nil, argErr
		}
		return json.Marshal(loaded{"sha256:" + strings.Repeat("0", 64), path})
	}
}

// loaded is the answer to loadPreparedCodexImage.
type loaded struct {
	Image    string `json:"image"`
	Manifest string `json:"manifestPath"`
}

func loadPrepared(d *cli.Deps, root string, args json.RawMessage) (json.RawMessage, error) {
	path, base, err := manifestOf(d, root, args)
	if err != nil {
		return nil, err
	}
	r, err := imagecache.Docker("").Load(path, base)
	if err != nil {
		if _, from := baseOf(path); from != nil { // no command can make it anew by itself
			if f := failure.As(err); f != nil {
				f.WithHint("%s", makeManifest)
			}
		}
		return nil, err
	}
	return json.Marshal(loaded{r.Image, path})
}

// makeManifest is how a manifest comes to be.
const makeManifest = "laufwerk script FILE.ts --call NAME   # a function that calls prepareCodexImage with this manifestPath"

func manifestOf(d *cli.Deps, root string, args json.RawMessage) (path, base string, err error) {
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
	return located(d, path, root), base, nil
}

// located is a path that an option names.
func located(d *cli.Deps, path, root string) string {
	return imagecache.Directory(path, root, d.Env.Home(), "")
}

// asked prepares what a script asks for.
func (p preparer) asked(ctx context.Context, root string, args json.RawMessage, known ...string) (out prepare.DockerResult, err error) {
	fields, err := options.Fields("", args, known...)
	if err != nil {
		return out, err
	}
	r := cliprepare.ImageRequest{Root: root, Say: p.d.UI.Talkf}
	var w wanted
	if raw := fields["image"]; !options.Absent(raw) {
		if w.base, err = targets.Image("image", raw); err != nil {
			return out, err
		}
	}
	if r.Resources, err = targets.ParseResources("resources", fields["resources"]); err != nil {
		return out, err
	}
	if raw := fields["manifestPath"]; !options.Absent(raw) {
		if w.manifest, err = options.Location("manifestPath", raw, "a file"); err != nil {
			return out, err
		}
		w.manifest = located(p.d, w.manifest, root)
	}
	cache := ""
	if raw := fields["cacheDirectory"]; !options.Absent(raw) {
		if cache, err = options.Location("cacheDirectory", raw, "a directory"); err != nil {
			return out, err
		}
	}
	if w.cache, err = p.cache(docker.Kind, cache, root); err != nil {
		return out, err
	}
	return p.prepare(ctx, w, r)
}
