package dockerengine

import (
	"context"
	"errors"
	"io"

	"github.com/docker/docker/api/types/build"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/system/crash"
)

// BuildInput is what an image is built from.
type BuildInput struct {
	Context  io.Reader // a tar archive with a Dockerfile at its top
	Tags     []string  // set at the very end, when all else has succeeded
	Network  string    // of RUN steps: "none", "" for the engine's own
	NoCache  bool
	Log      io.Writer         // everything that the builder says; nil for nowhere
	Progress func(line string) // each line, as it comes; nil for nobody
}

// Build builds an image with the classic builder, which every engine has and which needs no session. No: the builder stopped
// and said why; nothing has a tag. Yes: id is the image's.
func (e *Engine) Build(ctx context.Context, b BuildInput) (string, resource.Outcome, error) {
	c, cancel := beginCall(ctx, e.limits.bulk)
	defer cancel()
	log := b.Log
	if log == nil {
		log = io.Discard
	}
	crash.Point("dockerengine/before-build")
	answer, err := e.client.ImageBuild(c.ctx, b.Context, build.ImageBuildOptions{
		Version: build.BuilderV1, Tags: b.Tags, NetworkMode: b.Network, NoCache: b.NoCache, Remove: true, ForceRemove: true,
	})
	if err != nil {
		done, err := e.endEffect(c, err, "build the image")
		return "", done, err
	}
	defer answer.Body.Close()
	id, err := readMessages(answer.Body, log, b.Progress)
	crash.Point("dockerengine/after-build")
	if err == nil && id == "" {
		err = errors.New("the builder ended without naming an image")
	}
	if err == nil {
		return id, resource.Done, nil
	}
	done, kind := streamOutcome(err), failure.Failed
	if done == resource.Unknown {
		kind = failure.OutcomeUnknown
	}
	return "", done, e.explain(c, err, kind, "build the image")
}
