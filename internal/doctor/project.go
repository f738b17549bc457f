package doctor

import (
	"context"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/project"
	"github.com/laufwerk/laufwerk/internal/scaffold"
	"github.com/laufwerk/laufwerk/internal/suggest"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// isNoProject says whether there is simply no project here, which is no mistake.
func (d *doctor) isNoProject(err error) bool {
	return failure.Is(err, failure.ProjectNotFound) && d.Project == ""
}

func (d *doctor) projectLoads(ctx context.Context) []Check {
	p, err := d.project(ctx)
	switch {
	case d.isNoProject(err):
		return oneCheck(Skip, "there is no project here")
	case err != nil:
		if _, unset := d.Runner(); unset != nil { // which the check of the settings says
			return oneCheck(Skip, "not checked: the settings cannot be read")
		}
		return failedCheck(err)
	}
	return []Check{{Status: Pass, Message: "the project " + p.ID + " can be loaded", Evidence: []string{p.Root}}}
}

func (d *doctor) workflows(ctx context.Context) []Check {
	root, err := d.root()
	if err != nil {
		return oneCheck(Skip, "there is no project here")
	}
	names, err := project.Workflows(root)
	if err != nil {
		return failedCheck(err)
	}
	runner, err := d.Runner()
	if err != nil {
		return oneCheck(Skip, "not checked: the settings cannot be read")
	}
	if len(names) == 0 {
		return []Check{{Status: Warn, Message: "the project has no workflow yet", Hint: "laufwerk init --help"}}
	}
	errs := make([]error, len(names))
	var g errgroup.Group
	g.SetLimit(4)
	for i, n := range names {
		g.Go(func() error { _, errs[i] = project.Describe(ctx, runner, root, n); return nil })
	}
	_ = g.Wait()
	var out []Check
	for i, err := range errs {
		if err != nil {
			c := failedCheck(err)[0]
			c.ID = "project.workflows." + names[i]
			out = append(out, c)
		}
	}
	if out == nil {
		return oneCheck(Pass, "%s can be loaded", strings.Join(names, ", "))
	}
	return out
}

func (d *doctor) types(context.Context) []Check {
	root, err := d.root()
	if err != nil {
		return oneCheck(Skip, "there is no project here")
	}
	list, err := scaffold.Types(root)
	if err != nil {
		return failedCheck(err)
	}
	var stale []string
	for _, f := range list {
		if f.Stale() {
			stale = append(stale, f.Path+" is "+string(f.State))
		}
	}
	return listCheck(Warn, "the declarations are up to date", "files for editors and tsc that are out of date: %d", "laufwerk types", stale)
}

// targets are those to look at: the project's, or without a project, of a kind that was asked for, its defaults.
func (d *doctor) targets(ctx context.Context) ([]targets.Definition, error) {
	if d.Execution != "" {
		if _, ok := d.Provider(d.Execution); !ok {
			e := failure.New(failure.Usage, "unknown kind of execution %q: expected one of %s", d.Execution, strings.Join(d.Kinds, ", "))
			if near := suggest.Closest(d.Execution, d.Kinds); near != "" {
				return nil, e.WithHint("laufwerk doctor --execution %s", near)
			}
			return nil, e.WithHint("laufwerk doctor --help")
		}
	}
	p, err := d.project(ctx)
	if err != nil {
		if d.Target != "" {
			return nil, err
		}
		if d.isNoProject(err) && d.Execution != "" {
			one, _ := d.Provider(d.Execution)
			def, err := one.Validate([]byte(`{}`))
			return []targets.Definition{def}, err
		}
		return nil, nil // the project's own check says it
	}
	var out []targets.Definition
	var ids []string
	for _, def := range p.Targets {
		if d.Execution != "" && def.Kind != d.Execution {
			continue
		}
		ids = append(ids, def.ID)
		if d.Target == "" || def.ID == d.Target {
			out = append(out, def)
		}
	}
	switch {
	case len(out) > 0 || d.Target == "" && d.Execution == "":
		return out, nil
	case d.Target == "":
		return nil, failure.New(failure.NotFound, "the project has no target of the kind %s", d.Execution).WithHint("laufwerk doctor")
	}
	e := failure.New(failure.NotFound, "the project has no target %q", d.Target).WithHint("laufwerk doctor")
	if near := suggest.Closest(d.Target, ids); near != "" {
		e.WithHint("laufwerk doctor --target %s", near)
	}
	return nil, e
}
