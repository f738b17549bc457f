// Package prepare holds the commands `laufwerk prepare local|docker|openshell`.
package prepare

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/cli"
	"github.com/laufwerk/laufwerk/internal/cli/render"
	"github.com/laufwerk/laufwerk/internal/prepare"
	"github.com/laufwerk/laufwerk/internal/project"
	"github.com/laufwerk/laufwerk/internal/redact"
	"github.com/laufwerk/laufwerk/internal/store"
	"github.com/laufwerk/laufwerk/internal/system/projectfs"
)

// Project loads the project at a root.
type Project func(ctx context.Context, root string) (*project.Project, error)

// localKind is the kind of the targets that share what `prepare local` installs.
const localKind = "local"

// New makes the group.
func New(d *cli.Deps, load Project, images Images) *cobra.Command {
	g := cli.Group("prepare", "Make ready what execution targets need",
		newLocal(d, load), newImages(d, load, dockerKind, images), newImages(d, load, openshellKind, images))
	g.GroupID = cli.SectionStart
	return g
}

// LocalOptions of `prepare local`.
type LocalOptions struct {
	Deps    *cli.Deps
	Project Project

	Target string
	Codex  string
}

func newLocal(d *cli.Deps, load Project) *cobra.Command {
	o := &LocalOptions{Deps: d, Project: load}
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
			return local(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.Target, "target", "", "prepare the target `ID` of the project; all local targets share what is prepared")
	cmd.Flags().StringVar(&o.Codex, "codex", "", "use the native Codex at `PATH`")
	return cmd
}

func local(ctx context.Context, o *LocalOptions) error {
	d := o.Deps
	set, err := d.Settings()
	if err != nil {
		return err
	}
	dir, err := set.Home()
	if err != nil {
		return err
	}
	if o.Target != "" {
		if err := isLocal(ctx, o, dir); err != nil {
			return err
		}
	}
	home, err := store.OpenHome(dir, true)
	if err != nil {
		return err
	}
	ui := d.UI
	opts := prepare.Options{
		Home: home, Vars: d.Env.Vars, Now: d.Env.Now, Command: "laufwerk " + redact.Line(strings.Join(d.Env.Args, " ")),
		Wait: prepare.DefaultWait, Say: ui.Talkf,
	}
	if o.Codex != "" {
		opts.Own = projectfs.Real(d.Path(o.Codex))
	}
	ctx, stop := d.Interruptible(ctx)
	defer stop()
	r, err := prepare.Local(ctx, opts)
	if err != nil {
		return err
	}
	ui.Printf("%s\n", render.Name(r.Path))
	switch {
	case r.Version != r.Pinned:
		ui.Talkf("this is Codex %s; laufwerk is made for %s, and with another one may not understand what it says\n", r.Version, r.Pinned)
	case r.Reused:
		ui.Talkf("Codex %s is prepared already\n", r.Version)
	default:
		ui.Talkf("Codex %s is prepared\n", r.Version)
	}
	return ui.Document(r)
}

// isLocal says whether the project has the target, and it is a local one.
func isLocal(ctx context.Context, o *LocalOptions, home string) error {
	root, err := project.Find(o.Deps.Env.Dir, o.Deps.Flags.Project, home)
	if err != nil {
		return err
	}
	p, err := o.Project(ctx, root)
	if err != nil {
		return err
	}
	_, err = p.TargetsOf(localKind, o.Target, "laufwerk prepare local")
	return err
}
