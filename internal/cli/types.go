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
		Short: "Update the project's TypeScript declarations for editors and tsc",
		Long: `Update laufwerk/types and laufwerk/tsconfig.json to this version of laufwerk. A tsconfig.json that you changed is left as it
is. Nothing else is written, and the project's config need not be valid.`,
		Example: "$ laufwerk types\n\n# Replace a tsconfig.json that was changed\n$ laufwerk types --force",
		GroupID: sectionOperate,
		RunE: func(*cobra.Command, []string) error {
			return runTypes(o)
		},
	}
	cmd.Flags().BoolVar(&o.Force, "force", false, "also replace a tsconfig.json that was changed")
	return cmd
}

type typesDocument struct {
	Root  string      `json:"root"`
	Files []typesFile `json:"files"`
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
	doc := typesDocument{Root: root}
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
				why = "was changed and is kept as it is; laufwerk types --force replaces it"
			}
			ui.Talkf("%s %s\n", render.Name(filepath.FromSlash(f.Path)), why)
		}
	}
	return ui.Document(doc)
}
