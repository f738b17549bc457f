package project

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/protocol"
	"github.com/laufwerk/laufwerk/internal/script"
	"github.com/laufwerk/laufwerk/internal/suggest"
	"github.com/laufwerk/laufwerk/internal/system/projectfs"
	"github.com/laufwerk/laufwerk/templates"
)

// Workflow is a workflow as its module describes it, ready to be started.
type Workflow struct {
	Name   string
	Input  json.RawMessage // JSON Schema; nil where there is none
	Output json.RawMessage // JSON Schema; nil where there is none
	Bundle protocol.Bundle // what a run of it is pinned to
	File   string          // relative to the project's root
}

// Workflows are the names of a project's workflows, sorted: the folders of laufwerk/workflows that have a workflow.ts.
func Workflows(root string) ([]string, error) {
	fs, err := projectfs.Open(root)
	if err != nil {
		return nil, failure.Wrap(err, failure.ProjectInvalid, "open the project %s", root)
	}
	defer fs.Close()
	folders, err := fs.Names(workflows)
	if err != nil {
		return nil, failure.New(failure.ProjectInvalid, "list the workflows of %s: %v", root, err).
			WithHint("ls -la %s", failure.Quote(filepath.Join(root, Dir)))
	}
	var names []string
	for _, n := range folders {
		if kind, _, _ := fs.Stat(fileOf(n)); IsName(n) && kind != projectfs.None {
			names = append(names, n)
		}
	}
	return names, nil
}

func fileOf(workflow string) string { return path.Join(workflows, workflow, "workflow.ts") }

// Workflow bundles and describes the workflow of a name.
func (p *Project) Workflow(ctx context.Context, wanted string) (*Workflow, error) {
	target := anyTarget
	if len(p.Targets) > 0 {
		target = p.Targets[0].Kind
		if p.Targets[0].ID != target {
			target += " --target " + p.Targets[0].ID
		}
		if !slices.Contains(p.Targets[0].Credentials(), templates.Login) { // the example's own agent would not do there
			target += " --agent-command COMMAND"
		}
	}
	return describe(ctx, p.runner, p.Root, wanted, target)
}

// anyTarget is a target as init takes it, where no other is known.
const anyTarget = "local"

// Describe is Workflow for a project whose config has not been loaded.
func Describe(ctx context.Context, runner *script.Runner, root, wanted string) (*Workflow, error) {
	return describe(ctx, runner, root, wanted, anyTarget)
}

func describe(ctx context.Context, runner *script.Runner, root, wanted, target string) (*Workflow, error) {
	names, err := Workflows(root)
	if err != nil {
		return nil, err
	}
	found := false
	for _, n := range names {
		found = found || n == wanted
	}
	if !found {
		return nil, unknown(wanted, names, target)
	}
	file := fileOf(wanted)
	if err := check(root, workflows, path.Dir(file), file); err != nil {
		return nil, err
	}
	value, bundle, err := runner.Evaluate(ctx, root, file, script.EvalOptions{Export: "workflow"})
	if err != nil {
		return nil, WithDefaultHint(err, root, file)
	}
	var w struct {
		Name   string          `json:"name"`
		Input  json.RawMessage `json:"input"`
		Output json.RawMessage `json:"output"`
	}
	if json.Unmarshal(value, &w) != nil || w.Name == "" {
		return nil, failure.New(failure.ProjectInvalid, "%s: the export `workflow` is not a workflow: make it with defineWorkflow", file).
			WithPaths(file).WithHint("${EDITOR:-vi} %s", failure.Quote(filepath.Join(root, filepath.FromSlash(file))))
	}
	if w.Name != wanted {
		return nil, failure.New(failure.ProjectInvalid, "%s: its `name` is %q, but its folder is %q: a workflow has the name of its folder", file, w.Name, wanted).
			WithPaths(file).WithHint("${EDITOR:-vi} %s", failure.Quote(filepath.Join(root, filepath.FromSlash(file))))
	}
	bundle.Output = w.Output
	return &Workflow{Name: w.Name, Input: w.Input, Output: w.Output, Bundle: bundle, File: file}, nil
}

// Drift says what has become of a workflow since a run was pinned to this code of it, "" where the next run would have the same.
func Drift(ctx context.Context, runner *script.Runner, root, workflow, code string) string {
	now, known := runner.RecallBundle(root, fileOf(workflow))
	if !known {
		w, err := Describe(ctx, runner, root, workflow)
		switch {
		case ctx.Err() != nil:
			return ""
		case err != nil:
			return fmt.Sprintf("the workflow %s cannot be loaded any more: %v", workflow, err)
		}
		now = w.Bundle
	}
	if now.Code != code {
		return fmt.Sprintf("the code of the workflow %s has changed", workflow)
	}
	return ""
}

func unknown(wanted string, names []string, target string) error {
	e := failure.New(failure.NotFound, "there is no workflow %q", wanted)
	switch near := suggest.Closest(wanted, names); {
	case len(names) == 0:
		e.Message += ": a workflow is a file " + fileOf("NAME") + ", and the project has none"
		return e.WithHint("laufwerk init --execution %s --example issue-to-fix", target)
	case near != "":
		e.Message += fmt.Sprintf("; did you mean %q?", near)
	default:
		e.Message += "."
	}
	e.Message += " The project has: " + strings.Join(names, ", ")
	return e.WithHint("laufwerk run %s", names[0])
}
