package runs

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/cli"
	"github.com/laufwerk/laufwerk/internal/cli/worker"
	"github.com/laufwerk/laufwerk/internal/runs"
)

// ShowOptions of `runs show`.
type ShowOptions struct {
	Deps *cli.Deps
	Open worker.Open
	Run  string
}

func newShow(d *cli.Deps, open worker.Open, runF func(context.Context, *ShowOptions) error) *cobra.Command {
	o := &ShowOptions{Deps: d, Open: open}
	return &cobra.Command{
		Use:     "show RUN",
		Short:   "Show a run as the operations that it is made of",
		Example: "$ laufwerk runs show 261129-k3f9x2ab",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Run = args[0]
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return show(cmd.Context(), o)
		},
	}
}

func show(ctx context.Context, o *ShowOptions) error {
	s, err := o.Open.Look(ctx)
	if err != nil {
		return err
	}
	d, err := s.Detail(ctx, o.Run)
	if err != nil {
		return err
	}
	ui := o.Deps.UI
	r := d.Run
	ui.Printf("run %s of %s in %s\n", ui.Out.Bold(r.ID), r.Workflow, r.Root)
	ui.Printf("state %s%s\n", r.State, because(r.Reason))
	if d.HalfApplied {
		ui.Printf("half-applied write-back\n")
	}
	if d.Worker != nil {
		ui.Printf("worker %s\n", d.Worker.String())
	}
	for _, op := range d.Operations {
		mark := ui.Out.Faint("·")
		switch op.State {
		case runs.OpDone:
			mark = ui.Out.Good("✓")
		case runs.OpFailed:
			mark = ui.Out.Bad("✗")
		}
		ui.Printf("%s%s %s%s\n", strings.Repeat("  ", op.Depth), mark, op.ID, details(op))
	}
	for _, q := range d.Run.Waiting {
		ui.Printf("waits since %s: %s\n  %s\n", time.UnixMilli(q.Since).Local().Format("2006-01-02 15:04"), q.Title, strings.ReplaceAll(runs.AnswerCommand(r.ID, q), "\n", "\n  "))
	}
	for _, c := range d.Claims {
		ui.Printf("holds %s %s (%s)\n", string(c.Kind), c.ID, string(c.State))
	}
	switch {
	case d.HalfApplied:
		ui.Next("laufwerk writeback continue " + r.ID + "\nlaufwerk writeback abort " + r.ID)
	case r.State == runs.Interrupted:
		ui.Next("laufwerk resume " + r.ID)
	}
	return ui.Document(d)
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

func details(op runs.Operation) string {
	var parts []string
	if op.Attempts > 1 || op.Cuts > 0 {
		parts = append(parts, plural(op.Attempts, "attempt"), plural(op.Cuts, "cut"))
	}
	if op.Millis > 0 {
		parts = append(parts, (time.Duration(op.Millis) * time.Millisecond).String())
	}
	if op.Usage != nil {
		parts = append(parts, plural(int(op.Usage.Input+op.Usage.Output), "token"))
	}
	if op.ExitCode != nil && *op.ExitCode != 0 {
		parts = append(parts, "exit "+itoa(*op.ExitCode))
	}
	if op.Approved != nil && !*op.Approved {
		parts = append(parts, "unapproved")
	}
	if op.Error != "" {
		parts = append(parts, op.Error)
	}
	if len(parts) == 0 {
		return ""
	}
	return "  (" + strings.Join(parts, ", ") + ")"
}
