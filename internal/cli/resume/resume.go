// Package resume is the command `laufwerk resume`.
package resume

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

	Run        string
	NoExchange bool
}

// New makes the command; runF replaces what it does in tests.
func New(d *cli.Deps, open worker.Open, runF func(context.Context, *Options) error) *cobra.Command {
	o := &Options{Deps: d, Open: open}
	cmd := &cobra.Command{
		Use:   "resume RUN",
		Short: "Take up a run where it was left",
		Long: `Take up a run whose worker was killed or interrupted, or that waits for a person. What has completed is not
done again; a turn that still runs is joined. The run keeps the code that it started with. If the definition of one of
its targets changed since, nothing is done and the command says what changed.`,
		Example: "$ laufwerk resume 261129-k3f9x2ab",
		GroupID: cli.SectionRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Run = args[0]
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return run(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.NoExchange, "no-exchange", false, "write back also where the file system cannot exchange two files atomically")
	return cmd
}

func run(ctx context.Context, o *Options) error {
	if err := worker.Outside("resume"); err != nil {
		return err
	}
	s, err := o.Open(ctx, false)
	if err != nil {
		return err
	}
	st, err := s.Resume(ctx, o.Run)
	if err != nil {
		return err
	}
	return worker.Work(ctx, o.Deps, s, st, worker.Options{NoExchange: o.NoExchange})
}
