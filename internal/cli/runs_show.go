package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/agent"
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
		ui.Printf("waiting since %s: %s\n", time.UnixMilli(q.Since).Local().Format("2006-01-02 15:04"), q.Title)
		for _, more := range []string{q.Description, runs.AnswerCommand(r.ID, q)} {
			if more != "" {
				ui.Printf("  %s\n", strings.ReplaceAll(more, "\n", "\n  "))
			}
		}
	}
	for _, c := range d.Claims {
		ui.Printf("resource %s %s (%s)", string(c.Kind), c.ID, string(c.State))
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

// runNode is a part of a run: an operation (a session holds what was done in it), an `all` of the workflow, or a branch of one.
type runNode struct {
	ID       string       `json:"id,omitempty"`     // an operation's
	All      int          `json:"all,omitempty"`    // the number of the `all` in its branch, from 1
	Branch   int          `json:"branch,omitempty"` // of an `all`, from 1
	State    string       `json:"state"`
	Usage    *agent.Usage `json:"usage,omitempty"` // of it and all below it
	Children []*runNode   `json:"children,omitempty"`

	op *runs.Operation
}

// runTree is a run's operations as the workflow nests them, in the order in which they were begun.
func runTree(operations []runs.Operation) []*runNode {
	root := &runNode{}
	branches := map[string]*runNode{"": root, "0": root}
	sessions := map[string]*runNode{}
	for i := range operations {
		op := &operations[i]
		n := &runNode{ID: op.ID, State: op.State, op: op}
		in := branchNode(branches, op.Branch)
		if op.Session != "" {
			name := op.Branch + " " + op.Session
			if s := sessions[name]; s != nil {
				in = s
			} else if strings.HasPrefix(op.ID, "session.open:") {
				sessions[name] = n
			}
		}
		in.Children = append(in.Children, n)
	}
	root.sum()
	return root.Children
}

// branchNode is the node of a branch such as 0.1.2, with those above it.
func branchNode(known map[string]*runNode, id string) *runNode {
	if n := known[id]; n != nil {
		return n
	}
	parts := strings.Split(id, ".")
	if len(parts) < 3 {
		return known[""]
	}
	all := childNode(branchNode(known, strings.Join(parts[:len(parts)-2], ".")), runNode{All: ordinalOf(parts[len(parts)-2])})
	n := childNode(all, runNode{Branch: ordinalOf(parts[len(parts)-1])})
	known[id] = n
	return n
}

func ordinalOf(index string) int {
	n, _ := strconv.Atoi(index)
	return n + 1
}

func childNode(of *runNode, like runNode) *runNode {
	for _, c := range of.Children {
		if c.ID == "" && c.All == like.All && c.Branch == like.Branch {
			return c
		}
	}
	of.Children = append(of.Children, &like)
	return &like
}

// sum sets the usage and state of every node from the nodes below it.
func (n *runNode) sum() {
	var u agent.Usage
	if n.op != nil && n.op.Usage != nil {
		u = *n.op.Usage
	}
	if n.All > 0 {
		slices.SortFunc(n.Children, func(a, b *runNode) int { return cmp.Compare(a.Branch, b.Branch) })
	}
	open, failed := false, false
	for _, c := range n.Children {
		c.sum()
		if c.Usage != nil {
			u.Input, u.Cached, u.Output, u.Reasoning = u.Input+c.Usage.Input, u.Cached+c.Usage.Cached, u.Output+c.Usage.Output, u.Reasoning+c.Usage.Reasoning
		}
		open, failed = open || c.State == runs.OpOpen, failed || c.State == runs.OpFailed
	}
	if u != (agent.Usage{}) {
		n.Usage = &u
	}
	switch {
	case n.op != nil:
	case open:
		n.State = runs.OpOpen
	case failed:
		n.State = runs.OpFailed
	default:
		n.State = runs.OpDone
	}
}
