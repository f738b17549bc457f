package cli

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/cli/render"
	"github.com/laufwerk/laufwerk/internal/runs"
)

type runsShowOptions struct {
	*Deps
	Run string
}

func newRunsShow(d *Deps) *cobra.Command {
	o := &runsShowOptions{Deps: d}
	return &cobra.Command{
		Use:     "show RUN",
		Short:   "Show a run with its operations, its questions and its resources",
		Example: "$ laufwerk runs show 261129-k3f9x2ab",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Run = args[0]
			return runRunsShow(cmd.Context(), o)
		},
	}
}

func runRunsShow(ctx context.Context, o *runsShowOptions) error {
	s, err := o.Open.OpenToRead(ctx)
	if err != nil {
		return err
	}
	d, err := s.Detail(ctx, o.Run)
	if err != nil {
		return err
	}
	ui := o.UI
	r := d.Run
	ui.Printf("run %s of %s in %s\n", ui.Out.Bold(r.ID), r.Workflow, r.Root)
	ui.Printf("state %s%s\n", r.State, withColon(r.Reason))
	if len(d.Output) > 0 {
		ui.Printf("result %s\n", shortResult(d.Output))
	}
	if d.HalfApplied {
		ui.Printf("half-applied write-back\n")
	}
	if d.Worker != nil {
		ui.Printf("worker %s\n", d.Worker.String())
	}
	tree := runTree(d.Operations)
	total := &runNode{Children: tree}
	if total.sum(); total.Usage != nil {
		ui.Printf("used %s\n", render.Tokens(total.Usage.Input+total.Usage.Output))
	}
	printRunTree(ui, tree, "")
	for _, q := range d.Run.Waiting {
		ui.Printf("waits since %s: %s\n", time.UnixMilli(q.Since).Local().Format("2006-01-02 15:04"), q.Title)
		for _, more := range []string{q.Description, runs.AnswerCommand(r.ID, q)} {
			if more != "" {
				ui.Printf("  %s\n", strings.ReplaceAll(more, "\n", "\n  "))
			}
		}
	}
	for _, c := range d.Claims {
		ui.Printf("holds %s %s (%s)", string(c.Kind), c.ID, string(c.State))
		if c.Image != "" { // others are on this machine
			ui.Printf(": %s", claimLocation(c))
		}
		ui.Printf("\n")
	}
	switch {
	case d.HalfApplied:
		ui.Next("laufwerk writeback continue " + r.ID + "\nlaufwerk writeback abort " + r.ID)
	case r.State == runs.Interrupted:
		ui.Next("laufwerk resume " + r.ID)
	}
	return ui.Document(runsShowDocument{d, tree})
}

// shortResult is the workflow's result, shortened to maxResultBytes; --json has all of it.
func shortResult(output json.RawMessage) string {
	if len(output) <= maxResultBytes {
		return string(output)
	}
	return strings.ToValidUTF8(string(output[:maxResultBytes]), "") + "…"
}

const maxResultBytes = 2000

// runsShowDocument has the operations as a list, and as a tree.
type runsShowDocument struct {
	runs.Detail
	Tree []*runNode `json:"tree"`
}

func printRunTree(ui *render.UI, nodes []*runNode, indent string) {
	for _, n := range nodes {
		if n.Branch > 0 && len(n.Children) == 1 { // the operation says it all
			printRunTree(ui, n.Children, indent)
			continue
		}
		mark := ui.Out.Faint("·")
		switch n.State {
		case runs.OpDone:
			mark = ui.Out.Good("✓")
		case runs.OpFailed:
			mark = ui.Out.Bad("✗")
		}
		ui.Printf("%s%s %s%s\n", indent, mark, render.Name(runNodeName(n)), runNodeDetails(n))
		printRunTree(ui, n.Children, indent+"  ")
	}
}

func runNodeName(n *runNode) string {
	switch {
	case n.op != nil:
		return n.ID
	case n.All > 0:
		return "all"
	default:
		return "branch " + strconv.Itoa(n.Branch)
	}
}

func runNodeDetails(n *runNode) string {
	var parts []string
	op := n.op
	if op == nil {
		op = &runs.Operation{}
	}
	if op.Attempts > 1 || op.Cuts > 0 {
		parts = append(parts, plural(op.Attempts, "attempt"), plural(op.Cuts, "cut"))
	}
	switch {
	case op.State == runs.OpOpen && !op.StartedAt.IsZero():
		parts = append(parts, "since "+op.StartedAt.Local().Format("2006-01-02 15:04:05"))
	case op.Millis > 0:
		parts = append(parts, render.Duration(time.Duration(op.Millis)*time.Millisecond))
	case !op.StartedAt.IsZero() && op.EndedAt.After(op.StartedAt):
		parts = append(parts, render.Duration(op.EndedAt.Sub(op.StartedAt)))
	}
	if n.Usage != nil {
		parts = append(parts, render.Tokens(n.Usage.Input+n.Usage.Output))
	}
	if op.ExitCode != nil && *op.ExitCode != 0 {
		parts = append(parts, "exit "+strconv.Itoa(*op.ExitCode))
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
