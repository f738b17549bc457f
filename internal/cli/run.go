package cli

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/project"
	"github.com/laufwerk/laufwerk/internal/runs"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

type runOptions struct {
	*Deps

	Workflow   string
	Input      string
	Key        string
	Wait       bool
	Detach     bool
	NoExchange bool
}

func newRun(d *Deps) *cobra.Command {
	o := &runOptions{Deps: d}
	cmd := &cobra.Command{
		Use:   "run WORKFLOW",
		Short: "Start a workflow and execute it until it ends or waits for a person",
		Long: `Start a workflow of the project and execute it in the foreground. If this process dies, the agents and commands that it
started continue under their supervisors, and laufwerk resume continues the run from there. If the workflow asks a person
and there is no terminal to ask on, the command ends with exit code 8 and prints how to answer.`,
		Example: `$ laufwerk run issue-to-fix --input '{"issue":"Parse() drops the last field","check":"go test ./..."}'
$ laufwerk run issue-to-fix --input @issue.json --json
$ laufwerk run issue-to-fix --input @issue.json --key issue-17 --detach`,
		GroupID: sectionRuns,
		Args: func(cmd *cobra.Command, args []string) error {
			err := checkPositional(cmd, args)
			if f := failure.As(err); f != nil && len(args) == 0 {
				if names := workflowNames(d); len(names) > 0 {
					f.WithHint("laufwerk run %s", strings.Join(names[:min(len(names), maxSuggestedWorkflows)], "\nlaufwerk run "))
				}
			}
			return err
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Workflow = args[0]
			if o.Key == "" && cmd.Flags().Changed("key") {
				return usageError(cmd, "--key is empty: every call would start another run")
			}
			return runRun(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Input, "input", "", "the workflow's input: `JSON`, @file, or - for stdin")
	f.StringVar(&o.Key, "key", "", "your own `NAME` for the run: a later call with the same name continues this run instead of starting another")
	f.BoolVar(&o.Wait, "wait", false, "if the project's limit of runs at once is reached, wait for another run to end")
	f.BoolVar(&o.Detach, "detach", false, "execute the run in a background process, and print which run it is")
	f.BoolVar(&o.NoExchange, "no-exchange", false, "write back even if the file system cannot exchange two files atomically")
	return cmd
}

const maxSuggestedWorkflows = 5

// workflowNames are the names of the project's workflows, none outside of a project.
func workflowNames(d *Deps) []string {
	root, err := project.Find(d.Env.Dir, d.Flags.Project, "")
	if err != nil {
		return nil
	}
	names, _ := project.Workflows(root)
	return names
}

func runRun(ctx context.Context, o *runOptions) error {
	input, err := readInput(o.Deps, o.Input)
	if err != nil {
		return err
	}
	s, err := o.Open(ctx, false)
	if err != nil {
		return err
	}
	root, err := project.Find(o.Env.Dir, o.Flags.Project, s.Home.Dir())
	if err != nil {
		return err
	}
	p, err := project.Load(ctx, s.Script, root)
	if err != nil {
		return err
	}
	w, err := p.Workflow(ctx, o.Workflow)
	if err != nil {
		return err
	}
	if s, err = o.Open(ctx, true); err != nil { // not before: an error up to here must not create the home
		return err
	}
	q := runs.Request{Project: p, Workflow: w, Input: input, Key: o.Key}
	if r, ok, err := s.ByKey(ctx, q); err != nil {
		return err
	} else if ok {
		return continueRun(ctx, o, s, r)
	}
	st, caught, err := startRun(ctx, s, q)
	if o.Wait && failure.Is(err, failure.AdmissionFull) {
		o.UI.Talkf("waiting for a slot: %s\n", err)
		for failure.Is(err, failure.AdmissionFull) {
			if err = waitAdmissionInterval(ctx); err == nil {
				st, caught, err = startRun(ctx, s, q)
			}
		}
	}
	if err != nil {
		return err
	}
	o.UI.Talkf("run %s of %s\n", o.UI.Err.Bold(st.Run.ID), w.Name)
	if o.Detach {
		caught.Release()
		return detachRun(ctx, o.Deps, s, st)
	}
	return runWorker(ctx, o.Deps, s, st, workOptions{NoExchange: o.NoExchange, Signals: caught})
}

// startRun creates a run. Signals are caught from its beginning, so that none ends this process before runWorker handles it.
func startRun(ctx context.Context, s *runs.Service, q runs.Request) (runs.StartedRun, *caughtSignals, error) {
	caught := catchSignals(ctx)
	st, err := s.Start(ctx, q)
	if err != nil {
		caught.Release()
	}
	return st, caught, err
}

// continueRun resumes the run with the key if it is interrupted, and otherwise reports it.
func continueRun(ctx context.Context, o *runOptions, s *runs.Service, r runs.Run) error {
	if r.State != runs.Interrupted {
		return reportSettledRun(o.Deps, s, r)
	}
	st, caught, err := acquireRun(ctx, s, r.ID, func(ctx context.Context) (runs.StartedRun, error) { return s.Resume(ctx, r.ID) })
	if err != nil {
		return err
	}
	o.UI.Talkf("run %s of %s continues\n", o.UI.Err.Bold(r.ID), r.Workflow)
	if o.Detach {
		caught.Release()
		return detachRun(ctx, o.Deps, s, st)
	}
	return runWorker(ctx, o.Deps, s, st, workOptions{NoExchange: o.NoExchange, Signals: caught})
}

const admissionInterval = 250 * time.Millisecond

func waitAdmissionInterval(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(admissionInterval):
		return nil
	}
}

// readInput reads a value that is given as JSON, as @file, or as - for stdin. It need not be JSON: the caller knows.
func readInput(d *Deps, given string) (json.RawMessage, error) {
	switch {
	case given == "-":
		return readBounded(d.Env.In, "read the input from stdin")
	case strings.HasPrefix(given, "@"):
		f, err := files.Open(d.Path(given[1:]))
		if err != nil {
			return nil, inputError(err, "read the input")
		}
		defer f.Close()
		return readBounded(f, "read the input")
	default:
		return json.RawMessage(given), nil
	}
}

// readBounded reads at most maxInputBytes: a file such as /dev/zero has no end.
func readBounded(from io.Reader, doing string) (json.RawMessage, error) {
	if from == nil {
		from = strings.NewReader("")
	}
	b, err := io.ReadAll(io.LimitReader(from, maxInputBytes+1))
	if err != nil {
		return nil, inputError(err, doing)
	}
	if len(b) > maxInputBytes {
		return nil, failure.New(failure.InputInvalid, "the input is larger than %d bytes: pass the name of a file that the workflow reads instead", maxInputBytes).
			WithHint("laufwerk run --help")
	}
	return b, nil
}

func inputError(err error, doing string) error {
	return failure.New(failure.InputInvalid, "%s", doing).WithHint("laufwerk run --help").WithCause(err)
}

const maxInputBytes = 16 << 20
