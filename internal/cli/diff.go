package cli

import (
	"context"

	"github.com/laufwerk/laufwerk/internal/runs"
	"github.com/spf13/cobra"
)

type diffOptions struct {
	*Deps

	Run string
}

func newDiff(d *Deps) *cobra.Command {
	o := &diffOptions{Deps: d}
	return &cobra.Command{
		Use:   "diff RUN",
		Short: "Show what a run changed in its workspaces",
		Long: `Show the changes in the workspaces of a run, compared with the files that they were opened from. If a question about a
workspace waits for an answer, exactly the frozen content that the answer applies to is shown. Changes that can make code run
on this machine come first.`,
		Example: "$ laufwerk diff 261129-k3f9x2ab\n$ laufwerk diff 261129-k3f9x2ab --json",
		GroupID: sectionRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Run = args[0]
			return runDiff(cmd.Context(), o)
		},
	}
}

type diffDocument struct {
	Run        string            `json:"run"`
	State      string            `json:"state"`
	Workspaces []runs.Difference `json:"workspaces"`
}

func runDiff(ctx context.Context, o *diffOptions) error {
	s, err := o.Open.OpenToRead(ctx)
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
	ui := o.UI
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
	return ui.Document(diffDocument{r.ID, r.State, list})
}
