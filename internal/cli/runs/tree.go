package runs

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/runs"
)

// Node is a part of a run: an operation (a session holds what was done in it), an `all` of the workflow, or a branch of one.
type Node struct {
	ID       string       `json:"id,omitempty"`     // an operation's
	All      int          `json:"all,omitempty"`    // the how manieth `all` of its branch, from 1
	Branch   int          `json:"branch,omitempty"` // of an `all`, from 1
	State    string       `json:"state"`
	Usage    *agent.Usage `json:"usage,omitempty"` // of it and all below it
	Children []*Node      `json:"children,omitempty"`

	op *runs.Operation
}

// Tree is a run's operations as the workflow nests them, in the order in which they were begun.
func Tree(operations []runs.Operation) []*Node {
	root := &Node{}
	branches := map[string]*Node{"": root, "0": root}
	sessions := map[string]*Node{}
	for i := range operations {
		op := &operations[i]
		n := &Node{ID: op.ID, State: op.State, op: op}
		in := branch(branches, op.Branch)
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

// branch is the node of a branch such as 0.1.2, with those above it.
func branch(known map[string]*Node, id string) *Node {
	if n := known[id]; n != nil {
		return n
	}
	parts := strings.Split(id, ".")
	if len(parts) < 3 {
		return known[""]
	}
	all := child(branch(known, strings.Join(parts[:len(parts)-2], ".")), Node{All: count(parts[len(parts)-2])})
	n := child(all, Node{Branch: count(parts[len(parts)-1])})
	known[id] = n
	return n
}

func count(index string) int {
	n, _ := strconv.Atoi(index)
	return n + 1
}

func child(of *Node, like Node) *Node {
	for _, c := range of.Children {
		if c.ID == "" && c.All == like.All && c.Branch == like.Branch {
			return c
		}
	}
	of.Children = append(of.Children, &like)
	return &like
}

// sum tells of every node what is told of those below it.
func (n *Node) sum() {
	var u agent.Usage
	if n.op != nil && n.op.Usage != nil {
		u = *n.op.Usage
	}
	if n.All > 0 {
		slices.SortFunc(n.Children, func(a, b *Node) int { return cmp.Compare(a.Branch, b.Branch) })
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
