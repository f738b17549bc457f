package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/cli/render"
	"github.com/laufwerk/laufwerk/internal/project"
	"github.com/laufwerk/laufwerk/internal/runs"
)

type runsListOptions struct {
	*Deps
	All bool
}

func newRunsList(d *Deps) *cobra.Command {
	o := &runsListOptions{Deps: d}
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the runs of this project, newest first",
		Example: "$ laufwerk runs list\n$ laufwerk runs list --all --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runRunsList(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.All, "all", false, "list the runs of every project (the default outside a project)")
	return cmd
}

type runsListDocument struct {
	Runs []listedRun `json:"runs"`
}

type listedRun struct {
	runs.Run
	Worker      int  `json:"worker,omitempty"` // process id
	HalfApplied bool `json:"halfApplied,omitempty"`
}

func runRunsList(ctx context.Context, o *runsListOptions) error {
	s, err := o.Open.OpenToRead(ctx)
	if err != nil {
		return err
	}
	root := ""
	if !o.All {
		found, err := project.Find(o.Env.Dir, o.Flags.Project, "")
		if err == nil {
			root = found
		} else if o.Flags.Project != "" {
			return err
		}
	}
	all, err := s.List(ctx, "")
	if err != nil {
		return err
	}
	out := []listedRun{}
	var rows [][]any
	for _, r := range all {
		if root != "" && r.Root != root {
			continue
		}
		l := listedRun{Run: r}
		if w, live := s.Worker(r.ID); live {
			l.Worker = w.PID
		}
		if half, err := s.HalfApplied(r.ID); err == nil {
			l.HalfApplied = half != ""
		}
		out = append(out, l)
		rows = append(rows, []any{r.ID, r.Workflow, listedState(l), r.CreatedAt.Local().Format("2006-01-02 15:04"), listedNote(l)})
	}
	ui := o.UI
	ui.Table([]string{"RUN", "WORKFLOW", "STATE", "STARTED", ""}, rows)
	switch {
	case len(rows) > 0:
	case len(all) > 0: // they may be from before the project was moved
		ui.Talkf("no runs of the project %s\n", render.Name(root))
		ui.Next("laufwerk runs list --all")
	default:
		ui.Talkf("no runs\n")
	}
	return ui.Document(runsListDocument{out})
}

func listedState(l listedRun) string {
	if l.HalfApplied {
		return l.State + ", half-applied write-back"
	}
	return l.State
}

func listedNote(l listedRun) string {
	switch {
	case l.HalfApplied:
		return "laufwerk writeback continue " + l.ID
	case l.State == runs.Waiting && len(l.Waiting) > 0:
		return l.Waiting[0].Title
	case l.State == runs.Interrupted:
		return "laufwerk resume " + l.ID
	default:
		return l.Reason
	}
}
