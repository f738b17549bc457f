// Package run is the command `laufwerk run`.
package run

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/cli"
	"github.com/laufwerk/laufwerk/internal/cli/worker"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/project"
	"github.com/laufwerk/laufwerk/internal/runs"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// Options of the command.
type Options struct {
	Deps *cli.Deps
	Open worker.Open

	Workflow   string
	Input      string
	Key        string
	Wait       bool
	Detach     bool
	NoExchange bool
}

// New makes the command.
func New(d *cli.Deps, open worker.Open) *cobra.Command {
	o := &Options{Deps: d, Open: open}
	cmd := &cobra.Command{
		Use:   "run WORKFLOW",
		Short: "Start a workflow and work on it until it ends or waits for a person",
		Long: `Start a workflow of the project and work on it in the foreground. If this process dies, what runs goes on
under its supervisor, and laufwerk resume takes the run up where it was. Where a person is asked and none is
at the terminal, the command ends with exit code 8 and says how to answer.`,
		Example: `$ laufwerk run issue-to-fix --input '{"issue":"Parse() drops the last field","check":"go test ./..."}'
$ laufwerk run issue-to-fix --input @issue.json --json
$ laufwerk run issue-to-fix --input @issue.json --key issue-17 --detach`,
		GroupID: cli.SectionRuns,
		Args: func(cmd *cobra.Command, args []string) error {
			err := cli.Positional(cmd, args)
			if f := failure.As(err); f != nil && len(args) == 0 {
				if names := workflows(d); len(names) > 0 {
					f.WithHint("laufwerk run %s", strings.Join(names[:min(len(names), maxNamed)], "\nlaufwerk run "))
				}
			}
			return err
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Workflow = args[0]
			if o.Key == "" && cmd.Flags().Changed("key") {
				return cli.Usage(cmd, "--key is empty: it would start another run each time")
			}
			return run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Input, "input", "", "the workflow's input: `JSON`, @file, or - for stdin")
	f.StringVar(&o.Key, "key", "", "your own `NAME` for the run: asked for again, the same run goes on instead of a new one")
	f.BoolVar(&o.Wait, "wait", false, "where the project allows no more live runs, wait until it does")
	f.BoolVar(&o.Detach, "detach", false, "let a worker in the background do it, and print the run")
	f.BoolVar(&o.NoExchange, "no-exchange", false, "write back also where the file system cannot exchange two files atomically")
	return cmd
}

// maxNamed is how many workflows are named to the one who named none.
const maxNamed = 5

// workflows are the names of the project's, none where there is no project.
func workflows(d *cli.Deps) []string {
	root, err := project.Find(d.Env.Dir, d.Flags.Project, "")
	if err != nil {
		return nil
	}
	names, _ := project.Workflows(root)
	return names
}

func run(ctx context.Context, o *Options) error {
	input, err := Input(o.Deps, o.Input)
	if err != nil {
		return err
	}
	s, err := o.Open(ctx, false)
	if err != nil {
		return err
	}
	root, err := project.Find(o.Deps.Env.Dir, o.Deps.Flags.Project, s.Home.Dir())
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
	if s, err = o.Open(ctx, true); err != nil { // only now: a mistake so far leaves nothing behind
		return err
	}
	q := runs.Request{Project: p, Workflow: w, Input: input, Key: o.Key}
	if r, ok, err := s.ByKey(ctx, q); err != nil {
		return err
	} else if ok {
		return again(ctx, o, s, r)
	}
	st, caught, err := start(ctx, s, q)
	if o.Wait && failure.Is(err, failure.AdmissionFull) {
		o.Deps.UI.Talkf("waiting for a place: %s\n", err)
		for failure.Is(err, failure.AdmissionFull) {
			if err = pause(ctx); err == nil {
				st, caught, err = start(ctx, s, q)
			}
		}
	}
	if err != nil {
		return err
	}
	o.Deps.UI.Talkf("run %s of %s\n", o.Deps.UI.Err.Bold(st.Run.ID), w.Name)
	if o.Detach {
		caught.Release()
		return worker.Detach(ctx, o.Deps, s, st)
	}
	return worker.Work(ctx, o.Deps, s, st, worker.Options{NoExchange: o.NoExchange, Signals: caught})
}

// start makes a run. From then on no signal ends this process before Work hears of it.
func start(ctx context.Context, s *runs.Service, q runs.Request) (runs.Started, *worker.Caught, error) {
	caught := worker.Catch(ctx)
	st, err := s.Start(ctx, q)
	if err != nil {
		caught.Release()
	}
	return st, caught, err
}

// again goes on with the run that has the key, as far as anybody has to.
func again(ctx context.Context, o *Options, s *runs.Service, r runs.Run) error {
	if r.State != runs.Interrupted {
		return worker.Left(o.Deps, s, r)
	}
	st, caught, err := worker.Take(ctx, s, r.ID, func(ctx context.Context) (runs.Started, error) { return s.Resume(ctx, r.ID) })
	if err != nil {
		return err
	}
	o.Deps.UI.Talkf("run %s of %s goes on\n", o.Deps.UI.Err.Bold(r.ID), r.Workflow)
	if o.Detach {
		caught.Release()
		return worker.Detach(ctx, o.Deps, s, st)
	}
	return worker.Work(ctx, o.Deps, s, st, worker.Options{NoExchange: o.NoExchange, Signals: caught})
}

const slotInterval = 250 * time.Millisecond

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(slotInterval):
		return nil
	}
}

// Input reads a value that is given as JSON, as @file, or as - for stdin. It need not be JSON: the caller knows.
func Input(d *cli.Deps, given string) (json.RawMessage, error) {
	switch {
	case given == "-":
		return read(d.Env.In, "read the input from stdin")
	case strings.HasPrefix(given, "@"):
		f, err := files.Open(d.Path(given[1:]))
		if err != nil {
			return nil, unreadable(err, "read the input")
		}
		defer f.Close()
		return read(f, "read the input")
	default:
		return json.RawMessage(given), nil
	}
}

// read takes no more than an input may have: what is named may have no end.
func read(from io.Reader, doing string) (json.RawMessage, error) {
	if from == nil {
		from = strings.NewReader("")
	}
	b, err := io.ReadAll(io.LimitReader(from, maxInput+1))
	if err != nil {
		return nil, unreadable(err, doing)
	}
	if len(b) > maxInput {
		return nil, failure.New(failure.InputInvalid, "the input is larger than %d bytes: let it name a file that the workflow reads", maxInput).
			WithHint("laufwerk run --help")
	}
	return b, nil
}

func unreadable(err error, doing string) error {
	e := failure.New(failure.InputInvalid, "%s", doing).WithHint("laufwerk run --help")
	e.Err = err
	return e
}

// maxInput bounds an input in bytes.
const maxInput = 16 << 20
