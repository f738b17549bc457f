package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/cli/render"
)

type writebackOptions struct {
	*Deps

	Run        string
	Abort      bool
	DryRun     bool
	NoExchange bool
}

func newWriteback(d *Deps) *cobra.Command {
	g := Group("writeback", "End a write-back that was killed half-way", newWritebackEnd(d, false), newWritebackEnd(d, true))
	g.GroupID = SectionOperate
	return g
}

func newWritebackEnd(d *Deps, abort bool) *cobra.Command {
	o := &writebackOptions{Deps: d, Abort: abort}
	cmd := &cobra.Command{
		Use:     "continue RUN",
		Short:   "Bring a half-applied write-back to its end",
		Long:    "Write the rest of the frozen bytes. The run itself is not resumed: laufwerk resume does both.",
		Example: "$ laufwerk writeback continue 261129-k3f9x2ab",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Run = args[0]
			return runWriteback(cmd.Context(), o)
		},
	}
	if abort {
		cmd.Use, cmd.Short = "abort RUN", "Undo a half-applied write-back"
		cmd.Long = "Put back what was there before, path by path; a path that somebody changed since is left alone and named.\nlaufwerk resume would write the same bytes again; laufwerk runs cancel ends the run."
		cmd.Example = "$ laufwerk writeback abort 261129-k3f9x2ab --dry-run\n$ laufwerk writeback abort 261129-k3f9x2ab"
	}
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "only list the steps")
	if !abort {
		cmd.Flags().BoolVar(&o.NoExchange, "no-exchange", false, "write back also where the file system cannot exchange two files atomically")
	}
	return cmd
}

func runWriteback(ctx context.Context, o *writebackOptions) error {
	if err := RefuseInsideSession("writeback"); err != nil {
		return err
	}
	s, err := o.Open(ctx, false)
	if err != nil {
		return err
	}
	ui := o.UI
	if o.DryRun {
		steps, err := s.WriteBackSteps(ctx, o.Run)
		if err != nil {
			return err
		}
		for _, st := range steps {
			ui.Printf("%s\t%s\t%s\n", string(st.Action), render.Name(st.Path), st.Note)
		}
		return ui.Document(map[string]any{"run": o.Run, "steps": steps})
	}
	rep, err := s.EndWriteBack(ctx, o.Run, o.Abort, o.NoExchange)
	if err != nil {
		return Fail(err, rep)
	}
	for _, p := range rep.Restored {
		ui.Printf("restored\t%s\n", render.Name(p))
	}
	for _, l := range rep.Left {
		ui.Printf("left\t%s\t%s\n", render.Name(l.Path), render.Name(l.Why))
	}
	for _, p := range rep.Rescued {
		ui.Printf("rescued\t%s\n", render.Name(p))
	}
	ui.Talkf("the write-back of run %s is %s\n", rep.Run, rep.State)
	if o.Abort {
		ui.Next("laufwerk runs cancel " + rep.Run + "\nlaufwerk resume " + rep.Run)
	} else {
		ui.Next("laufwerk resume " + rep.Run)
	}
	return ui.Document(rep)
}
