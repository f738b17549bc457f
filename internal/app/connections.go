package app

import (
	"context"
	"sync"

	"golang.org/x/sync/singleflight"

	"github.com/laufwerk/laufwerk/internal/cli/settings"
	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/openshell"
	"github.com/laufwerk/laufwerk/internal/system"
)

// keeper keeps one connection to each of the things that a process meets, by a key that tells them apart. All who want one that is
// being made wait for it together: of something that hangs, that is one wait for all. A failure is not kept.
type keeper[T any] struct {
	open   sync.Map // from key to T
	making singleflight.Group
}

// get is the connection that is kept, or what connect comes to. It does not wait longer than ctx; what is a name for people.
func (k *keeper[T]) get(ctx context.Context, key, what string, connect func(ctx context.Context) (T, error)) (T, error) {
	if kept, ok := k.open.Load(key); ok {
		return kept.(T), nil
	}
	made := k.making.DoChan(key, func() (any, error) {
		if kept, ok := k.open.Load(key); ok { // made between the question above and this call
			return kept, nil
		}
		made, err := connect(context.WithoutCancel(ctx)) // who asks first may leave before the others
		if err == nil {
			k.open.Store(key, made)
		}
		return made, err
	})
	select {
	case r := <-made:
		return r.Val.(T), r.Err
	case <-ctx.Done():
		var none T
		return none, failure.Wrap(context.Cause(ctx), failure.Failed, "connect to %s", what)
	}
}

// engines keeps one connection to each engine that a process meets.
type engines struct {
	find func() (dockerengine.Endpoint, error)
	kept keeper[*dockerengine.Engine]
}

// at is the engine at an endpoint, "" is the one that the settings lead to.
func (e *engines) at(ctx context.Context, host string) (*dockerengine.Engine, error) {
	if e == nil {
		return nil, failure.New(failure.SettingsInvalid, "not checked: the settings are invalid").WithHint("laufwerk config")
	}
	at, err := e.find()
	switch {
	case host == "" && err != nil:
		return nil, err
	case host != "" && (err != nil || at.Host != host):
		at = dockerengine.Endpoint{Host: host, Origin: "the claim"}
	}
	return e.kept.get(ctx, at.Host, "the engine at "+at.String(), func(ctx context.Context) (*dockerengine.Engine, error) {
		return dockerengine.Connect(ctx, at)
	})
}

func (e *engines) host() (string, error) {
	if e == nil {
		return "", nil
	}
	at, err := e.find()
	return at.Host, err
}

func newEngines(env *system.Env, set *settings.Settings) *engines {
	return &engines{find: dockerengine.Finder{Vars: env.Vars, Home: env.Home(), Setting: set.Text(settings.DockerHost), UID: system.UID()}.Find}
}

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
