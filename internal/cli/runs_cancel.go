package cli

import (
	"context"

	"github.com/spf13/cobra"
)

type runsCancelOptions struct {
	*Deps
	Run    string
	Reason string
	Force  bool
}

func newRunsCancel(d *Deps) *cobra.Command {
	o := &runsCancelOptions{Deps: d}
	cmd := &cobra.Command{
		Use:   "cancel RUN",
		Short: "End a run permanently",
		Long: `End a run: its processes are ended, and it cannot be resumed any more. If a worker process executes the run, that process is
asked to end it. What the run allocated stays until laufwerk cleanup removes it.`,
		Example: "$ laufwerk runs cancel 261129-k3f9x2ab && laufwerk cleanup 261129-k3f9x2ab",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Run = args[0]
			return runRunsCancel(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.Reason, "reason", "", "record `TEXT` as the reason")
	cmd.Flags().BoolVar(&o.Force, "force", false, "kill a worker process that does not respond")
	return cmd
}

func runRunsCancel(ctx context.Context, o *runsCancelOptions) error {
	s, err := o.openToChange(ctx, "runs cancel")
	if err != nil {
		return err
	}
	r, err := s.Cancel(ctx, o.Run, o.Reason, o.Force, currentPerson())
	if err != nil {
		return err
	}
	o.UI.Talkf("run %s has ended: %s\n", r.ID, r.State)
	o.UI.Next("laufwerk cleanup " + r.ID)
	return o.UI.Document(runDocument{Run: r.ID, Workflow: r.Workflow, State: r.State, Reason: r.Reason})
}
