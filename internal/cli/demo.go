package cli

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/project"
	"github.com/laufwerk/laufwerk/internal/runs"
	"github.com/laufwerk/laufwerk/internal/scaffold"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/workflow"
)

type demoOptions struct {
	*Deps

	Yes  bool
	Kill bool
}

func newDemo(d *Deps) *cobra.Command {
	o := &demoOptions{Deps: d}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Try a whole run on a scratch project, with a scripted agent and no model",
		Long: `Make a scratch project with a failing check, let a scripted agent work on a copy of it until the check succeeds, show
the changes, ask for approval, and write them back. No model is called, and nothing but this binary, sh and bash is needed.

With --kill the worker process is killed in the middle of the agent's turn; another process resumes the run, joins the turn
that is still running, and finishes. Then everything that was allocated is listed, with the proof that it is gone.`,
		Example: "$ laufwerk demo\n$ laufwerk demo --kill --yes",
		GroupID: sectionStart,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !o.Yes && !d.Interactive() {
				again := "laufwerk demo --yes"
				if o.Kill {
					again = "laufwerk demo --kill --yes"
				}
				return failure.New(failure.Usage, "the demo asks for approval, and there is no terminal to ask on: --yes approves the changes").WithHint("%s", again)
			}
			return runDemo(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.Yes, "yes", false, "approve the changes without asking")
	cmd.Flags().BoolVar(&o.Kill, "kill", false, "kill the worker process in the middle of the agent's turn, and resume the run")
	return cmd
}

type demoDocument struct {
	Project  string `json:"project"`
	Run      string `json:"run"`
	State    string `json:"state"`
	Killed   bool   `json:"killed"`
	Turns    int    `json:"turns"`
	RunTwice int    `json:"runTwice"`
	Leaked   int    `json:"leaked"`
}

type demoScene struct {
	*demoOptions
	s       *runs.Service
	root    string // of the scratch project
	folder  string // where the scripted agent records its turns
	started string // id of the run
}

func runDemo(ctx context.Context, o *demoOptions) error {
	s, err := o.Open(ctx, true)
	if err != nil {
		return err
	}
	folder, err := files.TempDir("laufwerk-demo-")
	if err != nil {
		return failure.Wrap(err, failure.Failed, "make the scratch folder")
	}
	sc := &demoScene{demoOptions: o, s: s, root: filepath.Join(folder, "fields"), folder: folder}
	if err := sc.build(ctx); err != nil {
		return err
	}
	ui := o.UI
	ui.Talkf("scratch project: %s (its check fails; the agent is a script)\n", sc.root)
	if o.Kill {
		err = sc.runKilled(ctx)
	} else {
		err = sc.runWhole(ctx)
	}
	if err != nil {
		return err
	}
	return sc.conclude(ctx)
}

func (sc *demoScene) build(ctx context.Context) error {
	if err := files.MkdirAll(sc.root); err != nil {
		return failure.Wrap(err, failure.Failed, "make the scratch project")
	}
	for name, content := range map[string]string{demoScript: demoScriptBroken, "check.sh": demoCheck} {
		if err := files.Write(filepath.Join(sc.root, name), []byte(content)); err != nil {
			return failure.Wrap(err, failure.Failed, "make the scratch project")
		}
	}
	if sc.Kill { // the turn ends when somebody has joined it again
		if err := files.Write(filepath.Join(sc.folder, demoWaitFile), nil); err != nil {
			return failure.Wrap(err, failure.Failed, "make the scratch project")
		}
	}
	list, err := scaffold.Render(scaffold.Options{
		ProjectID: "demo", Execution: "local", Example: true,
		AgentCommand: []string{system.Program(), DemoAgentArgument, sc.folder},
	})
	if err != nil {
		return err
	}
	return scaffold.Create(ctx, sc.root, list, func(ctx context.Context, root string) error {
		_, err := sc.Projects.Check(ctx, root, nil)
		return err
	})
}

const demoInput = `{"issue":"fields.sh drops the last field of a line that ends in a comma","check":"sh check.sh"}`

// runWhole executes the run in this process.
func (sc *demoScene) runWhole(ctx context.Context) error {
	p, err := project.Load(ctx, sc.s.Script, sc.root)
	if err != nil {
		return err
	}
	w, err := p.Workflow(ctx, scaffold.Example)
	if err != nil {
		return err
	}
	st, err := sc.s.Start(ctx, runs.Request{Project: p, Workflow: w, Input: json.RawMessage(demoInput)})
	if err != nil {
		return err
	}
	sc.started = st.Run.ID
	opts := workOptions{Silent: true}
	if sc.Yes {
		opts.Ask = sc.approve
	}
	return runWorker(ctx, sc.Deps, sc.s, st, opts)
}

// approve is a workflow.Asker that shows what a person would be shown, and answers yes.
func (sc *demoScene) approve(ctx context.Context, q workflow.Question) (json.RawMessage, journal.Sender, error) {
	ui := sc.UI
	if q.Workspace != "" {
		text, err := sc.s.Difference(ctx, sc.started, q.Digest)
		if err != nil {
			return nil, journal.Sender{}, err
		}
		ui.Talkf("\n%s\n", text)
	}
	if q.Description != "" {
		ui.Talkf("%s\n", q.Description)
	}
	ui.Talkf("%s yes (--yes)\n", ui.Err.Bold(q.Title))
	who := currentPerson()
	who.Terminal = ""
	return json.RawMessage("true"), who, nil
}

// conclude counts, from what is on disk, operations that ran twice and resources that are left, and prints the result.
func (sc *demoScene) conclude(ctx context.Context) error {
	d, err := sc.s.Detail(ctx, sc.started)
	if err != nil {
		return err
	}
	res := demoDocument{Project: sc.root, Run: sc.started, State: d.Run.State, Killed: sc.Kill}
	if res.Turns, res.RunTwice, err = sc.countTurns(); err != nil {
		return err
	}
	for _, op := range d.Operations {
		if op.Attempts > 1 {
			res.RunTwice++
		}
	}
	if res.Leaked, err = sc.countLeaks(ctx); err != nil {
		return err
	}
	if err := sc.print(ctx, res); err != nil {
		return err
	}
	if res.RunTwice+res.Leaked > 0 {
		return failWithDocument(failure.New(failure.Internal, "the demo found a fault: operations run twice: %d, resources leaked: %d", res.RunTwice, res.Leaked).
			WithHint("laufwerk runs show %s\nlaufwerk claims list --all --run %s", res.Run, res.Run), res)
	}
	return sc.UI.Document(res)
}

// countTurns counts the turns that the scripted agent began, and how many of these were repetitions.
func (sc *demoScene) countTurns() (n, twice int, err error) {
	b, err := files.Read(filepath.Join(sc.folder, "turns"))
	if err != nil {
		return 0, 0, failure.Wrap(err, failure.Failed, "read what the scripted agent counted")
	}
	began := map[string]int{}
	for line := range strings.Lines(string(b)) {
		if turn, ok := strings.CutPrefix(strings.TrimSpace(line), "begin "); ok {
			began[turn]++
			n++
		}
	}
	for _, times := range began {
		twice += times - 1
	}
	return n, twice, nil
}
