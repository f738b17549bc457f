// Package prepare holds the commands `laufwerk prepare local|docker|openshell`.
package prepare

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/cli"
	"github.com/laufwerk/laufwerk/internal/cli/render"
	"github.com/laufwerk/laufwerk/internal/prepare"
	"github.com/laufwerk/laufwerk/internal/system/projectfs"
)

// Local prepares what local targets need.
type Local func(ctx context.Context, r prepare.LocalRequest) (prepare.LocalResult, error)

// New makes the group.
func New(d *cli.Deps, local Local, images Images) *cobra.Command {
	g := cli.Group("prepare", "Make ready what execution targets need", newLocal(d, local), newImages(d, dockerKind, images), newImages(d, openshellKind, images))
	g.GroupID = cli.SectionStart
	return g
}

// LocalOptions of `prepare local`.
type LocalOptions struct {
	Deps    *cli.Deps
	Prepare Local

	Target string
	Codex  string
}

func newLocal(d *cli.Deps, local Local) *cobra.Command {
	o := &LocalOptions{Deps: d, Prepare: local}
	cmd := &cobra.Command{
		Use:   "local",
		Short: "Install Codex for agents that run on this machine",
		Long: `Install the Codex that this version of laufwerk is made for into $LAUFWERK_HOME, for agents that run on this machine: with
npm or pnpm of a Node.js 22 or newer, from a lockfile with checksums; no script of a package is run. Agents use the native
program: they need no Node. What is prepared already is left as it is, and a preparation that was killed is taken up.

With --codex a Codex of your own is used instead, until the next laufwerk prepare local without it.`,
		Example: "$ laufwerk prepare local\n\n# A Codex of your own\n$ laufwerk prepare local --codex /usr/local/bin/codex",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("codex") && o.Codex == "" {
				return cli.Usage(cmd, "--codex names no program")
			}
			return runLocal(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.Target, "target", "", "prepare the target `ID` of the project; all local targets share what is prepared")
	cmd.Flags().StringVar(&o.Codex, "codex", "", "use the native Codex at `PATH`")
	return cmd
}

func runLocal(ctx context.Context, o *LocalOptions) error {
	d := o.Deps
	r := prepare.LocalRequest{Dir: d.Env.Dir, Project: d.Flags.Project, Target: o.Target}
	if o.Codex != "" {
		r.Binary = projectfs.Real(d.Path(o.Codex))
	}
	ctx, stop := d.Interruptible(ctx)
	defer stop()
	made, err := o.Prepare(ctx, r)
	if err != nil {
		return err
	}
	ui := d.UI
	ui.Printf("%s\n", render.Name(made.Path))
	switch {
	case made.Version != made.Pinned:
		ui.Talkf("this is Codex %s; laufwerk is made for %s, and with another one may not understand what it says\n", made.Version, made.Pinned)
	case made.Reused:
		ui.Talkf("Codex %s is prepared already\n", made.Version)
	default:
		ui.Talkf("Codex %s is prepared\n", made.Version)
	}
	return ui.Document(made)
}
