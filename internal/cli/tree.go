package cli

import (
	"github.com/spf13/cobra"
)

// Commands make the commands of the tree, by their names.
type Commands map[string]func() *cobra.Command

// tree is a root with the commands that were made. Most starts are of one command, and do not pay for the others.
type tree struct {
	root *cobra.Command
	left Commands // not made yet
}

func newTree(d *Deps, commands Commands) *tree { return &tree{newRoot(d), commands} }

// find is cobra's Find in the whole tree, of which it makes no more than that needs.
func (t *tree) find(args []string) (*cobra.Command, []string, error) {
	if word, ok := firstWord(t.root, args); ok {
		t.add(word)
		if cmd, rest, err := t.root.Find(args); !needsWholeTree(cmd) {
			return cmd, rest, err
		}
	}
	t.addAll()
	return t.root.Find(args)
}

// needsWholeTree says whether a command shows or searches other commands.
func needsWholeTree(cmd *cobra.Command) bool {
	return !cmd.HasParent() || cmd.Name() == "help" || cmd.Name() == "completion"
}

func (t *tree) addAll() {
	for name := range t.left {
		t.add(name)
	}
}

// add makes a command, if it is there and not made yet. Rules that hold for every command are put on here.
func (t *tree) add(name string) {
	construct, ok := t.left[name]
	if !ok {
		return
	}
	delete(t.left, name)
	made := construct()
	t.root.AddCommand(made)
	if made.Name() == "help" {
		t.root.SetHelpCommand(made)
	}
	walkCommands(made, func(cmd *cobra.Command) {
		switch {
		case cmd.HasSubCommands():
			cmd.Args, cmd.RunE = cobra.ArbitraryArgs, requireSubcommand
		case cmd.Args == nil:
			cmd.Args = checkPositional
		}
		addHelpFlag(cmd)
	})
}

func walkCommands(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, c := range cmd.Commands() {
		walkCommands(c, visit)
	}
}
