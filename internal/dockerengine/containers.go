package dockerengine

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/process"
)

// Create makes a container and does not start it. The name is an atomic claim at the engine: one that is taken is a failure of
// kind AlreadyExists, an image that is not there one of kind NotReady, both with No. Unknown is all that may have arrived: the
// container can still appear after Inspect found none.
func (e *Engine) Create(ctx context.Context, name string, config *container.Config, host *container.HostConfig) (string, resource.Outcome, error) {
	c, cancel := beginCall(ctx, e.limits.effect)
	defer cancel()
	cc, hc := *config, *host // the client changes them
	crash.Point("dockerengine/before-create")
	made, err := e.client.ContainerCreate(c.ctx, &cc, &hc, nil, nil, name)
	crash.Point("dockerengine/after-create")
	if err == nil && made.ID == "" {
		err = errors.New("the engine's answer has no id")
	}
	done, failed := e.endEffect(c, err, "create the container %s", name)
	if f := failure.As(failed); f != nil && done == resource.NotDone {
		switch {
		case c.hasAnswer(err, http.StatusConflict, "already in use"):
			f.Kind = failure.AlreadyExists
		case c.hasAnswer(err, http.StatusNotFound, "no such image"):
			f.Kind = failure.NotReady
		}
	}
	return made.ID, done, failed
}

// Start starts a container; one that runs already is Done. After Unknown, Inspect says what became of it.
func (e *Engine) Start(ctx context.Context, id string) (resource.Outcome, error) {
	c, cancel := beginCall(ctx, e.limits.effect)
	defer cancel()
	crash.Point("dockerengine/before-start")
	err := e.client.ContainerStart(c.ctx, id, container.StartOptions{})
	crash.Point("dockerengine/after-start")
	return e.endEffect(c, err, "start the container %s", id)
}

// Inspect looks at a container by id or name. Absent is the engine's own answer; every other failure is Unobserved.
func (e *Engine) Inspect(ctx context.Context, id string) (container.InspectResponse, resource.Presence, error) {
	c, cancel := beginCall(ctx, e.limits.query)
	defer cancel()
	defer unblockEngine(id)()
	found, err := e.client.ContainerInspect(c.ctx, id)
	switch {
	case c.noContainer(err):
		return container.InspectResponse{}, resource.Absent, nil
	case err == nil && (found.ContainerJSONBase == nil || found.ID == "" || found.State == nil || found.Config == nil):
		err = errors.New("the engine's answer is not complete")
	}
	if err != nil {
		return container.InspectResponse{}, resource.Unobserved, e.endRead(c, err, "inspect the container %s", id)
	}
	return found, resource.Present, nil
}

func (c *call) noContainer(err error) bool {
	return c.hasAnswer(err, http.StatusNotFound, "no such container")
}

// Kill ends a container's processes with SIGKILL and waits until none is left. A container that does not run, or is not
// there, is Done.
func (e *Engine) Kill(ctx context.Context, id string) (resource.Outcome, error) {
	c, cancel := beginCall(ctx, e.limits.effect)
	defer cancel()
	defer unblockEngine(id)()
	crash.Point("dockerengine/before-kill")
	err := e.client.ContainerKill(c.ctx, id, "SIGKILL")
	crash.Point("dockerengine/after-kill")
	if c.noContainer(err) || c.hasAnswer(err, http.StatusConflict, "is not running") {
		return resource.Done, nil
	}
	if err != nil {
		return e.endEffect(c, err, "kill the container %s", id)
	}
	return e.awaitContainer(c, id, container.WaitConditionNotRunning, "kill the container %s", id)
}

// awaitContainer waits, within a call, until the engine has done what it has begun.
func (e *Engine) awaitContainer(c *call, id string, until container.WaitCondition, format string, args ...any) (resource.Outcome, error) {
	ended, failed := e.client.ContainerWait(c.ctx, id, until)
	var err error
	select {
	case r := <-ended:
		if r.Error != nil {
			err = errors.New(r.Error.Message)
		}
	case err = <-failed:
		if c.noContainer(err) {
			err = nil
		}
	}
	if err == nil {
		return resource.Done, nil
	}
	return resource.Unknown, e.explain(c, err, failure.OutcomeUnknown, format, args...)
}

// Remove ends a container and removes it with its anonymous volumes. One that is not there is Done; the same answer cannot
// tell "removed" from "never there" or "another engine", so absence is observed afterwards.
func (e *Engine) Remove(ctx context.Context, id string) (resource.Outcome, error) {
	c, cancel := beginCall(ctx, e.limits.effect)
	defer cancel()
	defer unblockEngine(id)()
	crash.Point("dockerengine/before-remove")
	err := e.client.ContainerRemove(c.ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
	crash.Point("dockerengine/after-remove")
	switch {
	case c.noContainer(err):
		return resource.Done, nil
	case c.hasAnswer(err, http.StatusConflict, "already in progress"):
		return e.awaitContainer(c, id, container.WaitConditionRemoved, "remove the container %s", id)
	}
	return e.endEffect(c, err, "remove the container %s", id)
}

// List finds the containers that carry all labels, running or not. A label without a value asks for its name only.
func (e *Engine) List(ctx context.Context, labels map[string]string) ([]container.Summary, error) {
	c, cancel := beginCall(ctx, e.limits.query)
	defer cancel()
	list, err := e.client.ContainerList(c.ctx, container.ListOptions{All: true, Filters: labelFilter(labels)})
	if err != nil {
		return nil, e.endRead(c, err, "list the containers of laufwerk")
	}
	return list, nil
}

func labelFilter(labels map[string]string) filters.Args {
	args := filters.NewArgs()
	for name, value := range labels {
		if value != "" {
			name += "=" + value
		}
		args.Add("label", name)
	}
	return args
}

// silenceLimit is how long a call about a container may have no answer before what holds the engine up is looked for.
const silenceLimit = 2 * time.Second

// idLength is that of a container's id. Shorter words could be in the path of a stranger's control group.
const idLength = 64

// unblockEngine, until its result is called, ends what may keep the engine from answering about a container. A command that is being
// started in a container is, for a moment, a process of the runtime (`runc init`) with the container's user, and whatever runs
// inside as the same user can stop it. The engine waits for it then, and everything else about this container waits for the
// engine: looking, killing and removing too (Docker 20.10). The container's processes are this host's, and the worker's user
// may signal them.
func unblockEngine(id string) (stop func()) {
	if len(id) != idLength {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		t := time.NewTicker(silenceLimit)
		defer t.Stop()
		for {
			select {
			case <-done:
				return
			case <-t.C:
				process.KillStopped(id, "runc", "crun")
			}
		}
	}()
	return sync.OnceFunc(func() { close(done) })
}
