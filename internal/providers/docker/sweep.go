package docker

import (
	"context"

	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/resource"
)

// Lister lists what carries a label of laufwerk.
func (p *Provider) Lister() resource.Lister { return p }

// List finds the containers of a store, with one list.
func (p *Provider) List(ctx context.Context, in resource.Intent) ([]resource.Summary, error) {
	e, err := p.engine(ctx, in)
	if err != nil {
		return nil, err
	}
	return owned.List(ctx, e, in)
}

// engine is the one that an intent names, or of the zero intent the one that the settings lead to.
func (p *Provider) engine(ctx context.Context, in resource.Intent) (*dockerengine.Engine, error) {
	if in.Endpoint == "" {
		return p.c.Connect(ctx, "")
	}
	s, _, err := readSpec(in)
	if err != nil {
		return nil, err
	}
	return p.engineOf(ctx, in, s)
}

// ListCommand is how a person sees the containers of every store.
func (*Provider) ListCommand() string { return owned.ListCommand }

// DeleteAll removes the containers of sessions, and then, of those whose absence was seen, the directories.
func (p *Provider) DeleteAll(ctx context.Context, list []resource.Intent, there []resource.Summary, parallel int) []resource.Deletion {
	e, err := p.engine(ctx, list[0])
	if err != nil {
		return owned.UnreachableResults(len(list), err)
	}
	return owned.DeleteAll(ctx, e, owned.Deletions{
		Intents: list, Listed: there, Parallel: parallel, Now: p.c.Now,
		Absent: func(ctx context.Context, in resource.Intent, out *resource.Deletion) {
			s, id, err := readSpec(in)
			if err != nil {
				out.Observation = resource.Observation{Err: err}
				return
			}
			at := p.directory(in, s, id)
			out.Result = at.Clear(ctx, out.Result)
			out.Observation = at.Observe(out.Observation, in.Resource)
		},
	})
}
