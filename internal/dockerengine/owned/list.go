package owned

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/system/crash"
)

// List finds the containers that carry the label of an intent's owner, whosever they are, on the engine that the intent names;
// of the zero intent those of every owner, on any engine. The engine says who it is before and after: what another one lists
// says nothing.
func List(ctx context.Context, e *dockerengine.Engine, in resource.Intent) ([]resource.Summary, error) {
	if err := requireSameEngine(ctx, e, in); err != nil {
		return nil, err
	}
	return list(ctx, e, in)
}

func list(ctx context.Context, e *dockerengine.Engine, in resource.Intent) ([]resource.Summary, error) {
	all, err := e.List(ctx, map[string]string{LabelOwner: in.Owner})
	if err != nil {
		return nil, err
	}
	if err := requireSameEngine(ctx, e, in); err != nil {
		return nil, err
	}
	out := make([]resource.Summary, 0, len(all))
	for _, c := range all {
		if _, gateway := c.Labels[LabelSandbox]; gateway && !slices.ContainsFunc(c.Names, func(n string) bool { return strings.HasPrefix(n, "/"+Name("")) }) {
			continue
		}
		f := resource.Summary{
			Resource: c.ID, Owner: c.Labels[LabelOwner], Claim: c.Labels[LabelClaim], Image: c.ImageID, Created: time.Unix(c.Created, 0),
		}
		for _, n := range c.Names { // others are links of other containers
			if n = strings.TrimPrefix(n, "/"); !strings.Contains(n, "/") {
				f.Name = n
			}
		}
		out = append(out, f)
	}
	return out, nil
}

// LabelSandbox is the label of containers that an OpenShell gateway makes. They carry our labels, too, and belong to its
// sandboxes; copies of their images pass all of that on to containers of ours, which have names of ours.
const LabelSandbox = "openshell.ai/sandbox-id"

// ListCommand is how a person sees the containers of every owner.
const ListCommand = "docker ps --all --no-trunc --filter label=" + LabelOwner

func requireSameEngine(ctx context.Context, e *dockerengine.Engine, in resource.Intent) error {
	if in.Endpoint == "" {
		return nil
	}
	f, err := e.Refresh(ctx)
	if err != nil {
		return err
	}
	return mismatch(e, f, in)
}

// Deletions are containers to remove.
type Deletions struct {
	Intents  []resource.Intent  // at least one
	Listed   []resource.Summary // what the engine listed, after its identity was checked
	Parallel int                // how many are removed at a time, at most
	Now      func() time.Time
	Absent   func(ctx context.Context, in resource.Intent, out *resource.Deletion) // removes what else the resource of an absent container has
}

// DeleteAll removes the containers whose ids are recorded, if they are listed, and then looks for all of them with one list. If
// another engine answers since, that list tells, and an id means nothing to it.
func DeleteAll(ctx context.Context, e *dockerengine.Engine, d Deletions) []resource.Deletion {
	out := make([]resource.Deletion, len(d.Intents))
	seen := resourceIDs(d.Listed)
	finish := context.WithoutCancel(ctx) // what was asked for is observed
	var mute atomic.Int32                // how many in a row had no answer: an engine that hangs is not asked a hundred times
	each := func(do func(i int)) {
		var all errgroup.Group
		all.SetLimit(d.Parallel)
		for i := range d.Intents {
			all.Go(func() error { do(i); return nil })
		}
		_ = all.Wait()
	}
	each(func(i int) {
		id := d.Intents[i].Resource
		switch {
		case !seen[id]:
			out[i].Result.Outcome = resource.Done
			return
		case ctx.Err() != nil:
			out[i].Result.Err = context.Cause(ctx)
			return
		case int(mute.Load()) >= d.Parallel:
			out[i].Result.Err = failure.New(failure.NotReady, "it was not asked to remove the container, since it had not answered before")
			return
		}
		crash.Point("owned/before-remove")
		done, err := e.Remove(finish, id)
		crash.Point("owned/after-remove")
		if done == resource.Unknown || failure.Is(err, failure.NotReady) {
			mute.Add(1)
		} else {
			mute.Store(0)
		}
		out[i].Result = resource.Result{Outcome: done, Resource: id, Err: err, Evidence: Container{Now: d.Now}.evidence("removing %s: %s", id, done)}
	})
	left, err := list(finish, e, d.Intents[0])
	seen = resourceIDs(left)
	each(func(i int) {
		in, c := d.Intents[i], Container{Now: d.Now}
		o := &out[i].Observation
		switch {
		case failure.Is(err, failure.NotReady):
			*o = resource.Observation{Err: err, Evidence: c.evidence("nothing could be observed: %v", err)}
		case err != nil: // of the list alone: each is looked for by itself
			f := c.find(finish, e, in)
			*o = resource.Observation{Presence: f.presence, Resource: in.Resource, Evidence: f.evidence, Err: f.err}
			if mismatch := requireSameEngine(finish, e, in); mismatch != nil {
				*o = resource.Observation{Err: mismatch, Evidence: c.evidence("nothing could be observed: %v", mismatch)}
			}
		case seen[in.Resource]:
			*o = resource.Observation{Presence: resource.Present, Resource: in.Resource, Evidence: c.evidence("the %s lists the container %s", in.Endpoint, in.Resource)}
		default:
			*o = resource.Observation{Presence: resource.Absent, Evidence: c.evidence("the %s lists no container with the id %s", in.Endpoint, in.Resource)}
		}
		if o.Presence == resource.Absent {
			d.Absent(finish, in, &out[i])
		}
	})
	return out
}

// UnreachableResults is what DeleteAll comes to for n intents whose engine cannot be had.
func UnreachableResults(n int, err error) []resource.Deletion {
	out := make([]resource.Deletion, n)
	for i := range out {
		out[i].Observation.Err = err
	}
	return out
}

func resourceIDs(list []resource.Summary) map[string]bool {
	out := map[string]bool{}
	for _, f := range list {
		out[f.Resource] = true
	}
	return out
}
