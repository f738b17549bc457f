// Package types is the command `laufwerk types`.
package types

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/cli"
	"github.com/laufwerk/laufwerk/internal/cli/render"
	"github.com/laufwerk/laufwerk/internal/project"
	"github.com/laufwerk/laufwerk/internal/scaffold"
)

// Options of the command.
type Options struct {
	UI    *render.UI
	Root  func() (string, error)
	Force bool
}

// New makes the command.
func New(d *cli.Deps) *cobra.Command {
	opts := &Options{UI: d.UI, Root: func() (string, error) { return project.Find(d.Env.Dir, d.Flags.Project, "") }}
	cmd := &cobra.Command{
		Use:   "types",
		Short: "Bring the project's declarations for editors and tsc up to date",
		Long: `Bring laufwerk/types and laufwerk/tsconfig.json up to date with this version of laufwerk. A tsconfig that you changed is
left alone. Nothing else is touched, and the config need not be valid.`,
		Example: "$ laufwerk types\n\n# Take back a tsconfig that was changed\n$ laufwerk types --force",
		GroupID: cli.SectionOperate,
		RunE: func(*cobra.Command, []string) error {
			return run(opts)
		},
	}
	cmd.Flags().BoolVar(&opts.Force, "force", false, "also replace a tsconfig.json that was changed")
	return cmd
}

type entry struct {
	Path  string             `json:"path"`
	Was   scaffold.TypeState `json:"was"`
	Wrote bool               `json:"wrote"`
}

func run(opts *Options) error {
	root, err := opts.Root()
	if err != nil {
		return err
	}
	list, err := scaffold.RefreshTypes(root, opts.Force)
	if err != nil {
		return err
	}
	doc := struct {
		Root  string  `json:"root"`
		Files []entry `json:"files"`
	}{Root: root}
	ui := opts.UI
	for _, f := range list {
		e := entry{f.Path, f.State, f.Stale() || opts.Force && f.State == scaffold.TypeOwn}
		doc.Files = append(doc.Files, e)
		if e.Wrote {
			ui.Printf("%s\n", render.Name(filepath.FromSlash(f.Path)))
		}
		if !ui.JSON && !e.Wrote {
			why := "is current"
			if e.Was == scaffold.TypeOwn {
				why = "was changed and is left alone; laufwerk types --force replaces it"
			}
			ui.Talkf("%s %s\n", render.Name(filepath.FromSlash(f.Path)), why)
		}
	}
	return ui.Document(doc)
}
