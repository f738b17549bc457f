package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/cli/render"
	"github.com/laufwerk/laufwerk/internal/writeback"
)

type writebackOptions struct {
	*Deps

	Run        string
	Abort      bool
	DryRun     bool
	NoExchange bool
}

func newWriteback(d *Deps) *cobra.Command {
	g := newGroup("writeback", "Finish or undo a write-back that was interrupted half-way", newWritebackContinue(d), newWritebackAbort(d))
	g.GroupID = sectionOperate
	return g
}

func newWritebackContinue(d *Deps) *cobra.Command {
	o := &writebackOptions{Deps: d}
	cmd := &cobra.Command{
		Use:     "continue RUN",
		Short:   "Finish a half-applied write-back",
		Long:    `Write the rest of the frozen content to the source. The run itself is not continued: laufwerk resume does both.`,
		Example: "$ laufwerk writeback continue 261129-k3f9x2ab",
		RunE:    o.runE,
	}
	cmd.Flags().BoolVar(&o.NoExchange, "no-exchange", false, "write back even if the file system cannot exchange two files atomically")
	o.addFlags(cmd)
	return cmd
}

func newWritebackAbort(d *Deps) *cobra.Command {
	o := &writebackOptions{Deps: d, Abort: true}
	cmd := &cobra.Command{
		Use:   "abort RUN",
		Short: "Undo a half-applied write-back",
		Long: `Restore the previous content of each path. A path that was changed since then is not restored, and is listed.
Afterwards laufwerk resume would write the same content again, and laufwerk runs cancel ends the run.`,
		Example: "$ laufwerk writeback abort 261129-k3f9x2ab --dry-run\n$ laufwerk writeback abort 261129-k3f9x2ab",
		RunE:    o.runE,
	}
	o.addFlags(cmd)
	return cmd
}

func (o *writebackOptions) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "only list the steps")
}

func (o *writebackOptions) runE(cmd *cobra.Command, args []string) error {
	o.Run = args[0]
	return runWriteback(cmd.Context(), o)
}

// writebackStepsDocument is printed with --dry-run; otherwise it is the report.
type writebackStepsDocument struct {
	Run   string           `json:"run"`
	Steps []writeback.Step `json:"steps"`
}

func runWriteback(ctx context.Context, o *writebackOptions) error {
	s, err := o.openToChange(ctx, "writeback")
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
		return ui.Document(writebackStepsDocument{o.Run, steps})
	}
	rep, err := s.EndWriteBack(ctx, o.Run, o.Abort, o.NoExchange)
	if err != nil {
		return failWithDocument(err, rep)
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
