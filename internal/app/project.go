package app

import (
	"context"
	"path"
	"time"

	"github.com/laufwerk/laufwerk/internal/cli"
	"github.com/laufwerk/laufwerk/internal/cli/settings"
	"github.com/laufwerk/laufwerk/internal/project"
	"github.com/laufwerk/laufwerk/internal/scaffold"
	"github.com/laufwerk/laufwerk/internal/script"
	"github.com/laufwerk/laufwerk/internal/store"
	"github.com/laufwerk/laufwerk/internal/system"
)

// runner evaluates TypeScript within the limits that the settings give.
func runner(d *cli.Deps, s *settings.Settings) *script.Runner {
	memory := s.Bytes(settings.ScriptMemory)
	return &script.Runner{
		Executable:     system.Executable(),
		Host:           reading(d),
		ConfigLimits:   script.Limits{MemoryBytes: memory / 2, StepMillis: millis(s.Time(settings.ScriptConfigTime))},
		WorkflowLimits: script.Limits{MemoryBytes: memory, StepMillis: millis(s.Time(settings.ScriptStepTime))},
	}
}

// recalling is a runner that uses what runs have remembered of the project, and adds nothing: for commands that only look.
func recalling(d *cli.Deps, s *settings.Settings) *script.Runner {
	r := runner(d, s)
	dir, err := s.Home()
	if err != nil {
		return r
	}
	if home, err := store.OpenHome(dir, false); err == nil { // which nobody else can write
		r.Bundles, r.Recalls = home.BundlesDir(), true
	}
	return r
}

// millis is at least 1: for the isolate, 0 is no limit.
func millis(d time.Duration) int64 { return max(1, d.Milliseconds()) }

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

// loads says whether the project at root, and each of its workflows, can be loaded.
func loads(d *cli.Deps) func(ctx context.Context, root string) error {
	return func(ctx context.Context, root string) error {
		_, err := loadsWith(d)(ctx, root, nil)
		return err
	}
}

// loadsWith is scaffold.Load.
func loadsWith(d *cli.Deps) scaffold.Load {
	return func(ctx context.Context, root string, overlay map[string][]byte) (*project.Project, error) {
		s, err := d.Settings()
		if err != nil {
			return nil, err
		}
		if root, err = project.Find(root, root, ""); err != nil {
			return nil, err
		}
		r := runner(d, s)
		r.Overlay = overlay
		p, err := project.Load(ctx, r, root)
		if err != nil {
			return nil, err
		}
		if overlay != nil {
			for file := range overlay {
				if path.Base(file) == "workflow.ts" {
					if _, _, err := r.Evaluate(ctx, root, file, script.EvalOptions{Export: "workflow"}); err != nil {
						return nil, err
					}
				}
			}
			return p, nil
		}
		names, err := project.Workflows(root)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if _, err := p.Workflow(ctx, name); err != nil {
				return nil, err
			}
		}
		return p, nil
	}
}
