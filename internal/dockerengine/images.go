package dockerengine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/image"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/system/crash"
)

// Image looks at an image by reference or id. Absent is the engine's own answer.
func (e *Engine) Image(ctx context.Context, ref string) (image.InspectResponse, resource.Presence, error) {
	c, cancel := beginCall(ctx, e.limits.query)
	defer cancel()
	found, err := e.client.ImageInspect(c.ctx, ref)
	if c.noImage(err) {
		return image.InspectResponse{}, resource.Absent, nil
	}
	if err == nil && found.ID == "" {
		err = errors.New("the engine's answer is not complete")
	}
	if err != nil {
		return image.InspectResponse{}, resource.Unobserved, e.endRead(c, err, "inspect the image %s", ref)
	}
	return found, resource.Present, nil
}

func (c *call) noImage(err error) bool { return c.hasAnswer(err, http.StatusNotFound, "no such image") }

// Images lists the images that carry all labels. A label without a value asks for its name only.
func (e *Engine) Images(ctx context.Context, labels map[string]string) ([]image.Summary, error) {
	c, cancel := beginCall(ctx, e.limits.query)
	defer cancel()
	list, err := e.client.ImageList(c.ctx, image.ListOptions{Filters: labelFilter(labels)})
	if err != nil {
		return nil, e.endRead(c, err, "list the images of laufwerk")
	}
	return list, nil
}

// Tag gives an image a name, in place of any other image that has it.
func (e *Engine) Tag(ctx context.Context, id, ref string) (resource.Outcome, error) {
	c, cancel := beginCall(ctx, e.limits.effect)
	defer cancel()
	crash.Point("dockerengine/before-tag")
	err := e.client.ImageTag(c.ctx, id, ref)
	crash.Point("dockerengine/after-tag")
	done, failed := e.endEffect(c, err, "name the image %s %s", id, ref)
	if f := failure.As(failed); f != nil && c.noImage(err) {
		f.Kind = failure.NotReady
	}
	return done, failed
}

// RemoveImage removes a name, and with the last name the image and its untagged parents; an id has to have one name at most.
// One that is not there is Done, one that a container uses NotDone.
func (e *Engine) RemoveImage(ctx context.Context, ref string) (resource.Outcome, error) {
	c, cancel := beginCall(ctx, e.limits.effect)
	defer cancel()
	crash.Point("dockerengine/before-remove-image")
	_, err := e.client.ImageRemove(c.ctx, ref, image.RemoveOptions{PruneChildren: true})
	crash.Point("dockerengine/after-remove-image")
	if c.noImage(err) {
		return resource.Done, nil
	}
	return e.endEffect(c, err, "remove the image %s", ref)
}

// CopyFrom reads a file or directory of a container, running or not, as a tar archive whose names begin with the last element
// of path. A cut archive ends with an error. The caller closes it.
func (e *Engine) CopyFrom(ctx context.Context, id, path string) (io.ReadCloser, error) {
	c, cancel := beginCall(ctx, e.limits.bulk)
	body, _, err := e.client.CopyFromContainer(c.ctx, id, path)
	if err != nil {
		defer cancel()
		return nil, e.endRead(c, err, "copy %s out of the container %s", path, id)
	}
	return &copyStream{body, cancel}, nil
}

// HasPath says whether a container, running or not, has something at a path. Of a container that is not there it has nothing,
// for the engine does not say what it did not find.
func (e *Engine) HasPath(ctx context.Context, id, path string) (bool, error) {
	c, cancel := beginCall(ctx, e.limits.query)
	defer cancel()
	_, err := e.client.ContainerStatPath(c.ctx, id, path)
	if c.status.Load() == http.StatusNotFound {
		return false, nil
	}
	if err != nil {
		return false, e.endRead(c, err, "find %s in the container %s", path, id)
	}
	return true, nil
}

type copyStream struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (c *copyStream) Close() error {
	defer c.cancel()
	return c.ReadCloser.Close()
}

// Pull fetches an image from its registry, without a login. progress, which may be nil, gets a line for every step. A failure
// is of kind NotReady, whatever its outcome: an image more changes nothing.
func (e *Engine) Pull(ctx context.Context, ref string, progress func(line string)) (resource.Outcome, error) {
	c, cancel := beginCall(ctx, e.limits.bulk)
	defer cancel()
	crash.Point("dockerengine/before-pull")
	body, err := e.client.ImagePull(c.ctx, ref, image.PullOptions{})
	done := c.outcome(err)
	if err == nil {
		defer body.Close()
		_, err = readMessages(body, io.Discard, progress)
		done = streamOutcome(err)
	}
	crash.Point("dockerengine/after-pull")
	failed := e.explain(c, err, failure.NotReady, "pull the image %s", ref)
	if f := failure.As(failed); f != nil && f.Hint == "" {
		_ = f.WithHint("docker pull %s", failure.Quote(ref))
	}
	return done, failed
}

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

// streamError is an error that the engine reports inside a stream: it stopped, and says so.
type streamError struct{ text string }

func (r *streamError) Error() string { return r.text }

// readMessages reads what an engine streams while it builds or pulls: JSON objects, under HTTP 200 whatever becomes of it. The
// text of all goes to log; progress, which may be nil, gets each line that says something new. It returns the last image id.
func readMessages(in io.Reader, log io.Writer, progress func(string)) (id string, err error) {
	type message struct {
		Stream, Status, ID, Error string
		ErrorDetail               struct{ Message string }
		Aux                       json.RawMessage
	}
	say := func(text string) error {
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); progress != nil && line != "" {
				progress(line)
			}
		}
		_, err := io.WriteString(log, text)
		return err
	}
	status := ""
	d := json.NewDecoder(in)
	for {
		var m message
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			return id, nil
		} else if err != nil {
			return id, err
		}
		if failed := cmp.Or(m.ErrorDetail.Message, m.Error); failed != "" {
			_, _ = io.WriteString(log, failed+"\n")
			return id, &streamError{failed}
		}
		text := m.Stream
		if m.Status != "" {
			text = strings.TrimPrefix(m.ID+": ", ": ") + m.Status + "\n"
			if text == status { // the bar alone moved
				continue
			}
			status = text
		}
		if err := say(text); err != nil {
			return id, err
		}
		var aux struct{ ID string }
		if len(m.Aux) > 0 && json.Unmarshal(m.Aux, &aux) == nil && aux.ID != "" {
			id = aux.ID
		}
	}
}

// streamOutcome is the outcome of what came in a stream: with a reported error the engine has stopped.
func streamOutcome(err error) resource.Outcome {
	var r *streamError
	switch {
	case err == nil:
		return resource.Done
	case errors.As(err, &r):
		return resource.NotDone
	default:
		return resource.Unknown
	}
}
