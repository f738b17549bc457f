package docker

import (
	"context"
	"errors"
	"fmt"

	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/providers/sessiondir"
	"github.com/laufwerk/laufwerk/internal/resource"
)

func (p *Provider) container(in resource.Intent, s spec) owned.Container {
	return owned.Container{Now: p.c.Now, Image: s.Image, Engine: func(ctx context.Context) (*dockerengine.Engine, error) { return p.engineOf(ctx, in, s) }}
}

// Create makes the session's directory, then its container, which is not started.
func (p *Provider) Create(ctx context.Context, in resource.Intent) resource.Result {
	return p.make(ctx, in, owned.Container.Create)
}

// Resolve completes a Create: the directory is made atomically, and the container is created again under the same name.
func (p *Provider) Resolve(ctx context.Context, in resource.Intent) resource.Result {
	return p.make(ctx, in, owned.Container.Resolve)
}

func (p *Provider) make(ctx context.Context, in resource.Intent, create func(owned.Container, context.Context, resource.Intent, owned.ContainerSpec) resource.Result) resource.Result {
	s, id, err := readSpec(in)
	if err != nil {
		return resource.Result{Outcome: resource.NotDone, Err: err}
	}
	if s.Gives == nil && p.c.UID == 0 && s.User != "0:0" {
		return resource.Result{Outcome: resource.NotDone, Err: errors.New("the intent was written by another user")}
	}
	return p.directory(in, s, id).Make(ctx, s.Gives, []string{sessiondir.Home, sessiondir.Ops, sessiondir.Tmp}, func(*sessiondir.Folder) resource.Result {
		return create(p.container(in, s), ctx, in, s.containerSpec())
	})
}

// Observe looks for the container and the directory. The session is absent when neither exists.
func (p *Provider) Observe(ctx context.Context, in resource.Intent) resource.Observation {
	s, id, err := readSpec(in)
	if err != nil {
		return resource.Observation{Err: err}
	}
	o := p.container(in, s).Observe(ctx, in)
	if o.Presence != resource.Absent {
		return o
	}
	return p.directory(in, s, id).Observe(o, in.Resource)
}

func (p *Provider) directory(in resource.Intent, s spec, id sessiondir.Identity) sessiondir.Session {
	return sessiondir.Session{Dir: s.Dir, ID: id, Now: p.c.Now, What: "container " + in.Name}
}

// Delete removes the container with everything in it and, once that is absent, the directory.
func (p *Provider) Delete(ctx context.Context, in resource.Intent) resource.Result {
	s, id, err := readSpec(in)
	if err != nil {
		return resource.Result{Err: err}
	}
	c := p.container(in, s)
	r := c.Delete(ctx, in)
	if r.Outcome != resource.Done {
		return r
	}
	o := c.ObserveAfterDelete(ctx, in)
	r.Evidence = append(r.Evidence, o.Evidence...)
	if o.Presence != resource.Absent {
		return resource.Result{Err: errors.Join(o.Err, fmt.Errorf("the container is %s after its removal", o.Presence)), Evidence: r.Evidence}
	}
	return p.directory(in, s, id).Clear(ctx, r)
}
