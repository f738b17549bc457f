// Package app is the composition root: it alone knows every command, provider and harness.
package app

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/cli"
	"github.com/laufwerk/laufwerk/internal/cli/answer"
	"github.com/laufwerk/laufwerk/internal/cli/claims"
	"github.com/laufwerk/laufwerk/internal/cli/cleanup"
	"github.com/laufwerk/laufwerk/internal/cli/completion"
	"github.com/laufwerk/laufwerk/internal/cli/config"
	"github.com/laufwerk/laufwerk/internal/cli/demo"
	"github.com/laufwerk/laufwerk/internal/cli/diff"
	"github.com/laufwerk/laufwerk/internal/cli/doctor"
	"github.com/laufwerk/laufwerk/internal/cli/help"
	"github.com/laufwerk/laufwerk/internal/cli/images"
	"github.com/laufwerk/laufwerk/internal/cli/initproject"
	"github.com/laufwerk/laufwerk/internal/cli/prepare"
	"github.com/laufwerk/laufwerk/internal/cli/provision"
	"github.com/laufwerk/laufwerk/internal/cli/resume"
	"github.com/laufwerk/laufwerk/internal/cli/run"
	"github.com/laufwerk/laufwerk/internal/cli/runs"
	cliscript "github.com/laufwerk/laufwerk/internal/cli/script"
	"github.com/laufwerk/laufwerk/internal/cli/types"
	"github.com/laufwerk/laufwerk/internal/cli/version"
	"github.com/laufwerk/laufwerk/internal/cli/writeback"
	"github.com/laufwerk/laufwerk/internal/inside"
	"github.com/laufwerk/laufwerk/internal/script"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/system"
)

// Main is what the binary does; the result is its exit code. Tests call it with an Env of their own.
func Main(ctx context.Context, env *system.Env) int {
	system.IgnorePipe()
	if len(env.Args) > 0 {
		if entry, ok := entries()[env.Args[0]]; ok {
			return entry(env.Args[1:], env)
		}
		if cli.IsCompletion(env.Args[0]) {
			return complete(ctx, env)
		}
	}
	return cli.Execute(ctx, env, Commands)
}

// Entry is a process that laufwerk starts from its own binary: a supervisor, an isolate.
type Entry func(args []string, env *system.Env) int

// entries are the hidden first arguments. They are looked up before the command line is built: a supervisor pays for none
// of it, and no flag of a user reaches it.
func entries() map[string]Entry {
	return map[string]Entry{
		script.Argument:    isolate,
		demo.AgentArgument: demo.Agent,
		supervise.Argument: func(args []string, env *system.Env) int { return supervise.Main(env, args) },
		inside.Argument:    func(args []string, env *system.Env) int { return inside.Main(env, args) },
	}
}

// IsEntry says whether a first argument starts a process of ours. Test binaries that are started as laufwerk ask it.
func IsEntry(arg string) bool { return entries()[arg] != nil }

// Commands are the commands of the tree.
func Commands(d *cli.Deps) []*cobra.Command {
	open := opens(d)
	prepares := preparer{d, open}
	return []*cobra.Command{
		demo.New(d, open, loads(d), nil),
		initproject.New(d, loadsWith(d), prepares.initialise(loadsToPrepare(d)), nil),
		prepare.New(d, loadsToPrepare(d), prepares.images),
		provision.New(d, here(d), newGateways(d.Env).at),
		doctor.New(d, examines(d), nil),
		run.New(d, open, nil),
		resume.New(d, open, nil),
		answer.New(d, open, nil),
		diff.New(d, open, nil),
		writeback.New(d, open, nil),
		runs.New(d, open),
		cleanup.New(d, open, nil),
		claims.New(d, open),
		images.New(d, open, prepares.engine),
		types.New(d, nil),
		cliscript.New(d, scripts(prepares), nil),
		config.New(d, nil),
		completion.New(d, nil),
		version.New(d, nil),
		help.New(d, nil),
	}
}
