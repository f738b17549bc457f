package app

import (
	"context"
	"path"
	"time"

	"github.com/laufwerk/laufwerk/internal/cli"
	"github.com/laufwerk/laufwerk/internal/cli/settings"
	"github.com/laufwerk/laufwerk/internal/project"
	"github.com/laufwerk/laufwerk/internal/script"
	"github.com/laufwerk/laufwerk/internal/store"
	"github.com/laufwerk/laufwerk/internal/system"
)

// projects loads projects. It alone says with which limits, which recorded bundles and which answers of the host their
// TypeScript is evaluated.
type projects struct{ d *cli.Deps }

func runner(d *cli.Deps, s *settings.Settings) *script.Runner {
	memory := s.Bytes(settings.ScriptMemory)
	return &script.Runner{
		Executable:     system.Executable(),
		Host:           preparations(d).AnswerConfig,
		ConfigLimits:   script.Limits{MemoryBytes: memory / 2, StepMillis: millis(s.Time(settings.ScriptConfigTime))},
		WorkflowLimits: script.Limits{MemoryBytes: memory, StepMillis: millis(s.Time(settings.ScriptStepTime))},
	}
}

// millis is at least 1: for the isolate, 0 is no limit.
func millis(d time.Duration) int64 { return max(1, d.Milliseconds()) }

// reader is a runner that uses the bundles that runs have recorded, and adds none: for commands that only read.
func (p projects) reader() (*script.Runner, error) {
	s, err := p.d.Settings()
	if err != nil {
		return nil, err
	}
	r := runner(p.d, s)
	if dir, err := s.Home(); err == nil { // without one there is nothing recorded
		if home, err := store.OpenHome(dir, false); err == nil { // which nobody else can write
			r.Bundles, r.Recalls = home.BundlesDir(), true
		}
	}
	return r, nil
}

// Load is cli.Projects.
func (p projects) Load(ctx context.Context, root string) (*project.Project, error) {
	r, err := p.reader()
	if err != nil {
		return nil, err
	}
	return project.Load(ctx, r, root)
}

// LoadToPrepare loads the project at a root whose images are about to be prepared.
func (p projects) LoadToPrepare(ctx context.Context, root string) (*project.Project, error) {
	r, err := p.reader()
	if err != nil {
		return nil, err
	}
	r.Host = preparations(p.d).AnswerPreparedConfig
	return project.Load(ctx, r, root)
}

// ScriptRunner is cli.Projects.
func (p projects) ScriptRunner(log func(level, text string)) (*script.Runner, error) {
	s, err := p.d.Settings()
	if err != nil {
		return nil, err
	}
	r := runner(p.d, s)
	r.Log, r.Host = log, preparations(p.d).AnswerScript
	return r, nil
}

// Check is cli.Projects. Of what is in overlay, the workflows are evaluated too.
func (p projects) Check(ctx context.Context, root string, overlay map[string][]byte) (*project.Project, error) {
	s, err := p.d.Settings()
	if err != nil {
		return nil, err
	}
	if root, err = project.Find(root, root, ""); err != nil {
		return nil, err
	}
	r := runner(p.d, s)
	r.Overlay = overlay
	loaded, err := project.Load(ctx, r, root)
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
		return loaded, nil
	}
	names, err := project.Workflows(root)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if _, err := loaded.Workflow(ctx, name); err != nil {
			return nil, err
		}
	}
	return loaded, nil
}
