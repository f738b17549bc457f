package app

import (
	"context"
	"maps"
	"slices"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/cli"
	"github.com/laufwerk/laufwerk/internal/doctor"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/runs"
)

// examines says where doctor looks: with the resolvers that runs use.
func examines(d *cli.Deps) func(probe bool) doctor.Options {
	open := opens(d)
	return func(probe bool) doctor.Options {
		home := ""
		var e *engines
		if s, err := d.Settings(); err == nil {
			home, _ = s.Home() // the check of the settings says why there is none
			e = newEngines(d.Env, s)
		}
		p := newParts(d.Env, home, e)
		kinds := slices.Sorted(maps.Keys(p.providers))
		return doctor.Options{
			Settings: func() (string, error) {
				s, err := d.Settings()
				if err != nil {
					return "", err
				}
				return s.Home()
			},
			Open:   func(ctx context.Context) (*runs.Service, error) { return open(ctx, probe) },
			Runner: projects{d: d}.reader,
			Dir:    d.Env.Dir, Project: d.Flags.Project, Kinds: kinds,
			Provider: func(kind string) (providers.Provider, bool) { return p.provider(kind) },
			Programs: p.programs, User: func() agent.User { return agent.User{Vars: d.Env.Vars, Home: d.Env.Home(), Now: d.Env.Now()} },
			Now: d.Env.Now,
		}
	}
}
