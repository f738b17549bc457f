package openshell

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/failure"
	client "github.com/laufwerk/laufwerk/internal/openshell"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/resource"
)

// labelName is a label that a gateway gives to its containers, like owned.LabelSandbox.
const labelName = "openshell.ai/sandbox-name"

// maxClockSkew is how much earlier than its intent a sandbox may have been created. The gateway uses this host's clock, which can be
// set back in between.
const maxClockSkew = 5 * time.Second

// location is the gateway and the engine of an intent's sandbox.
type location struct {
	p      *Provider
	intent resource.Intent
	s      spec
	g      *client.Gateway
	e      *dockerengine.Engine
}

// locate finds both, without calling them.
func (p *Provider) locate(ctx context.Context, in resource.Intent, s spec) (location, error) {
	g, err := p.gateway(ctx, in, s)
	if err != nil {
		return location{}, err
	}
	e, err := p.engine(ctx, s)
	return location{p: p, intent: in, s: s, g: g, e: e}, err
}

// sighting is the result of one query at the gateway.
type sighting struct {
	presence resource.Presence
	sandbox  *wire.Sandbox
	evidence []resource.Evidence
	err      error // why nothing could be learned, or whose it is
}

// find queries the intent's sandbox by name. Its recorded id decides; without one, labels and time must match.
func (l location) find(ctx context.Context) sighting {
	name := client.Name(l.intent.Claim)
	got, presence, err := l.g.Get(ctx, name)
	switch {
	case presence == resource.Absent:
		return sighting{presence: presence, evidence: l.p.evidence("the %s has no sandbox %s", l.intent.Endpoint, name)}
	case presence != resource.Present:
		return sighting{err: cmp.Or(err, errUnseen)}
	}
	return l.identify(got)
}

// identify decides whether a sandbox of our name is ours.
func (l location) identify(got *wire.Sandbox) sighting {
	m := got.GetMetadata()
	name := client.Name(l.intent.Claim)
	if l.intent.Resource != "" && m.GetId() != l.intent.Resource { // names are given once: ours has it no more
		return sighting{presence: resource.Absent, evidence: l.p.evidence("the %s has no sandbox with the id %s; %s has the id %s now", l.intent.Endpoint, l.intent.Resource, name, m.GetId())}
	}
	why := ownerMismatch(got, l.intent)
	if why == "" && l.intent.Resource == "" {
		why = foreignReason(got, l.intent, l.s)
	}
	if why != "" {
		return sighting{
			presence: resource.Foreign, sandbox: got, evidence: l.p.evidence("a sandbox that is not ours has the name %s: %s", name, why),
			err: failure.New(failure.AlreadyExists, "a sandbox that is not laufwerk's has the name %s at the gateway %q (%s), and was not touched", name, l.s.Gateway, why).
				WithHint("openshell sandbox get %s --gateway %s", name, failure.Quote(l.s.Gateway)),
		}
	}
	return sighting{presence: resource.Present, sandbox: got, evidence: l.p.evidence("the sandbox %s has the id %s, and is %s", name, m.GetId(), phaseName(got))}
}

// ownerMismatch says why a sandbox's labels are not those of an intent.
func ownerMismatch(got *wire.Sandbox, in resource.Intent) string {
	m := got.GetMetadata()
	switch {
	case m.GetId() == "":
		return "the gateway does not say its id"
	case m.GetName() != client.Name(in.Claim):
		return "its name is " + m.GetName()
	case in.Owner == "" || m.GetLabels()[client.LabelOwner] != in.Owner:
		return "it is not labelled with our owner"
	case in.Claim == "" || m.GetLabels()[client.LabelClaim] != in.Claim:
		return "it is not labelled with our claim"
	}
	return ""
}

// foreignReason says why a sandbox with our labels is foreign where no id is recorded.
func foreignReason(got *wire.Sandbox, in resource.Intent, s spec) string {
	switch {
	case s.Image == "" || got.GetSpec().GetTemplate().GetImage() != s.Image:
		return "it was made from another image"
	case createdAt(got).Before(in.At.Add(-maxClockSkew)):
		return "it was created before its claim"
	}
	return ""
}

func createdAt(sb *wire.Sandbox) time.Time { return time.UnixMilli(sb.GetMetadata().GetCreatedAtMs()) }

func isDeleting(sb *wire.Sandbox) bool {
	return sb.GetStatus().GetPhase() == wire.SandboxPhase_SANDBOX_PHASE_DELETING
}

func phaseName(sb *wire.Sandbox) string {
	return strings.TrimPrefix(sb.GetStatus().GetPhase().String(), "SANDBOX_PHASE_")
}

// findSettled repeats find for a while where a create may be in flight.
func (l location) findSettled(ctx context.Context, requested bool) sighting {
	start := l.p.c.Now()
	flying := requested && start.Sub(l.intent.At) < time.Minute
	for pause := l.p.newBackoff(); ; {
		f := l.find(ctx)
		if f.presence != resource.Absent || !flying || l.intent.Resource != "" || l.p.c.Now().Sub(start) > l.p.w.settle || pause(ctx) != nil {
			return f
		}
	}
}

// containers lists the sandbox's own containers on the engine, in any state, and others with its id. An empty list counts only
// where the engine's identity is still that of the intent after it.
func (l location) containers(ctx context.Context) (own, others []container.Summary, err error) {
	by := map[string]string{owned.LabelSandbox: l.intent.Resource}
	if l.intent.Resource == "" {
		by = map[string]string{labelName: client.Name(l.intent.Claim), client.LabelOwner: l.intent.Owner, client.LabelClaim: l.intent.Claim}
	}
	all, err := l.e.List(ctx, by)
	if err != nil {
		return nil, nil, err
	}
	if own, others = l.splitContainers(all); len(own)+len(others) == 0 {
		err = l.requireSameEngine(ctx)
	}
	return own, others, err
}

// splitContainers separates the sandbox's containers from others with its labels, which copies of images inherit.
func (l location) splitContainers(all []container.Summary) (own, others []container.Summary) {
	for _, c := range all {
		if l.intent.Resource != "" && c.Labels[owned.LabelSandbox] != l.intent.Resource {
			continue
		}
		late := l.intent.Resource != "" || !time.Unix(c.Created, 0).Before(l.intent.At.Add(-maxClockSkew)) // an id says it all
		if c.Labels[client.LabelOwner] == l.intent.Owner && c.Labels[client.LabelClaim] == l.intent.Claim && c.ImageID == l.s.Image && late {
			own = append(own, c)
		} else {
			others = append(others, c)
		}
	}
	return own, others
}

func (l location) requireSameEngine(ctx context.Context) error {
	f, err := l.e.Refresh(ctx)
	if err == nil && f.Identity() != l.s.Engine {
		err = otherEngineError(l.s, l.e)
	}
	return err
}

// observe queries both: absent means that neither has it.
func (l location) observe(ctx context.Context) resource.Observation {
	f := l.find(ctx)
	if f.presence == resource.Present && !isDeleting(f.sandbox) {
		return resource.Observation{Presence: f.presence, Resource: f.sandbox.GetMetadata().GetId(), Evidence: f.evidence}
	}
	if f.presence != resource.Present && f.presence != resource.Absent {
		return resource.Observation{Presence: f.presence, Err: f.err, Evidence: f.evidence}
	}
	if l.intent.Resource == "" {
		l.intent.Resource = f.sandbox.GetMetadata().GetId()
	}
	if _, known := l.p.cleared.LoadAndDelete(l.intent.Resource); known {
		return l.combine(f, nil, nil, nil)
	}
	own, others, err := l.containers(ctx)
	return l.combine(f, own, others, err)
}

// combine merges the observations of gateway and engine.
func (l location) combine(f sighting, own, others []container.Summary, err error) resource.Observation {
	o := resource.Observation{Resource: l.intent.Resource, Evidence: f.evidence}
	switch {
	case err != nil:
		o.Err = err
		o.Evidence = append(o.Evidence, l.p.evidence("the engine could not be asked: %v", err)...)
		return o
	case len(own) > 0:
		o.Presence = resource.Present
		o.Evidence = append(o.Evidence, l.p.evidence("the %s has its container %s, %s", l.s.Engine, own[0].ID, own[0].State)...)
		return o
	case len(others) > 0:
		o.Err = failure.New(failure.Retained, "the container %s has the id of the sandbox, and is not laufwerk's", others[0].ID).
			WithHint("docker rm --force %s   # if nobody needs it, then once more", others[0].ID)
		return o
	}
	o.Evidence = append(o.Evidence, l.p.evidence("the %s has no container of the sandbox, in any state", l.s.Engine)...)
	if o.Presence = f.presence; f.presence == resource.Present { // it says DELETING
		o.Presence = resource.Residue
	}
	return o
}

// deleteAndWait deletes the sandbox and waits until it is not listed and has no container. A row without a container is residue, and
// ends the wait too.
func (l location) deleteAndWait(ctx context.Context) resource.Result {
	f := l.find(ctx)
	var evidence []resource.Evidence
	switch f.presence {
	case resource.Present:
		l.intent.Resource = f.sandbox.GetMetadata().GetId()
		r := l.delete(ctx, f.sandbox)
		if evidence = r.Evidence; r.Outcome != resource.Done {
			return r
		}
	case resource.Absent:
		evidence = f.evidence
	case resource.Foreign:
		return resource.Result{Outcome: resource.NotDone, Err: f.err, Evidence: f.evidence}
	default:
		return resource.Result{Err: f.err, Evidence: f.evidence}
	}
	r := l.removeLeftContainers(ctx)
	if r.Outcome == resource.Done && f.sandbox != nil && f.sandbox.GetStatus().GetPhase() != wire.SandboxPhase_SANDBOX_PHASE_PROVISIONING {
		l.p.cleared.Store(l.intent.Resource, true)
	}
	r.Resource, r.Evidence = l.intent.Resource, append(evidence, r.Evidence...)
	return r
}

// delete deletes a sandbox of ours and waits until the gateway does not list it.
func (l location) delete(ctx context.Context, sb *wire.Sandbox) resource.Result {
	name, id := sb.GetMetadata().GetName(), sb.GetMetadata().GetId()
	evidence := l.p.evidence("the sandbox %s was %s", id, phaseName(sb))
	failed := func(err error) resource.Result { return resource.Result{Resource: id, Err: err, Evidence: evidence} }
	if sb.GetStatus().GetPhase() == wire.SandboxPhase_SANDBOX_PHASE_PROVISIONING {
		if err := l.awaitContainer(ctx, sb); err != nil {
			return failed(err)
		}
	}
	if !isDeleting(sb) { // asking again would change nothing
		done, err := l.g.Delete(ctx, name)
		evidence = append(evidence, l.p.evidence("deleting %s: %s", id, done)...)
		if done != resource.Done {
			return resource.Result{Outcome: done, Resource: id, Err: err, Evidence: evidence}
		}
	}
	start := l.p.c.Now()
	for pause := l.p.newBackoff(); ; {
		f := l.find(ctx)
		switch f.presence {
		case resource.Absent:
			return resource.Result{Outcome: resource.Done, Resource: id, Evidence: append(evidence, f.evidence...)}
		case resource.Present:
		default:
			return failed(f.err)
		}
		waited := l.p.c.Now().Sub(start)
		if isDeleting(f.sandbox) && waited > l.p.w.deletion { // the gateway may have been killed in the middle: it does not go on with it
			if r := l.removeLeftContainers(ctx); r.Outcome == resource.Done {
				return resource.Result{Outcome: resource.Done, Resource: id, Evidence: append(append(evidence, f.evidence...), r.Evidence...)}
			}
		}
		if waited > l.p.w.absent {
			return failed(failure.New(failure.Retained, "the gateway acknowledged the end of the sandbox %s, and it is still %s", id, condition(f.sandbox)))
		}
		if err := pause(ctx); err != nil {
			return failed(err)
		}
	}
}

// awaitContainer waits until a starting sandbox has its container, or will get none: a deletion before that would leave a container
// that the gateway does not know.
func (l location) awaitContainer(ctx context.Context, sb *wire.Sandbox) error {
	for pause := l.p.newBackoff(); l.p.c.Now().Sub(createdAt(sb)).Abs() < l.p.w.landing; {
		own, others, err := l.containers(ctx)
		if err != nil {
			return err
		}
		if len(own)+len(others) > 0 {
			return nil
		}
		if f := l.find(ctx); f.presence != resource.Present || f.sandbox.GetStatus().GetPhase() != wire.SandboxPhase_SANDBOX_PHASE_PROVISIONING {
			return nil //nolint:nilerr // what it means is found out next
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
	return nil
}

// removeLeftContainers removes our containers that the gateway left.
func (l location) removeLeftContainers(ctx context.Context) resource.Result {
	own, others, err := l.containers(ctx)
	if err != nil {
		return resource.Result{Err: err}
	}
	var evidence []resource.Evidence
	for _, c := range own {
		done, err := l.e.Remove(ctx, c.ID)
		evidence = append(evidence, l.p.evidence("the gateway had left the container %s; removing it: %s", c.ID, done)...)
		if done != resource.Done {
			return resource.Result{Outcome: done, Err: err, Evidence: evidence}
		}
	}
	if o := l.combine(sighting{presence: resource.Absent}, nil, others, nil); o.Err != nil {
		return resource.Result{Outcome: resource.NotDone, Err: o.Err, Evidence: evidence}
	}
	return resource.Result{Outcome: resource.Done, Evidence: evidence}
}
