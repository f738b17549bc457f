package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/cleanup"
	"github.com/laufwerk/laufwerk/internal/cli/render"
	"github.com/laufwerk/laufwerk/internal/failure"
)

type cleanupOptions struct {
	*Deps

	Request cleanup.Request
}

func newCleanup(d *Deps) *cobra.Command {
	o := &cleanupOptions{Deps: d}
	cmd := &cobra.Command{
		Use:   "cleanup [RUN]",
		Short: "Remove the sandboxes, processes and workspaces of runs that have ended",
		Long: `Remove the sandboxes, processes and workspaces of a run that has ended, or of all such runs. The claim of a resource is only
released when the absence of the resource was observed; what could not be confirmed is listed with the command to type next,
and the exit code is 6. Workspaces with changes that were never written back are kept unless --discard-changes is given.

Answers of another engine are not accepted as proof. If an engine is the same but now reports another identity, for example
because its data root was moved, --accept-identity OLD=NEW accepts that: OLD is the identity that the claims record, NEW the
one that the engine reports now. Who accepted it is recorded with each claim.`,
		Example: `$ laufwerk cleanup 261129-k3f9x2ab
$ laufwerk cleanup --all --dry-run
$ laufwerk cleanup --all --cancel --discard-changes
$ laufwerk cleanup --all --accept-identity 'docker engine ID at /old=docker engine ID at /new'`,
		GroupID: sectionOperate,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.Request.Run = args[0]
			}
			if (o.Request.Run != "") == o.Request.All {
				return failure.New(failure.Usage, "give the id of a run, or --all for every run that has ended").WithHint("laufwerk cleanup --all --dry-run")
			}
			if f := cmd.Flags().Lookup("accept-identity"); f.Changed && o.Request.Accept == "" {
				return usageError(cmd, "--accept-identity is empty")
			}
			return runCleanup(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.Request.All, "all", false, "clean up every run that has ended, and resources that belong to no run")
	f.BoolVar(&o.Request.Cancel, "cancel", false, "also cancel runs that have not ended and that no worker process executes")
	f.BoolVar(&o.Request.DryRun, "dry-run", false, "only list what would be removed")
	f.BoolVar(&o.Request.Discard, "discard-changes", false, "also remove workspaces with changes that were never written back")
	f.StringVar(&o.Request.Accept, "accept-identity", "", "`OLD=NEW`: accept that the engine with the recorded identity OLD now reports NEW")
	return cmd
}

func runCleanup(ctx context.Context, o *cleanupOptions) error {
	s, err := o.openToChange(ctx, "cleanup")
	if err != nil {
		return err
	}
	o.Request.Who = currentPerson()
	rep, err := cleanup.Run(ctx, s, o.Request)
	if rep.Accepted > 0 {
		o.UI.Talkf("the new identity is recorded with %d claims\n", rep.Accepted)
	}
	printCleanup(o.UI, rep, o.Request.DryRun)
	if err != nil {
		return failWithDocument(err, rep)
	}
	if len(rep.Released)+len(rep.Kept)+len(rep.Skipped)+len(rep.Folders) == 0 {
		o.UI.Talkf("nothing to clean up\n")
	}
	return o.UI.Document(rep)
}

func printCleanup(ui *render.UI, rep cleanup.Report, planned bool) {
	verb := "released"
	if planned {
		verb = "would release"
	}
	var rows [][]any
	for _, r := range rep.Released {
		rows = append(rows, []any{verb, string(r.Kind), r.Claim, r.Run, string(r.State), r.Last})
	}
	for _, r := range rep.Kept {
		rows = append(rows, []any{"kept", string(r.Kind), r.Claim, r.Run, string(r.State), r.Kept})
	}
	for _, r := range rep.Retained {
		rows = append(rows, []any{"retained", string(r.Kind), r.Claim, r.Run, string(r.State), r.Last})
	}
	for _, r := range rep.Skipped {
		rows = append(rows, []any{"skipped", "run", r.Run, r.Run, r.State, r.Reason})
	}
	for _, f := range rep.Folders {
		rows = append(rows, []any{verb, "folder", f, f, "", "of a run that was never recorded"})
	}
	ui.Table([]string{"WHAT", "KIND", "ID", "RUN", "STATE", "OBSERVED"}, rows)
	var left [][2]string
	for _, r := range append(slices.Clone(rep.Kept), rep.Retained...) {
		left = append(left, [2]string{r.Hint, r.Run})
	}
	for _, r := range rep.Skipped {
		left = append(left, [2]string{r.Hint, r.Run})
	}
	for _, next := range mergeHints(left) {
		ui.Next(next)
	}
}

// mergeHints joins commands that differ only in the run into one with RUN in its place: the table names the runs. Of each pair the
// first is a command and the second its run.
func mergeHints(left [][2]string) (out []string) {
	of := map[string]int{} // where in out a command is, by its form
	for _, l := range left {
		next, run := l[0], l[1]
		form := next
		if run != "" {
			form = strings.ReplaceAll(next, run, "RUN")
		}
		if i, known := of[form]; known {
			if out[i] != next { // of another run
				out[i] = form
			}
			continue
		}
		of[form] = len(out)
		out = append(out, next)
	}
	return out
}
