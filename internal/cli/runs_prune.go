package cli

import (
	"context"

	"github.com/spf13/cobra"
)

type runsPruneOptions struct {
	*Deps
	Run string
}

func newRunsPrune(d *Deps) *cobra.Command {
	o := &runsPruneOptions{Deps: d}
	return &cobra.Command{
		Use:     "prune RUN",
		Short:   "Remove the history of a run that has ended and has no resources left",
		Example: "$ laufwerk runs prune 261129-k3f9x2ab",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Run = args[0]
			return runRunsPrune(cmd.Context(), o)
		},
	}
}

type runsPruneDocument struct {
	Removed bool   `json:"removed"`
	Run     string `json:"run"`
}

func runRunsPrune(ctx context.Context, o *runsPruneOptions) error {
	s, err := o.openToChange(ctx, "runs prune")
	if err != nil {
		return err
	}
	r, err := s.Get(ctx, o.Run)
	if err != nil {
		return err
	}
	if err := s.Prune(ctx, r.ID); err != nil {
		return err
	}
	o.UI.Talkf("run %s is removed\n", r.ID)
	return o.UI.Document(runsPruneDocument{Run: r.ID, Removed: true})
}
