package app

import (
	"context"

	"github.com/laufwerk/laufwerk/internal/cli/settings"
	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system"
)

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
