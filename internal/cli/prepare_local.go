package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/cli/render"
	"github.com/laufwerk/laufwerk/internal/prepare"
	"github.com/laufwerk/laufwerk/internal/system/projectfs"
)

type prepareLocalOptions struct {
	*Deps

	Target string
	Own    map[string]*string // by the name of the program
}

func newPrepareLocal(d *Deps) *cobra.Command {
	o := &prepareLocalOptions{Deps: d, Own: map[string]*string{}}
	titles := d.installedTitles()
	cmd := &cobra.Command{
		Use:   "local",
		Short: fmt.Sprintf("Install %s for agents that run on this machine", titles),
		Long: fmt.Sprintf(`Install the version of %s that this version of laufwerk is made for into $LAUFWERK_HOME, for agents that run on this
machine. It is installed with npm or pnpm of Node.js 22 or newer, from a lockfile with checksums, and without the install
scripts of packages. Agents use the native program and need no Node. If it is installed already nothing is done, and an
installation that was killed is continued.`, titles),
		Example: "$ laufwerk prepare local",
		RunE: func(cmd *cobra.Command, _ []string) error {
			for name, path := range o.Own {
				if cmd.Flags().Changed(name) && *path == "" {
					return usageError(cmd, "--%s is empty", name)
				}
			}
			return runPrepareLocal(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.Target, "target", "", "prepare the target `ID` of the project; all local targets share one installation")
	for _, p := range d.Programs.Installable() {
		name, title := p.Name(), p.Title()
		o.Own[name] = cmd.Flags().String(name, "", fmt.Sprintf("use the native %s program at `PATH`", title))
		cmd.Long += fmt.Sprintf("\n\nWith --%s your own %s is used instead, until the next laufwerk prepare local without that flag.", name, title)
		cmd.Example += fmt.Sprintf("\n\n# With your own %s\n$ laufwerk prepare local --%s /usr/local/bin/%s", title, name, name)
	}
	return cmd
}

func (d *Deps) installedTitles() string {
	var out []string
	for _, p := range d.Programs.Installable() {
		out = append(out, p.Title())
	}
	return strings.Join(out, " and ")
}

// prepareLocalDocument is what was prepared: the first program, and those after it.
type prepareLocalDocument struct {
	prepare.LocalResult

	Others []prepare.LocalResult `json:"others,omitempty"`
}

func runPrepareLocal(ctx context.Context, o *prepareLocalOptions) error {
	d := o.Deps
	r := prepare.LocalRequest{Dir: d.Env.Dir, Project: d.Flags.Project, Target: o.Target, Own: map[string]string{}}
	for name, path := range o.Own {
		if *path != "" {
			r.Own[name] = projectfs.Real(d.Path(*path))
		}
	}
	ctx, stop := d.Interruptible(ctx)
	defer stop()
	list, err := o.Preparation.Local(ctx, r)
	if err != nil {
		return err
	}
	ui := d.UI
	var doc prepareLocalDocument
	for n, made := range list {
		program, _ := d.Programs.Find(made.Program)
		title := program.Title()
		ui.Printf("%s\n", render.Name(made.Path))
		switch {
		case made.Version != made.Pinned:
			ui.Talkf("this is %s %s; laufwerk is made for %s, and may not understand the output of another version\n", title, made.Version, made.Pinned)
		case made.Reused:
			ui.Talkf("%s %s is prepared already\n", title, made.Version)
		default:
			ui.Talkf("%s %s is prepared\n", title, made.Version)
		}
		if n == 0 {
			doc.LocalResult = made
		} else {
			doc.Others = append(doc.Others, made)
		}
	}
	return ui.Document(doc)
}
