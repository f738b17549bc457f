// Package app is the composition root: it alone knows every command, provider and agent program.
package app

import (
	"context"

	"github.com/laufwerk/laufwerk/internal/cli"
	"github.com/laufwerk/laufwerk/internal/guest"
	"github.com/laufwerk/laufwerk/internal/script"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/system"
)

// Main is what the binary does; the result is its exit code. Tests call it with an Env of their own.
func Main(ctx context.Context, env *system.Env) int {
	if len(env.Args) > 0 {
		if entry, ok := entries()[env.Args[0]]; ok {
			return entry(env.Args[1:], env)
		}
	}
	env.SurviveClosedPipes()
	if len(env.Args) > 0 && cli.IsCompletion(env.Args[0]) {
		return cli.Complete(ctx, env, Commands)
	}
	return cli.Execute(ctx, env, Commands)
}

// Entry is a process that laufwerk starts from its own binary: a supervisor, an isolate.
type Entry func(args []string, env *system.Env) int

// entries are the hidden first arguments. They are looked up before the command line is built: a supervisor pays for none
// of it, and no flag of a user reaches it.
func entries() map[string]Entry {
	return map[string]Entry{
		script.Argument:       isolate,
		cli.DemoAgentArgument: cli.RunDemoAgent,
		supervise.Argument:    func(args []string, env *system.Env) int { return supervise.Main(env, args) },
		guest.Argument:        func(args []string, env *system.Env) int { return guest.Main(env, args) },
	}
}

// Commands make the commands of the tree, by their names.
func Commands(d *cli.Deps) cli.Commands {
	return cli.NewCommands(d, cli.UseCases{
		Open: opens(d), Projects: projects{d}, Preparation: preparations(d), ImageKinds: imageKinds(), Programs: programs(d.Env),
		Doctor: examines(d), Gateway: newGateways(d.Env).at,
	})
}
