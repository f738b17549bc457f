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
	if len(env.Args) > 0 {
		if entry, ok := entries()[env.Args[0]]; ok {
			return entry(env.Args[1:], env)
		}
	}
	env.OutliveReaders()
	if len(env.Args) > 0 && cli.IsCompletion(env.Args[0]) {
		return complete(ctx, env)
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

// Commands make the commands of the tree, by their names.
func Commands(d *cli.Deps) cli.Commands {
	open := opens(d)
	prepares := preparer{d, open}
	return cli.Commands{
		"demo": func() *cobra.Command { return demo.New(d, open, loads(d)) },
		"init": func() *cobra.Command {
			return initproject.New(d, loadsWith(d), prepares.initialise(loadsToPrepare(d)))
		},
		"prepare":    func() *cobra.Command { return prepare.New(d, loadsToPrepare(d), prepares.images) },
		"provision":  func() *cobra.Command { return provision.New(d, here(d), newGateways(d.Env).at) },
		"doctor":     func() *cobra.Command { return doctor.New(d, examines(d)) },
		"run":        func() *cobra.Command { return run.New(d, open) },
		"resume":     func() *cobra.Command { return resume.New(d, open) },
		"answer":     func() *cobra.Command { return answer.New(d, open) },
		"diff":       func() *cobra.Command { return diff.New(d, open) },
		"writeback":  func() *cobra.Command { return writeback.New(d, open) },
		"runs":       func() *cobra.Command { return runs.New(d, open) },
		"cleanup":    func() *cobra.Command { return cleanup.New(d, open) },
		"claims":     func() *cobra.Command { return claims.New(d, open) },
		"images":     func() *cobra.Command { return images.New(d, open, prepares.engine) },
		"types":      func() *cobra.Command { return types.New(d) },
		"script":     func() *cobra.Command { return cliscript.New(d, scripts(prepares)) },
		"config":     func() *cobra.Command { return config.New(d) },
		"completion": func() *cobra.Command { return completion.New(d) },
		"version":    func() *cobra.Command { return version.New(d) },
		"help":       func() *cobra.Command { return help.New(d) },
	}
}
