package cli

import "github.com/spf13/cobra"

// Sections of the root's help, in their order. A command names its own as its GroupID.
const (
	sectionStart   = "start"
	sectionRuns    = "runs"
	sectionOperate = "operate"
	sectionOther   = "other"
)

// newRoot is the tree before it has commands.
func newRoot(d *Deps) *cobra.Command {
	root := &cobra.Command{
		Use:   "laufwerk",
		Short: "Run durable coding-agent workflows in isolated sandboxes",
		Long: `Laufwerk runs workflows in which coding agents work on isolated copies of your project. A run survives the death of its
process, everything that it allocates is recorded until its removal was observed, and only changes that were frozen and,
where the workflow asks, approved are written back to your files.`,
		Example:           "# Try a whole run on a scratch project\n$ laufwerk demo\n\n# Start with a project of your own\n$ laufwerk init --execution local",
		Args:              cobra.ArbitraryArgs, // unknownWord has the better message
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	showVersion := root.Flags().Bool("version", false, "print the version, as laufwerk version does")
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if v := findCommand(root, "version"); v != nil && *showVersion {
			v.SetContext(cmd.Context())
			d.UI.Schema = Schema(v)
			return v.RunE(v, nil)
		}
		return cmd.Help()
	}
	root.AddGroup(
		&cobra.Group{ID: sectionStart, Title: "Start"},
		&cobra.Group{ID: sectionRuns, Title: "Runs"},
		&cobra.Group{ID: sectionOperate, Title: "Operate"},
		&cobra.Group{ID: sectionOther, Title: "Other"},
	)
	d.bind(root)
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		if len(d.Flags.Set) == 0 {
			return nil // commands without settings work with a broken settings file
		}
		_, err := d.Settings()
		return err
	}
	root.SetFlagErrorFunc(flagError)
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { showHelp(d, cmd) })
	addHelpFlag(root)
	return root
}

func newGroup(name, short string, commands ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: name, Short: short}
	g.AddCommand(commands...)
	return g
}

func addHelpFlag(cmd *cobra.Command) {
	cmd.DisableFlagsInUseLine = true
	cmd.Flags().BoolP("help", "h", false, "help for "+cmd.CommandPath()) // cobra's own names the last word alone
}

func findCommand(root *cobra.Command, name string) *cobra.Command {
	for _, c := range root.Commands() {
		if c.Name() == name {
			return c
		}
	}
	return nil
}

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
