package app

import (
	"context"

	"github.com/laufwerk/laufwerk/internal/cli"
	"github.com/laufwerk/laufwerk/internal/project"
)

// here loads the project that a command is called in.
func here(d *cli.Deps) func(ctx context.Context) (*project.Project, error) {
	return func(ctx context.Context) (*project.Project, error) {
		s, err := d.Settings()
		if err != nil {
			return nil, err
		}
		home, err := s.Home()
		if err != nil {
			return nil, err
		}
		root, err := project.Find(d.Env.Dir, d.Flags.Project, home)
		if err != nil {
			return nil, err
		}
		return project.Load(ctx, recalling(d, s), root)
	}
}
