package runs

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/cli"
	cliclaims "github.com/laufwerk/laufwerk/internal/cli/claims"
	"github.com/laufwerk/laufwerk/internal/cli/render"
	"github.com/laufwerk/laufwerk/internal/cli/worker"
	"github.com/laufwerk/laufwerk/internal/runs"
)

// ShowOptions of `runs show`.
type ShowOptions struct {
	Deps *cli.Deps
	Open worker.Open
	Run  string
}

func newShow(d *cli.Deps, open worker.Open) *cobra.Command {
	o := &ShowOptions{Deps: d, Open: open}
	return &cobra.Command{
		Use:     "show RUN",
		Short:   "Show a run as the operations that it is made of",
		Example: "$ laufwerk runs show 261129-k3f9x2ab",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Run = args[0]
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
	if len(d.Output) > 0 {
		ui.Printf("result %s\n", result(d.Output))
	}
	if d.HalfApplied {
		ui.Printf("half-applied write-back\n")
	}
	if d.Worker != nil {
		ui.Printf("worker %s\n", d.Worker.String())
	}
	tree := Tree(d.Operations)
	total := &Node{Children: tree}
	if total.sum(); total.Usage != nil {
		ui.Printf("used %s\n", render.Tokens(total.Usage.Input+total.Usage.Output))
	}
	draw(ui, tree, "")
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
			ui.Printf(": %s", cliclaims.Where(c))
		}
		ui.Printf("\n")
	}
	switch {
	case d.HalfApplied:
		ui.Next("laufwerk writeback continue " + r.ID + "\nlaufwerk writeback abort " + r.ID)
	case r.State == runs.Interrupted:
		ui.Next("laufwerk resume " + r.ID)
	}
	return ui.Document(shown{d, tree})
}

// result is what the workflow returned, on one line; --json has all of a long one.
func result(output json.RawMessage) string {
	if len(output) <= maxResult {
		return string(output)
	}
	return strings.ToValidUTF8(string(output[:maxResult]), "") + "…"
}

// maxResult bounds a result among other lines, in bytes.
const maxResult = 2000

// shown is the document: the operations as a list, and how they nest.
type shown struct {
	runs.Detail
	Tree []*Node `json:"tree"`
}

func draw(ui *render.UI, nodes []*Node, indent string) {
	for _, n := range nodes {
		if n.Branch > 0 && len(n.Children) == 1 { // the operation says it all
			draw(ui, n.Children, indent)
			continue
		}
		mark := ui.Out.Faint("·")
		switch n.State {
		case runs.OpDone:
			mark = ui.Out.Good("✓")
		case runs.OpFailed:
			mark = ui.Out.Bad("✗")
		}
		ui.Printf("%s%s %s%s\n", indent, mark, render.Name(name(n)), details(n))
		draw(ui, n.Children, indent+"  ")
	}
}

func name(n *Node) string {
	switch {
	case n.op != nil:
		return n.ID
	case n.All > 0:
		return "all"
	default:
		return "branch " + itoa(n.Branch)
	}
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

func details(n *Node) string {
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
