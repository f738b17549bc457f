package cli

import (
	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/build"
)

type versionOptions struct {
	*Deps
}

func newVersion(d *Deps) *cobra.Command {
	o := &versionOptions{Deps: d}
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of laufwerk and what it was built from",
		Example: "$ laufwerk version\n$ laufwerk version --json",
		GroupID: sectionOther,
		RunE: func(*cobra.Command, []string) error {
			return runVersion(o)
		},
	}
}

func runVersion(o *versionOptions) error {
	info := build.Read()
	o.UI.Printf("laufwerk %s\n", info)
	return o.UI.Document(info)
}
