// Package version is the command `laufwerk version`.
package version

import (
	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/build"
	"github.com/laufwerk/laufwerk/internal/cli"
	"github.com/laufwerk/laufwerk/internal/cli/render"
)

// Options of the command.
type Options struct {
	UI    *render.UI
	Build func() build.Info
}

// New makes the command.
func New(d *cli.Deps) *cobra.Command {
	opts := &Options{UI: d.UI, Build: build.Read}
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of laufwerk and what it was built from",
		Example: "$ laufwerk version\n$ laufwerk version --json",
		GroupID: cli.SectionOther,
		RunE: func(*cobra.Command, []string) error {
			return run(opts)
		},
	}
}

func run(opts *Options) error {
	info := opts.Build()
	opts.UI.Printf("laufwerk %s\n", info)
	return opts.UI.Document(info)
}
