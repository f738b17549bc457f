package cli

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/cli/render"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/project"
	"github.com/laufwerk/laufwerk/internal/scaffold"
	"github.com/laufwerk/laufwerk/internal/suggest"
	"github.com/laufwerk/laufwerk/templates"
)

type initOptions struct {
	*Deps

	Execution    string
	Target       string
	Force        bool
	Example      string
	AgentCommand string
	ID           string
	NoPrepare    bool
	agentGiven   bool
}

// Prepared is an image that was made for a target, or was there.
type preparedImage struct {
	Image    string `json:"image"` // its id
	Manifest string `json:"manifestPath"`
	Reused   bool   `json:"reused"`
}

func newInit(d *Deps) *cobra.Command {
	o := &initOptions{Deps: d}
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make the working directory a laufwerk project, or add a target to its project",
		Long: `Make the working directory (or --project DIR) a laufwerk project: write a config, an execution target, TypeScript
declarations for editors and tsc and, with --example, a workflow. Everything is loaded once before it is written.

In a project that exists, add a target: write laufwerk/execution.TARGET.ts, and add an import and an element to the config.
Existing files are not changed otherwise, and if nothing is missing nothing is written. --force replaces files that are in the
way.

The image of a Docker target is built at once, which takes a few minutes the first time; with --no-prepare, laufwerk prepare
docker does that later. If it fails, the files stay.

An OpenShell target has a file laufwerk/openshell/policy.ts, which lists the servers that its sandboxes may connect to. Its id
is secure-coding, and its gateway is the one that is registered as laufwerk-local. The gateway and the engine are not used yet:
call laufwerk provision openshell and laufwerk prepare openshell next.

The workflow of the example lets an agent work on a copy of the project, runs a check, asks the agent to repair what the check
found, shows the changes, asks for approval, and writes them back. The agent is Codex with the login of your ChatGPT
subscription or, with --agent-command, any program: it reads the prompt from standard input, works in the copy, and prints its
reply. In containers and sandboxes a second agent without write access reviews the changes before you are asked, and the
program must be in the image or in the project.`,
		Example: "$ laufwerk init --execution local --example issue-to-fix\n\n# With your own program as the agent\n" +
			"$ laufwerk init --execution local --example issue-to-fix --agent-command 'my-agent --fast'\n\n# One more target\n" +
			"$ laufwerk init --execution local --target second\n\n# In containers\n$ laufwerk init --execution docker --example issue-to-fix" +
			"\n\n# In the sandboxes of an OpenShell gateway\n$ laufwerk init --execution openshell --example issue-to-fix",
		GroupID: sectionStart,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.agentGiven = cmd.Flags().Changed("agent-command")
			if err := checkInitFlags(cmd, o); err != nil {
				return err
			}
			return runInit(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Execution, "execution", "", "where agents run, a `KIND`: "+strings.Join(scaffold.Executions(), ", "))
	f.StringVar(&o.Target, "target", "", "the target's `ID` (default: its kind, or secure-coding for openshell)")
	f.StringVar(&o.Example, "example", "", "also write the workflow `NAME`: "+scaffold.Example)
	f.StringVar(&o.AgentCommand, "agent-command", "", "use this `COMMAND` with its arguments as the agent of the example (default: Codex)")
	f.StringVar(&o.ID, "id", "", "the project's `ID` (default: derived from the name of the directory)")
	f.BoolVar(&o.NoPrepare, "no-prepare", false, "do not build the image of a Docker target")
	f.BoolVar(&o.Force, "force", false, "replace files that are in the way")
	return cmd
}

func checkInitFlags(cmd *cobra.Command, o *initOptions) error {
	kinds := scaffold.Executions()
	if o.Execution == "" {
		return usageError(cmd, "%s needs --execution: where agents run", cmd.CommandPath()).WithHint("%[1]s --execution %[2]s", cmd.CommandPath(), strings.Join(kinds, "\n"+cmd.CommandPath()+" --execution "))
	}
	if !slices.Contains(kinds, o.Execution) {
		return usageError(cmd, "unknown kind of execution %q: expected one of %s", o.Execution, strings.Join(kinds, ", ")).
			WithHint("%s --execution %s", cmd.CommandPath(), closestOrFirst(o.Execution, kinds))
	}
	if o.Example != "" && o.Example != scaffold.Example {
		return usageError(cmd, "unknown example %q: the only one is %s", o.Example, scaffold.Example).
			WithHint("%s --execution %s --example %s", cmd.CommandPath(), o.Execution, scaffold.Example)
	}
	if o.Example == "" && o.agentGiven {
		return usageError(cmd, "--agent-command is for the agent of an example").
			WithHint("%s --execution %s --example %s --agent-command COMMAND", cmd.CommandPath(), o.Execution, scaffold.Example)
	}
	if o.ID != "" && !project.IsName(o.ID) {
		return usageError(cmd, "--id is %q: expected 1 to 63 letters, digits, dots, underscores or hyphens", o.ID)
	}
	if o.Target != "" && (!project.IsName(o.Target) || strings.Trim(o.Target, ".") == "") {
		return usageError(cmd, "--target is %q: expected 1 to 63 letters, digits, dots, underscores or hyphens", o.Target)
	}
	return nil
}

func closestOrFirst(word string, known []string) string {
	if near := suggest.Closest(word, known); near != "" {
		return near
	}
	return known[0]
}

type initDocument struct {
	Root      string   `json:"root"`
	ProjectID string   `json:"projectId"`
	Execution string   `json:"execution"`
	Target    string   `json:"target"`
	Example   string   `json:"example,omitempty"`
	New       bool     `json:"new"`            // the project was not there
	Files     []string `json:"files"`          // that were written
	Notes     []string `json:"notes"`          // sentences on what is left to do
	Hint      string   `json:"hint,omitempty"` // the commands to type next, one per line

	Prepared *preparedImage `json:"prepared,omitempty"` // the image of the target, where it was prepared

	DeprecatedAdvice []string `json:"advice"` // Notes, for one release
}

func runInit(ctx context.Context, o *initOptions) error {
	root, _ := o.ProjectDir()
	so := scaffold.Options{ProjectID: o.ID, Execution: o.Execution, Target: o.Target, Example: o.Example != "", Force: o.Force}
	if o.agentGiven {
		words, err := scaffold.Words(o.AgentCommand)
		if err != nil {
			return err
		}
		so.AgentCommand = words
	}
	made, err := scaffold.Init(ctx, root, so, o.Projects.Check)
	if err != nil {
		return err
	}
	doc := initDocument{
		Root: root, ProjectID: made.ProjectID, Execution: so.Execution, Target: made.Target, Example: o.Example,
		New: made.New, Files: append([]string{}, made.Files...), Notes: append([]string{}, made.Advice...),
	}
	kind := templates.KindOf(so.Execution)
	if o.agentGiven && !kind.Host && doc.Example != "" {
		doc.Notes = append(doc.Notes, "The agent's command runs in the "+kind.Sandbox+": its program must be in the image or in the project.")
	}
	if o.agentGiven && kind.Gateway && doc.Example != "" {
		doc.Notes = append(doc.Notes, "It has no network access until laufwerk/"+templates.Policy+" names its program.")
	}
	doc.DeprecatedAdvice = doc.Notes
	for _, f := range doc.Files {
		o.UI.Printf("%s\n", render.Name(filepath.FromSlash(f)))
	}
	if doc.Prepared, err = prepareNewTarget(ctx, o, doc); err != nil {
		return failWithDocument(err, doc)
	}
	doc.Hint = initHint(o, doc)
	if err := o.UI.Document(doc); err != nil {
		return err
	}
	printInit(o, doc)
	return nil
}

// prepareNewTarget prepares the target. The files are written already: a failure is NotReady, with the command that tries again.
func prepareNewTarget(ctx context.Context, o *initOptions, doc initDocument) (*preparedImage, error) {
	if o.NoPrepare {
		return nil, nil
	}
	ctx, stop := o.Interruptible(ctx)
	defer stop()
	made, err := o.Preparation.NewTarget(ctx, doc.Root, doc.Execution, doc.Target)
	if err == nil && made == nil {
		return nil, nil
	}
	if err == nil {
		return &preparedImage{Image: made.Image, Manifest: made.Manifest, Reused: made.Reused}, nil
	}
	out := failure.New(failure.NotReady, "the project was written, but preparing the target %q failed", doc.Target).WithCause(err)
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

func prepareCommand(doc initDocument) string {
	if doc.Target == doc.Execution || templates.KindOf(doc.Execution).Host {
		return "laufwerk prepare " + doc.Execution
	}
	return "laufwerk prepare " + doc.Execution + " --target " + doc.Target
}

func printNotes(ui *render.UI, doc initDocument) {
	for _, line := range doc.Notes {
		ui.Talkf("%s\n", line)
	}
}

func printInit(o *initOptions, doc initDocument) {
	ui := o.UI
	if ui.JSON {
		return
	}
	switch {
	case len(doc.Files) == 0:
		ui.Talkf("%s is the project %s and has all of this already: nothing was written.\n", render.Name(doc.Root), ui.Err.Bold(doc.ProjectID))
		printNotes(ui, doc)
		return
	case doc.New:
		ui.Talkf("\n%s is now the project %s. Agents run %s.\n", render.Name(doc.Root), ui.Err.Bold(doc.ProjectID), templates.KindOf(doc.Execution).Runs)
	default:
		ui.Talkf("\nThe project %s has the target %s.\n", ui.Err.Bold(doc.ProjectID), ui.Err.Bold(doc.Target))
	}
	printNotes(ui, doc)
	if doc.Example == "" {
		if doc.New {
			ui.Talkf("Workflows are files laufwerk/workflows/NAME/workflow.ts; --example %s writes one.\n", scaffold.Example)
		}
		return
	}
	ui.Next(doc.Hint)
}

// initHint is what to type next to run the example, or "" if none was written.
func initHint(o *initOptions, doc initDocument) string {
	if doc.Example == "" || len(doc.Files) == 0 {
		return ""
	}
	var lines []string
	switch kind := templates.KindOf(doc.Execution); {
	case kind.Gateway:
		lines = []string{"laufwerk provision " + doc.Execution + " --target " + doc.Target, prepareCommand(doc),
			"laufwerk doctor --execution " + doc.Execution + " --target " + doc.Target}
	case kind.Prepares != "" && doc.Prepared == nil && (!o.agentGiven || !kind.Host):
		lines = []string{prepareCommand(doc) + " && laufwerk doctor"}
	case !kind.Host:
		lines = []string{"laufwerk doctor"}
	}
	lines = append(lines, `laufwerk run `+doc.Example+` --input '{"issue": "what is wrong", "check": "the command that must succeed"}'`)
	return strings.Join(lines, "\n")
}
