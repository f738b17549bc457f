package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/cli/render"
	"github.com/laufwerk/laufwerk/internal/prepare"
	"github.com/laufwerk/laufwerk/internal/system/projectfs"
)

type prepareLocalOptions struct {
	*Deps

	Target string
	Codex  string
}

func newPrepareLocal(d *Deps) *cobra.Command {
	o := &prepareLocalOptions{Deps: d}
	cmd := &cobra.Command{
		Use:   "local",
		Short: "Install Codex for agents that run on this machine",
		Long: `Install the version of Codex that this version of laufwerk is made for into $LAUFWERK_HOME, for agents that run on this
machine. It is installed with npm or pnpm of Node.js 22 or newer, from a lockfile with checksums, and without the install
scripts of packages. Agents use the native program and need no Node. If it is installed already nothing is done, and an
installation that was killed is continued.

With --codex your own Codex is used instead, until the next laufwerk prepare local without that flag.`,
		Example: "$ laufwerk prepare local\n\n# With your own Codex\n$ laufwerk prepare local --codex /usr/local/bin/codex",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("codex") && o.Codex == "" {
				return usageError(cmd, "--codex is empty")
			}
			return runPrepareLocal(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.Target, "target", "", "prepare the target `ID` of the project; all local targets share one installation")
	cmd.Flags().StringVar(&o.Codex, "codex", "", "use the native Codex program at `PATH`")
	return cmd
}

func runPrepareLocal(ctx context.Context, o *prepareLocalOptions) error {
	d := o.Deps
	r := prepare.LocalRequest{Dir: d.Env.Dir, Project: d.Flags.Project, Target: o.Target}
	if o.Codex != "" {
		r.Binary = projectfs.Real(d.Path(o.Codex))
	}
	ctx, stop := d.Interruptible(ctx)
	defer stop()
	made, err := o.Preparation.Local(ctx, r)
	if err != nil {
		return err
	}
	ui := d.UI
	ui.Printf("%s\n", render.Name(made.Path))
	switch {
	case made.Version != made.Pinned:
		ui.Talkf("this is Codex %s; laufwerk is made for %s, and may not understand the output of another version\n", made.Version, made.Pinned)
	case made.Reused:
		ui.Talkf("Codex %s is prepared already\n", made.Version)
	default:
		ui.Talkf("Codex %s is prepared\n", made.Version)
	}
	return ui.Document(made)
}
