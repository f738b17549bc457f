package cli

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system"
)

// IsCompletion says whether a first argument is a shell that asks what could be typed next.
func IsCompletion(arg string) bool {
	return arg == cobra.ShellCompRequestCmd || arg == cobra.ShellCompNoDescRequestCmd
}

// Complete answers a shell. Nothing that goes wrong is said: it would stand in the line that somebody is typing.
func Complete(ctx context.Context, env *system.Env, commands func(*Deps) Commands) int {
	d := newDeps(env)
	t := newTree(d, commands(d))
	t.addAll()
	root := t.root
	words := completer{d}
	words.attach(root.Commands())
	words.attachGlobal(root)
	walkCommands(root, func(cmd *cobra.Command) { // the marks in a flag's words name its value, and are for help alone
		for _, flags := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
			flags.VisitAll(func(f *pflag.Flag) { _, f.Usage = pflag.UnquoteUsage(f) })
		}
	})
	root.SetOut(env.Out)
	root.SetErr(env.Err)
	root.SetArgs(env.Args)
	defer func() { _ = recover() }()
	_ = root.ExecuteContext(ctx)
	return failure.ExitDone
}
