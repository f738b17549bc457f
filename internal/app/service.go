package app

import (
	"context"
	"strings"

	"github.com/laufwerk/laufwerk/internal/build"
	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/cli"
	"github.com/laufwerk/laufwerk/internal/cli/settings"
	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/prepare"
	"github.com/laufwerk/laufwerk/internal/redact"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/runs"
	"github.com/laufwerk/laufwerk/internal/store"
	"github.com/laufwerk/laufwerk/internal/workflow"
	"github.com/laufwerk/laufwerk/internal/workspace"
)

// opens makes the use cases of runs, with every provider and agent program of this build.
func opens(d *cli.Deps) cli.OpenRuns {
	return func(_ context.Context, create bool) (*runs.Service, error) {
		set, err := d.Settings()
		if err != nil {
			return nil, err
		}
		dir, err := set.Home()
		if err != nil {
			return nil, err
		}
		home, err := store.OpenHome(dir, create)
		if err != nil {
			return nil, err
		}
		command := "laufwerk " + redact.Line(strings.Join(d.Env.Args, " "))
		st := store.Open(home, d.Env.Now, command)
		engines := newEngines(d.Env, set)
		p := newParts(d.Env, home.Dir(), engines)
		trees := workspace.NewResources(home.Dir(), workspace.Bounds{}, d.Env.Now, nil)
		preparations := prepare.Containers{Engines: dockerengine.Engines{Connect: engines.at, Host: engines.host}, Now: d.Env.Now}
		driver := claims.NewDriver(claims.Options{
			Store: st, Now: d.Env.Now, Owner: st.ID,
			Resources: func(kind claims.Kind, provider string) (resource.Manager, bool) {
				switch {
				case kind == claims.KindWorkspace && provider == workflow.WorkspaceProvider:
					return trees, true
				case kind == claims.KindPreparation && provider == prepare.ContainerProvider:
					return preparations, true
				}
				return p.provider(provider)
			},
		})
		evaluator := runner(d, set)
		evaluator.Bundles = home.BundlesDir()
		return &runs.Service{
			Home: home, Store: st, Driver: driver, Script: evaluator, Provider: p.provider, Programs: p.programs,
			HostVars: d.Env.Vars, HomeDir: d.Env.Home(), Now: d.Env.Now, Build: build.Read().Version, Command: command,
			MaxFiles: set.Count(settings.WriteBackMaxFiles), MaxBytes: set.Bytes(settings.WriteBackMaxBytes),
		}, nil
	}
}
