package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/runs"
)

type resumeOptions struct {
	*Deps

	Run        string
	All        bool
	Due        bool
	NoExchange bool
	Accept     string
}

func newResume(d *Deps) *cobra.Command {
	o := &resumeOptions{Deps: d}
	cmd := &cobra.Command{
		Use:   "resume [RUN]",
		Short: "Continue a run that was interrupted or that waits",
		Long: `Continue a run whose worker process was killed or interrupted, or that waits for a person. Operations that have completed are
not executed again, and an agent's turn that is still running is joined. The run keeps the code that it was started with. If
the definition of one of its targets has changed since then, nothing is done and the command prints what changed.

With --all every interrupted run, of every project, is continued by a background process: for use after a reboot, or in a
timer. With --due this is done for runs whose sleep has ended.

A session belongs to one engine. If that engine is the same but now reports another identity, for example because its data
root was moved, --accept-identity OLD=NEW accepts that: OLD is the identity that the run's claims record, NEW the one that the
engine reports now. Who accepted it is recorded with each claim.`,
		Example: "$ laufwerk resume 261129-k3f9x2ab\n$ laufwerk resume --all\n$ laufwerk resume --due --json\n$ laufwerk resume 261129-k3f9x2ab --accept-identity 'docker engine ID at /old=docker engine ID at /new'",
		GroupID: sectionRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.Run = args[0]
			}
			if (o.Run != "") == (o.All || o.Due) || (o.All && o.Due) {
				return failure.New(failure.Usage, "give the id of a run, or --all, or --due").WithHint("laufwerk runs list --all")
			}
			if f := cmd.Flags().Lookup("accept-identity"); f.Changed && o.Accept == "" {
				return usageError(cmd, "--accept-identity is empty")
			}
			if o.Accept != "" && o.Run == "" {
				return failure.New(failure.Usage, "--accept-identity needs the id of a run").WithHint("laufwerk cleanup --all --accept-identity %s", failure.Quote(o.Accept))
			}
			return runResume(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.All, "all", false, "continue every run that was interrupted, each in a background process")
	cmd.Flags().BoolVar(&o.Due, "due", false, "continue every run whose sleep has ended, each in a background process")
	cmd.Flags().BoolVar(&o.NoExchange, "no-exchange", false, "write back even if the file system cannot exchange two files atomically")
	cmd.Flags().StringVar(&o.Accept, "accept-identity", "", "`OLD=NEW`: accept that the engine with the recorded identity OLD now reports NEW")
	return cmd
}

func runResume(ctx context.Context, o *resumeOptions) error {
	s, err := o.openToChange(ctx, "resume")
	if err != nil {
		return err
	}
	if o.Run == "" {
		return resumeMany(ctx, o, s)
	}
	st, caught, err := acquireRun(ctx, s, o.Run, func(ctx context.Context) (runs.StartedRun, error) {
		st, err := s.Resume(ctx, o.Run)
		if err != nil {
			return st, err
		}
		if err := acceptIdentity(ctx, o, s, st); err != nil {
			st.Lease.Release()
			return runs.StartedRun{}, err
		}
		return st, nil
	})
	if err != nil {
		return err
	}
	return runWorker(ctx, o.Deps, s, st, workOptions{NoExchange: o.NoExchange, Signals: caught})
}

// acceptIdentity records an engine's new identity, under the run's lease.
func acceptIdentity(ctx context.Context, o *resumeOptions, s *runs.Service, st runs.StartedRun) error {
	if o.Accept == "" {
		return nil
	}
	f := claims.Filter{Run: st.Run.ID}
	a, err := s.Driver.ReadAcceptance(ctx, f, o.Accept, currentPerson())
	if err != nil {
		return err
	}
	n, err := s.Driver.Accept(ctx, f, a)
	if err == nil {
		o.UI.Talkf("the new identity is recorded with %d claims\n", n)
	}
	return err
}

// resumeManyDocument is printed with --all and --due; for one run it is runDocument.
type resumeManyDocument struct {
	Runs []resumedRun `json:"runs"`
}

type resumedRun struct {
	Run   string       `json:"run"`
	State string       `json:"state"`
	Error string       `json:"error,omitempty"`
	Code  failure.Kind `json:"code,omitempty"`
	Hint  string       `json:"hint,omitempty"`

	DeprecatedNext string `json:"next,omitempty"` // Hint, for one release
}

// resumeMany continues every run that can continue. One that cannot, because its target changed for example, does not stop the
// others.
func resumeMany(ctx context.Context, o *resumeOptions, s *runs.Service) error {
	list, err := s.ListResumable(ctx, o.Due)
	if err != nil {
		return err
	}
	ui := o.UI
	taken := []resumedRun{}
	var first error
	for _, r := range list {
		one := resumedRun{Run: r.ID, State: runs.Running}
		st, err := s.Resume(ctx, r.ID)
		if err == nil {
			err = startBackgroundWorker(ctx, o.Deps, s, st)
		}
		if failure.Is(err, failure.LeaseBusy) { // somebody was faster
			err = nil
		}
		if err != nil {
			one.State, one.Error, one.Code = r.State, err.Error(), failure.KindOf(err)
			if f := failure.As(err); f != nil {
				one.Hint, one.DeprecatedNext = f.Hint, f.Hint
			}
			if first == nil {
				first = err
			}
			ui.Printf("%s\t%s\t%s\n", r.ID, r.State, err)
		} else {
			ui.Printf("%s\t%s\n", r.ID, one.State)
		}
		taken = append(taken, one)
	}
	if len(list) == 0 {
		ui.Talkf("no run to continue\n")
	}
	doc := resumeManyDocument{taken}
	if first != nil {
		return failWithDocument(first, doc)
	}
	return ui.Document(doc)
}
