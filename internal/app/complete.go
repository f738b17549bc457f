package app

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/cli"
	"github.com/laufwerk/laufwerk/internal/cli/completion"
	"github.com/laufwerk/laufwerk/internal/project"
	"github.com/laufwerk/laufwerk/internal/script"
	"github.com/laufwerk/laufwerk/internal/system"
)

// complete answers a shell that asks what could be typed next.
func complete(ctx context.Context, env *system.Env) int {
	return cli.Complete(ctx, env, Commands, func(d *cli.Deps, root *cobra.Command) {
		s := completion.Sources{Deps: d, Open: opens(d), Project: loadsProject(d)}
		completion.Attach(root.Commands(), s)
		completion.AttachGlobal(root, s)
	})
}

// loadsProject loads the project at a root.
func loadsProject(d *cli.Deps) func(ctx context.Context, root string) (*project.Project, error) {
	return func(ctx context.Context, root string) (*project.Project, error) {
		s, err := d.Settings()
		if err != nil {
			return nil, err
		}
		return project.Load(ctx, recalling(d, s), root)
	}
}

// loadsToPrepare loads the project at a root whose images are about to be prepared.
func loadsToPrepare(d *cli.Deps) func(ctx context.Context, root string) (*project.Project, error) {
	return func(ctx context.Context, root string) (*project.Project, error) {
		s, err := d.Settings()
		if err != nil {
			return nil, err
		}
		r := recalling(d, s)
		r.Host = preparing(d)
		return project.Load(ctx, r, root)
	}
}

// scripts makes what evaluates modules; log gets what they print.
func scripts(p preparer) func(log func(level, text string)) (*script.Runner, error) {
	return func(log func(level, text string)) (*script.Runner, error) {
		s, err := p.d.Settings()
		if err != nil {
			return nil, err
		}
		r := runner(p.d, s)
		r.Log, r.Host = log, scripting(p)
		return r, nil
	}
}
