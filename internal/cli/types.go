package cli

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/cli/render"
	"github.com/laufwerk/laufwerk/internal/project"
	"github.com/laufwerk/laufwerk/internal/scaffold"
)

type typesOptions struct {
	*Deps
	Force bool
}

func newTypes(d *Deps) *cobra.Command {
	o := &typesOptions{Deps: d}
	cmd := &cobra.Command{
		Use:   "types",
		Short: "Bring the project's declarations for editors and tsc up to date",
		Long: `Bring laufwerk/types and laufwerk/tsconfig.json up to date with this version of laufwerk. A tsconfig that you changed is
left alone. Nothing else is touched, and the config need not be valid.`,
		Example: "$ laufwerk types\n\n# Take back a tsconfig that was changed\n$ laufwerk types --force",
		GroupID: SectionOperate,
		RunE: func(*cobra.Command, []string) error {
			return runTypes(o)
		},
	}
	cmd.Flags().BoolVar(&o.Force, "force", false, "also replace a tsconfig.json that was changed")
	return cmd
}

type typesFile struct {
	Path  string             `json:"path"`
	Was   scaffold.TypeState `json:"was"`
	Wrote bool               `json:"wrote"`
}

func runTypes(o *typesOptions) error {
	root, err := project.Find(o.Env.Dir, o.Flags.Project, "")
	if err != nil {
		return err
	}
	list, err := scaffold.RefreshTypes(root, o.Force)
	if err != nil {
		return err
	}
	doc := struct {
		Root  string      `json:"root"`
		Files []typesFile `json:"files"`
	}{Root: root}
	ui := o.UI
	for _, f := range list {
		e := typesFile{f.Path, f.State, f.Stale() || o.Force && f.State == scaffold.TypeOwn}
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
