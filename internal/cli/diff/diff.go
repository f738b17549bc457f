// Package diff is the command `laufwerk diff`.
package diff

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/cli"
	"github.com/laufwerk/laufwerk/internal/cli/worker"
)

// Options of the command.
type Options struct {
	Deps *cli.Deps
	Open worker.Open

	Run string
}

// New makes the command.
func New(d *cli.Deps, open worker.Open) *cobra.Command {
	o := &Options{Deps: d, Open: open}
	return &cobra.Command{
		Use:   "diff RUN",
		Short: "Show what a run changed in its workspaces",
		Long: `Show the changes in the workspaces of a run against what they were opened from. Where a question waits for an answer
about a workspace, exactly the frozen content that the answer will count for is shown. What can make code run on this
machine comes first.`,
		Example: "$ laufwerk diff 261129-k3f9x2ab\n$ laufwerk diff 261129-k3f9x2ab --json",
		GroupID: cli.SectionRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Run = args[0]
			return run(cmd.Context(), o)
		},
	}
}

func run(ctx context.Context, o *Options) error {
	s, err := o.Open.Look(ctx)
	if err != nil {
		return err
	}
	r, err := s.Get(ctx, o.Run)
	if err != nil {
		return err
	}
	list, err := s.Differences(ctx, r)
	if err != nil {
		return err
	}
	ui := o.Deps.UI
	head := ui.Talkf
	if len(list) > 1 { // then it is data: which is which
		head = ui.Printf
	}
	for _, d := range list {
		if d.Question != "" {
			head("workspace %s, frozen as %s for the question %q\n", d.Workspace, d.Digest, d.Question)
		} else {
			head("workspace %s, as it is now\n", d.Workspace)
		}
		ui.Printf("%s", d.Text)
	}
	if len(list) == 0 {
		ui.Talkf("run %s has no workspace any more\n", r.ID)
	}
	return ui.Document(map[string]any{"run": r.ID, "state": r.State, "workspaces": list})
}
