package cli

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/runs"
)

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
