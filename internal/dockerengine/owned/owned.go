// Package owned makes, finds and ends containers that stand for a claim. Labels alone prove nothing: `docker commit` and
// `FROM` pass them on, and homes are copied. A container is ours if its recorded id says so, or, where no id is known yet, if
// its name, its owner and claim labels, its image and its time of creation all fit the intent. Everything else is a
// stranger's, and is never touched.
package owned

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/system/crash"
)

// The labels of every container of ours. They are always set, so that an image's own do not shine through.
const (
	LabelPrefix = "dev.laufwerk."
	LabelOwner  = LabelPrefix + "owner" // the store's id
	LabelClaim  = LabelPrefix + "claim"
	LabelRun    = LabelPrefix + "run" // "" for preparation and probes
)

// Name is the name of a claim's container. An engine gives a name once: it is what makes two containers for one claim
// impossible.
func Name(claim string) string { return "laufwerk-" + claim }

// settleTime bounds the wait for a container whose create is in flight. After their client had vanished, containers appeared
// up to 37 ms later when it was measured; a busy engine takes longer.
const settleTime = 15 * time.Second

// Container serves the container of one intent. It keeps nothing.
type Container struct {
	// Engine gives the engine that the intent means: connected once, or anew. It is asked here who it is.
	Engine func(ctx context.Context) (*dockerengine.Engine, error)
	Now    func() time.Time
	Image  string // the id of the image that the container is made from, as the engine names it: "sha256:…"
}

// ContainerSpec is the container that an intent asks for. Image and labels are ours to set.
type ContainerSpec struct {
	Config *container.Config
	Host   *container.HostConfig
}

func (c Container) config(in resource.Intent, w ContainerSpec) *container.Config {
	out := *w.Config
	out.Image = c.Image
	out.Labels = map[string]string{}
	maps.Copy(out.Labels, w.Config.Labels)
	maps.Copy(out.Labels, labels(in))
	return &out
}

func labels(in resource.Intent) map[string]string {
	return map[string]string{LabelOwner: in.Owner, LabelClaim: in.Claim, LabelRun: in.Run}
}

func (c Container) evidence(format string, args ...any) []resource.Evidence {
	return resource.Seen(c.Now(), format, args...)
}

// engineOf gives the engine that the intent names. The engine is asked who it is now: another one may have taken its socket.
func (c Container) engineOf(ctx context.Context, in resource.Intent) (*dockerengine.Engine, error) {
	e, err := c.Engine(ctx)
	if err != nil {
		return nil, err
	}
	f, err := e.Refresh(ctx)
	if err != nil {
		return nil, err
	}
	return e, mismatch(e, f, in)
}

func mismatch(e *dockerengine.Engine, f dockerengine.Facts, in resource.Intent) error {
	if f.Identity() == in.Endpoint {
		return nil
	}
	return OtherEngineError(in, e.Endpoint().Host, f.Identity())
}

// EngineOf is the engine that an intent names, which was at host.
func EngineOf(ctx context.Context, engines dockerengine.Engines, in resource.Intent, host string) (*dockerengine.Engine, error) {
	return engines.FindByIdentity(ctx, host, in.Endpoint, func(e *dockerengine.Engine) error {
		return OtherEngineError(in, e.Endpoint().Host, e.Facts().Identity())
	})
}

// OtherEngineError is the failure of an engine that is not the one that an intent names.
func OtherEngineError(in resource.Intent, host, now string) error {
	command := "laufwerk resume " + in.Run
	if in.Run == "" {
		command = "laufwerk cleanup --all"
	}
	return failure.New(failure.NotReady, "another engine answers at %s: it is the %s, and not the %s", host, now, in.Endpoint).
		WithHint("%s   # once that engine answers again, there or at the socket that docker.host names\n%s --accept-identity %s   # if it is the same engine, which was moved",
			command, command, failure.Quote(in.Endpoint+"="+now)).
		WithField("recorded", in.Endpoint).WithField("answers", now)
}

// Create makes the container, and does not count it as made before it is what was wanted: what the engine says of it is
// compared with the wish, and a container that differs is removed again. It is not started.
func (c Container) Create(ctx context.Context, in resource.Intent, w ContainerSpec) resource.Result {
	e, err := c.engineOf(ctx, in)
	if err != nil {
		return resource.Result{Outcome: resource.NotDone, Err: err, Evidence: c.evidence("nothing was requested: %v", err)}
	}
	return c.create(ctx, e, in, w, false)
}

// Resolve finds out what became of a create without an answer, by creating again: the engine gives the name once, so either
// this makes the container, or the engine says that it has the name, and then the container is there or about to be.
func (c Container) Resolve(ctx context.Context, in resource.Intent, w ContainerSpec) resource.Result {
	e, err := c.engineOf(ctx, in)
	if err != nil {
		return resource.Result{Err: err}
	}
	if in.Resource == "" {
		return c.create(ctx, e, in, w, true)
	}
	found := c.find(ctx, e, in)
	switch found.presence {
	case resource.Present:
		return c.acceptOrRemove(ctx, e, in, w, found)
	case resource.Absent:
		return resource.Result{Outcome: resource.NotDone, Err: failure.New(failure.SessionLost, "the container %s was made, and is gone", in.Name), Evidence: found.evidence}
	default:
		return resource.Result{Err: found.err, Evidence: found.evidence}
	}
}

// create asks for the container. again says that an earlier request may still be on its way, so that a refusal alone does not
// say that there is nothing.
func (c Container) create(ctx context.Context, e *dockerengine.Engine, in resource.Intent, w ContainerSpec, again bool) resource.Result {
	crash.Point("owned/before-create")
	id, done, err := e.Create(ctx, in.Name, c.config(in, w), w.Host)
	crash.Point("owned/after-create")
	switch {
	case done == resource.Done:
		in.Resource = id
		f, err := e.Refresh(ctx)
		if err != nil {
			return resource.Result{Resource: id, Err: err}
		}
		if err := mismatch(e, f, in); err != nil { // another engine came in between, and made it
			return c.removeUnusable(ctx, e, id, err)
		}
		return c.acceptOrRemove(ctx, e, in, w, c.find(ctx, e, in))
	case done == resource.Unknown:
		return resource.Result{Err: err}
	case !again && !failure.Is(err, failure.AlreadyExists):
		return resource.Result{Outcome: resource.NotDone, Err: err, Evidence: c.evidence("the engine refused to create %s: %v", in.Name, err)}
	}
	found := c.awaitContainer(ctx, e, in)
	if err := requireSameEngine(ctx, e, in); err != nil { // what another engine has, or has not, says nothing of an earlier request
		return resource.Result{Err: err, Evidence: found.evidence}
	}
	switch found.presence {
	case resource.Present:
		return c.acceptOrRemove(ctx, e, in, w, found)
	case resource.Foreign:
		return resource.Result{Outcome: resource.NotDone, Err: found.err, Evidence: found.evidence}
	case resource.Absent:
		if !failure.Is(err, failure.AlreadyExists) {
			return resource.Result{Outcome: resource.NotDone, Err: err, Evidence: c.evidence("the engine refused to create %s (%v), and it did not appear within %s", in.Name, err, settleTime)}
		}
		return resource.Result{Err: failure.Wrap(err, failure.OutcomeUnknown, "the name %s is taken on the engine, but no container has it after %s", in.Name, settleTime), Evidence: found.evidence}
	default:
		return resource.Result{Err: errors.Join(err, found.err), Evidence: found.evidence}
	}
}

// awaitContainer looks until the container is there, a stranger has its name, or the time is over.
func (c Container) awaitContainer(ctx context.Context, e *dockerengine.Engine, in resource.Intent) (f lookup) {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	pause := 10 * time.Millisecond
	for {
		now := c.find(ctx, e, in)
		if now.presence != resource.Unobserved || f.presence == resource.Unobserved {
			f = now // the last answer counts, and not that the time was over
		}
		if f.presence != resource.Absent {
			return f
		}
		select {
		case <-ctx.Done():
			return f
		case <-time.After(pause):
			pause = min(2*pause, time.Second)
		}
	}
}

// acceptOrRemove compares a container of ours with what was wanted, and removes one that is not.
func (c Container) acceptOrRemove(ctx context.Context, e *dockerengine.Engine, in resource.Intent, w ContainerSpec, f lookup) resource.Result {
	if f.presence != resource.Present {
		return resource.Result{Resource: in.Resource, Err: f.err, Evidence: f.evidence}
	}
	if why := difference(f.container, c.Image, w, in); why != "" {
		return c.removeUnusable(ctx, e, f.container.ID, failure.New(failure.NotReady, "the container %s that the engine created does not match the request, so it was removed: %s", in.Name, why))
	}
	return resource.Result{Outcome: resource.Done, Resource: f.container.ID, Evidence: f.evidence}
}

// removeUnusable removes a container of ours that must not be used. It does not depend on the context that ended the attempt.
func (c Container) removeUnusable(ctx context.Context, e *dockerengine.Engine, id string, why error) resource.Result {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	crash.Point("owned/before-undo")
	done, err := e.Remove(ctx, id)
	crash.Point("owned/after-undo")
	if done == resource.Done {
		var seen resource.Presence
		if _, seen, err = e.Inspect(ctx, id); seen == resource.Absent {
			return resource.Result{Outcome: resource.NotDone, Err: why, Evidence: c.evidence("the container %s was removed, and is absent", id)}
		}
	}
	return resource.Result{Resource: id, Err: errors.Join(why, err), Evidence: c.evidence("the container %s should have been removed", id)}
}

// Observe looks at the container. What is seen, or not seen, counts only where the engine says after it that it is the one that
// the intent names.
func (c Container) Observe(ctx context.Context, in resource.Intent) resource.Observation {
	e, err := c.Engine(ctx)
	if err != nil {
		return c.notFound(err)
	}
	f := c.find(ctx, e, in)
	if f.presence == resource.Unobserved {
		return c.notFound(f.err)
	}
	if err := requireSameEngine(ctx, e, in); err != nil {
		return c.notFound(err)
	}
	return f.observation()
}

// ObserveAfterDelete is Observe right after Delete, which has asked the engine who it is: enough to remove what else belongs to the container,
// and not for the end of its claim.
func (c Container) ObserveAfterDelete(ctx context.Context, in resource.Intent) resource.Observation {
	e, err := c.Engine(ctx)
	if err != nil {
		return c.notFound(err)
	}
	return c.find(ctx, e, in).observation()
}

func (c Container) notFound(err error) resource.Observation {
	return resource.Observation{Err: err, Evidence: c.evidence("nothing could be observed: %v", err)}
}

func (f lookup) observation() resource.Observation {
	out := resource.Observation{Presence: f.presence, Evidence: f.evidence, Err: f.err}
	if f.presence == resource.Present {
		out.Resource = f.container.ID
	}
	return out
}

// Delete ends everything in the container and removes it. It is done where there is nothing of ours.
func (c Container) Delete(ctx context.Context, in resource.Intent) resource.Result {
	e, err := c.engineOf(ctx, in)
	if err != nil {
		return resource.Result{Err: err}
	}
	f := c.find(ctx, e, in)
	switch f.presence {
	case resource.Absent:
		return resource.Result{Outcome: resource.Done, Evidence: f.evidence}
	case resource.Present:
	case resource.Foreign:
		return resource.Result{Outcome: resource.NotDone, Err: f.err, Evidence: f.evidence}
	default:
		return resource.Result{Err: f.err, Evidence: f.evidence}
	}
	crash.Point("owned/before-remove")
	done, err := e.Remove(ctx, f.container.ID)
	crash.Point("owned/after-remove")
	return resource.Result{Outcome: done, Resource: f.container.ID, Err: err, Evidence: c.evidence("removing %s: %s", f.container.ID, done)}
}
