package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/runs"
)

type answerOptions struct {
	*Deps

	Run      string
	Key      string
	Value    string
	Given    bool
	Input    string
	Digest   string
	NoResume bool
}

func newAnswer(d *Deps) *cobra.Command {
	o := &answerOptions{Deps: d}
	cmd := &cobra.Command{
		Use:   "answer RUN KEY [VALUE]",
		Short: "Answer a question that a run asks",
		Long: `Answer a question of a run, from any directory: yes or no, one of the options, or a text. The answer is recorded and the run
continues in the foreground, unless another worker process executes it already. An answer to a question about changes applies
to exactly the content that was frozen when the question was asked; laufwerk diff RUN shows it.`,
		Example: `$ laufwerk diff 261129-k3f9x2ab
$ laufwerk answer 261129-k3f9x2ab approve yes
$ laufwerk answer 261129-k3f9x2ab comment --input @comment.txt --no-resume`,
		GroupID: sectionRuns,
		Args: func(cmd *cobra.Command, args []string) error {
			err := checkPositional(cmd, args)
			if f := failure.As(err); f != nil && len(args) == 1 {
				f.WithHint("laufwerk runs show %s", failure.Quote(args[0])) // has each question with its command
			}
			return err
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Run, o.Key = args[0], args[1]
			if len(args) > 2 {
				o.Value, o.Given = args[2], true
			}
			if cmd.Flags().Changed("digest") && len(o.Digest) < minDigestLength {
				return failure.New(failure.Usage, "--digest %q: give at least %d characters of it", o.Digest, minDigestLength).
					WithHint("laufwerk diff %s", failure.Quote(o.Run))
			}
			return runAnswer(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Input, "input", "", "read the answer from `@file`, or - for stdin, since every user of this machine can read arguments")
	f.StringVar(&o.Digest, "digest", "", "answer only if the question is about the content with this `DIGEST`")
	f.BoolVar(&o.NoResume, "no-resume", false, "record the answer without continuing the run")
	return cmd
}

// minDigestLength is how many characters of a digest are enough. Fewer, or none, are a mistake in somebody's script.
const minDigestLength = 8

func runAnswer(ctx context.Context, o *answerOptions) error {
	if err := refuseInsideSession("answer"); err != nil {
		return err
	}
	if o.Given == (o.Input != "") {
		return failure.New(failure.Usage, "give the answer once: as VALUE, or with --input").WithHint("laufwerk answer %s %s yes", failure.Quote(o.Run), failure.Quote(o.Key))
	}
	if o.Input != "" {
		b, err := readInput(o.Deps, o.Input)
		if err != nil {
			return err
		}
		o.Value = string(b)
	}
	s, err := o.Open(ctx, false)
	if err != nil {
		return err
	}
	r, err := s.Answer(ctx, runs.Answer{Run: o.Run, Key: o.Key, Value: o.Value, Digest: o.Digest, Who: currentPerson()})
	if err != nil {
		return err
	}
	if o.NoResume {
		o.UI.Talkf("the answer is recorded\n")
		if _, live := s.Worker(r.ID); !live {
			o.UI.Next("laufwerk resume " + r.ID)
		}
		return o.UI.Document(runDocument{Run: r.ID, Workflow: r.Workflow, State: r.State})
	}
	var answered bool
	st, caught, err := acquireRun(ctx, s, r.ID, func(ctx context.Context) (st runs.StartedRun, err error) {
		st, answered, err = s.DeliverAnswer(ctx, r.ID, o.Key)
		return st, err
	})
	if err == nil && !answered {
		caught.Release()
		o.UI.Talkf("the answer is recorded; another worker process executes the run\n")
		return o.UI.Document(runDocument{Run: r.ID, Workflow: r.Workflow, State: runs.Running})
	}
	if err != nil {
		return failWithDocument(failure.Wrap(err, failure.Failed, "the answer is recorded, but the run could not be continued"),
			runDocument{Run: r.ID, Workflow: r.Workflow, State: r.State})
	}
	return runWorker(ctx, o.Deps, s, st, workOptions{Signals: caught})
}
