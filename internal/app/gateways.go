package app

import (
	"context"

	"github.com/laufwerk/laufwerk/internal/openshell"
	"github.com/laufwerk/laufwerk/internal/system"
)

// gateways keeps one connection to each OpenShell gateway that a process meets. An alias is looked up each time: it may be
// another gateway's by now.
type gateways struct {
	find func(alias string) (openshell.Registration, error)
	kept keeper[*openshell.Gateway]
}

func newGateways(env *system.Env) *gateways {
	return &gateways{find: openshell.Registrations{Vars: env.Vars, Home: env.Home()}.Find}
}

func (g *gateways) at(ctx context.Context, alias string) (*openshell.Gateway, error) {
	r, err := g.find(alias)
	if err != nil {
		return nil, err
	}
	return g.kept.get(ctx, r.Identity(), "the gateway at "+r.Endpoint, func(ctx context.Context) (*openshell.Gateway, error) {
		return openshell.Connect(ctx, r)
	})
}
