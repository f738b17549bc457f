// Package initproject is the command `laufwerk init`.
package initproject

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/cli"
	"github.com/laufwerk/laufwerk/internal/cli/render"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/prepare"
	"github.com/laufwerk/laufwerk/internal/project"
	"github.com/laufwerk/laufwerk/internal/scaffold"
	"github.com/laufwerk/laufwerk/internal/suggest"
)

// Options of the command.
type Options struct {
	UI   *render.UI
	Root func() string
	Load scaffold.Load
	// Prepare makes ready what a new target of a kind needs, where that takes long; nil for what needs nothing.
	Prepare Prepare

	Execution    string
	Target       string
	Force        bool
	Example      string
	AgentCommand string
	ID           string
	NoPrepare    bool
	agentGiven   bool
	deps         *cli.Deps
}

// Prepared is an image that was made for a target, or was there.
type Prepared struct {
	Image    string `json:"image"` // its id
	Manifest string `json:"manifestPath"`
	Reused   bool   `json:"reused"`
}

// Prepare prepares a new target of the project at root, nil where there is nothing to prepare.
type Prepare func(ctx context.Context, root, kind, target string) (*prepare.TargetImage, error)

// New makes the command. load loads a project.
func New(d *cli.Deps, load scaffold.Load, prepareTarget Prepare) *cobra.Command {
	opts := &Options{UI: d.UI, Load: load, Prepare: prepareTarget, deps: d}
	opts.Root = func() string { dir, _ := d.ProjectDir(); return dir }
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make the working directory a laufwerk project, or add a target to the one that it is",
		Long: `Make the working directory (or --project DIR) a laufwerk project: a config, an execution target, declarations for
editors and tsc and, with --example, a workflow. Everything is loaded once before it is written.

In a project, the target is added: its own file laufwerk/execution.TARGET.ts, and in the config one import and one element.
What is there already stays as it is; where everything is, nothing is written. --force replaces files that are in the way.

The image of a Docker target is prepared at once, which takes a few minutes the first time; --no-prepare leaves that to
laufwerk prepare docker. Where preparing fails, the files stay.

An OpenShell target comes with laufwerk/openshell/policy.ts, which says where its sandboxes may connect to; its id is
secure-coding, its gateway the one that is registered as laufwerk-local. Neither gateway nor engine is asked for anything:
laufwerk provision openshell and laufwerk prepare openshell come next.

The example lets an agent work on a copy of the project, runs a check, has it repaired, shows the difference, asks, and
writes back. Its agent is Codex with the login of your ChatGPT subscription or, with --agent-command, any program: the
prompt comes on its standard input, the copy is its working directory, what it prints is the reply. In containers and
sandboxes a second agent, which can only read, reviews the difference before you are asked, and the program has to be in the
image or in the project.`,
		Example: "$ laufwerk init --execution local --example issue-to-fix\n\n# With an agent that is a program of yours\n" +
			"$ laufwerk init --execution local --example issue-to-fix --agent-command 'my-agent --fast'\n\n# One more target\n" +
			"$ laufwerk init --execution local --target second\n\n# In containers\n$ laufwerk init --execution docker --example issue-to-fix" +
			"\n\n# In the sandboxes of an OpenShell gateway\n$ laufwerk init --execution openshell --example issue-to-fix",
		GroupID: cli.SectionStart,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.agentGiven = cmd.Flags().Changed("agent-command")
			if err := check(cmd, opts); err != nil {
				return err
			}
			return run(cmd.Context(), opts)
		},
	}
	f := cmd.Flags()
	f.StringVar(&opts.Execution, "execution", "", "where agents run, a `KIND`: "+strings.Join(scaffold.Executions(), ", "))
	f.StringVar(&opts.Target, "target", "", "the target's `ID` (default: the kind; secure-coding for openshell)")
	f.StringVar(&opts.Example, "example", "", "also write the workflow `NAME`: "+scaffold.Example)
	f.StringVar(&opts.AgentCommand, "agent-command", "", "the `COMMAND` that is the example's agent, with its arguments (default: Codex)")
	f.StringVar(&opts.ID, "id", "", "the project's `ID` (default: made of the directory's name)")
	f.BoolVar(&opts.NoPrepare, "no-prepare", false, "do not prepare the image of a Docker target")
	f.BoolVar(&opts.Force, "force", false, "replace files that are in the way")
	return cmd
}

func check(cmd *cobra.Command, opts *Options) error {
	kinds := scaffold.Executions()
	if opts.Execution == "" {
		return cli.Usage(cmd, "%s needs --execution: where agents run", cmd.CommandPath()).WithHint("%[1]s --execution %[2]s", cmd.CommandPath(), strings.Join(kinds, "\n"+cmd.CommandPath()+" --execution "))
	}
	if !slices.Contains(kinds, opts.Execution) {
		return cli.Usage(cmd, "unknown execution %q: this version has %s", opts.Execution, strings.Join(kinds, ", ")).
			WithHint("%s --execution %s", cmd.CommandPath(), nearest(opts.Execution, kinds))
	}
	if opts.Example != "" && opts.Example != scaffold.Example {
		return cli.Usage(cmd, "unknown example %q: there is %s", opts.Example, scaffold.Example).
			WithHint("%s --execution %s --example %s", cmd.CommandPath(), opts.Execution, scaffold.Example)
	}
	if opts.Example == "" && opts.agentGiven {
		return cli.Usage(cmd, "--agent-command is for the agent of an example").
			WithHint("add --example %s", scaffold.Example)
	}
	if opts.ID != "" && !project.IsName(opts.ID) {
		return cli.Usage(cmd, "--id is %q: expected 1 to 63 letters, digits, dots, underscores or hyphens", opts.ID)
	}
	if opts.Target != "" && (!project.IsName(opts.Target) || strings.Trim(opts.Target, ".") == "") {
		return cli.Usage(cmd, "--target is %q: expected 1 to 63 letters, digits, dots, underscores or hyphens", opts.Target)
	}
	return nil
}

func nearest(word string, known []string) string {
	if near := suggest.Closest(word, known); near != "" {
		return near
	}
	return known[0]
}

type document struct {
	Root      string   `json:"root"`
	ProjectID string   `json:"projectId"`
	Execution string   `json:"execution"`
	Target    string   `json:"target"`
	Example   string   `json:"example,omitempty"`
	New       bool     `json:"new"`   // the project was not there
	Files     []string `json:"files"` // that were written
	Advice    []string `json:"advice"`

	Prepared *Prepared `json:"prepared,omitempty"` // the image of the target, where it was prepared
}

func run(ctx context.Context, opts *Options) error {
	root := opts.Root()
	o := scaffold.Options{ProjectID: opts.ID, Execution: opts.Execution, Target: opts.Target, Example: opts.Example != "", Force: opts.Force}
	if opts.agentGiven {
		words, err := scaffold.Words(opts.AgentCommand)
		if err != nil {
			return err
		}
		o.AgentCommand = words
	}
	made, err := scaffold.Init(ctx, root, o, opts.Load)
	if err != nil {
		return err
	}
	doc := document{
		Root: root, ProjectID: made.ProjectID, Execution: o.Execution, Target: made.Target, Example: opts.Example,
		New: made.New, Files: append([]string{}, made.Files...), Advice: append([]string{}, made.Advice...),
	}
	if opts.agentGiven && o.Execution != local && doc.Example != "" {
		doc.Advice = append(doc.Advice, "The agent's command runs in the "+places()[o.Execution].one+": what it names has to be in the image, or in the project.")
	}
	if opts.agentGiven && o.Execution == openshell && doc.Example != "" {
		doc.Advice = append(doc.Advice, "It reaches no network before laufwerk/openshell/policy.ts names its program.")
	}
	for _, f := range doc.Files {
		opts.UI.Printf("%s\n", render.Name(filepath.FromSlash(f)))
	}
	if doc.Prepared, err = prepareTarget(ctx, opts, doc); err != nil {
		return cli.Fail(err, doc)
	}
	if err := opts.UI.Document(doc); err != nil {
		return err
	}
	talk(opts, doc)
	return nil
}

// prepareTarget prepares the target. The files are written: what fails is not ready, and the command that takes it up is said.
func prepareTarget(ctx context.Context, opts *Options, doc document) (*Prepared, error) {
	if opts.NoPrepare || opts.Prepare == nil {
		return nil, nil
	}
	ctx, stop := opts.deps.Interruptible(ctx)
	defer stop()
	made, err := opts.Prepare(ctx, doc.Root, doc.Execution, doc.Target)
	if err == nil && made == nil {
		return nil, nil
	}
	if err == nil {
		return &Prepared{Image: made.Image, Manifest: made.Manifest, Reused: made.Reused}, nil
	}
	out := failure.New(failure.NotReady, "the project is there, but preparing the target %q failed", doc.Target)
	out.Err = err
	again := prepareCommand(doc)
	if in := failure.As(err); in != nil {
		out.Paths, out.Fields, out.Conditions = in.Paths, in.Fields, in.Conditions
		if in.Kind.Exit() >= failure.ExitHungUp { // a signal, and not its fault
			out.Kind = in.Kind
		}
		switch {
		case strings.Contains("\n"+in.Hint+"\n", "\n"+again+"\n"):
			again = in.Hint
		case in.Hint != "":
			again = in.Hint + "\n" + again
		}
	}
	return nil, out.WithHint("%s", again)
}

// openshell is the kind of targets that are sandboxes of a gateway, which is to be given the login first.
const openshell = "openshell"

// place is where the agents of a target's kind run.
type place struct {
	one string // of the places of a target that has many
	all string // completes "Agents run …"
}

func places() map[string]place {
	return map[string]place{
		local:     {"machine", "on this machine, with your permissions: copies of the files, no sandbox"},
		"docker":  {"container", "in containers of this machine, on copies of the files"},
		openshell: {"sandbox", "in sandboxes of an OpenShell gateway of this machine, on copies of the files"},
	}
}

func prepareCommand(doc document) string {
	if doc.Target == doc.Execution || doc.Execution == local {
		return "laufwerk prepare " + doc.Execution
	}
	return "laufwerk prepare " + doc.Execution + " --target " + doc.Target
}

// local is the kind of targets that are this machine.
const local = "local"

func advise(ui *render.UI, doc document) {
	for _, line := range doc.Advice {
		ui.Talkf("%s\n", line)
	}
}

func talk(opts *Options, doc document) {
	ui := opts.UI
	if ui.JSON {
		return
	}
	switch {
	case len(doc.Files) == 0:
		ui.Talkf("%s is the project %s, and has all of this already: nothing was written.\n", render.Name(doc.Root), ui.Err.Bold(doc.ProjectID))
		advise(ui, doc)
		return
	case doc.New:
		ui.Talkf("\n%s is now the project %s. Agents run %s.\n", render.Name(doc.Root), ui.Err.Bold(doc.ProjectID), places()[doc.Execution].all)
	default:
		ui.Talkf("\nThe project %s has the target %s.\n", ui.Err.Bold(doc.ProjectID), ui.Err.Bold(doc.Target))
	}
	advise(ui, doc)
	if doc.Example == "" {
		if doc.New {
			ui.Talkf("Workflows are laufwerk/workflows/NAME/workflow.ts; an example comes with --example %s.\n", scaffold.Example)
		}
		return
	}
	switch {
	case doc.Execution == openshell:
		ui.Talkf("next: %s\n      %s\n      %s\n      ", ui.Err.Command("laufwerk provision openshell --target "+doc.Target), ui.Err.Command(prepareCommand(doc)),
			ui.Err.Command("laufwerk doctor --execution openshell --target "+doc.Target))
	case doc.Prepared == nil && (!opts.agentGiven || doc.Execution != local):
		ui.Talkf("next: %s\n      ", ui.Err.Command(prepareCommand(doc)+" && laufwerk doctor"))
	case doc.Execution != local:
		ui.Talkf("next: %s\n      ", ui.Err.Command("laufwerk doctor"))
	default:
		ui.Talkf("next: ")
	}
	ui.Talkf("%s\n", ui.Err.Command(`laufwerk run `+doc.Example+` --input '{"issue": "what is wrong", "check": "the command that must succeed"}'`))
}
