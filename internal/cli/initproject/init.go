// Package initproject is the command `laufwerk init`.
package initproject

import (
	"context"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/cli"
	"github.com/laufwerk/laufwerk/internal/cli/render"
	"github.com/laufwerk/laufwerk/internal/scaffold"
	"github.com/laufwerk/laufwerk/internal/suggest"
)

// Options of the command.
type Options struct {
	UI       *render.UI
	Root     func() string
	Validate scaffold.Validate

	Execution    string
	Example      string
	AgentCommand string
	ID           string
	agentGiven   bool
}

// New makes the command. validate loads a project. runF replaces what it does in tests.
func New(d *cli.Deps, validate scaffold.Validate, runF func(context.Context, *Options) error) *cobra.Command {
	opts := &Options{UI: d.UI, Validate: validate}
	opts.Root = func() string { dir, _ := d.ProjectDir(); return dir }
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make the working directory a laufwerk project",
		Long: `Make the working directory (or --project DIR) a laufwerk project: a config, an execution target, declarations for
editors and tsc and, with --example, a workflow. Everything is loaded once before it is written; no file that is there is
overwritten.

The example lets an agent work on a copy of the project, runs a check, has it repaired, shows the difference, asks, and
writes back. Its agent is any program: the prompt comes on its standard input, the copy is its working directory, what it
prints is the reply.`,
		Example: "$ laufwerk init --execution local\n\n# With a workflow whose agent is a program of yours\n" +
			"$ laufwerk init --execution local --example issue-to-fix --agent-command 'my-agent --fast'",
		GroupID: cli.SectionStart,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.agentGiven = cmd.Flags().Changed("agent-command")
			if err := check(cmd, opts); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), opts)
			}
			return run(cmd.Context(), opts)
		},
	}
	f := cmd.Flags()
	f.StringVar(&opts.Execution, "execution", "", "where agents run, a `KIND`: "+strings.Join(scaffold.Executions(), ", "))
	f.StringVar(&opts.Example, "example", "", "also write the workflow `NAME`: "+scaffold.Example)
	f.StringVar(&opts.AgentCommand, "agent-command", "", "the `COMMAND` that is the example's agent, with its arguments")
	f.StringVar(&opts.ID, "id", "", "the project's `ID` (default: made of the directory's name)")
	return cmd
}

var projectID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,63}$`)

func check(cmd *cobra.Command, opts *Options) error {
	kinds := scaffold.Executions()
	if opts.Execution == "" {
		return cli.Usage(cmd, "%s needs --execution: where agents run", cmd.CommandPath()).WithHint("%s --execution %s", cmd.CommandPath(), kinds[0])
	}
	if !slices.Contains(kinds, opts.Execution) {
		return cli.Usage(cmd, "unknown execution %q: this version has %s", opts.Execution, strings.Join(kinds, ", ")).
			WithHint("%s --execution %s", cmd.CommandPath(), nearest(opts.Execution, kinds))
	}
	if opts.Example != "" && opts.Example != scaffold.Example {
		return cli.Usage(cmd, "unknown example %q: there is %s", opts.Example, scaffold.Example).
			WithHint("%s --execution %s --example %s --agent-command 'PROGRAM ARGUMENT…'", cmd.CommandPath(), opts.Execution, scaffold.Example)
	}
	if opts.Example != "" && !opts.agentGiven {
		return cli.Usage(cmd, "the example needs an agent: name the program with --agent-command. It reads the prompt on its standard input and works in its working directory").
			WithHint("%s --execution %s --example %s --agent-command 'PROGRAM ARGUMENT…'", cmd.CommandPath(), opts.Execution, scaffold.Example)
	}
	if opts.Example == "" && opts.agentGiven {
		return cli.Usage(cmd, "--agent-command is for the agent of an example").
			WithHint("add --example %s", scaffold.Example)
	}
	if opts.ID != "" && !projectID.MatchString(opts.ID) {
		return cli.Usage(cmd, "--id is %q: expected 1 to 63 letters, digits, dots, underscores or hyphens", opts.ID)
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
	Example   string   `json:"example,omitempty"`
	Files     []string `json:"files"`
}

func run(ctx context.Context, opts *Options) error {
	root := opts.Root()
	o := scaffold.Options{ProjectID: opts.ID, Execution: opts.Execution, Example: opts.Example != ""}
	if o.ProjectID == "" {
		o.ProjectID = scaffold.ProjectID(root)
	}
	if o.Example {
		words, err := scaffold.Words(opts.AgentCommand)
		if err != nil {
			return err
		}
		o.AgentCommand = words
	}
	list, err := scaffold.Render(o)
	if err != nil {
		return err
	}
	if err := scaffold.Create(ctx, root, list, opts.Validate); err != nil {
		return err
	}
	doc := document{Root: root, ProjectID: o.ProjectID, Execution: o.Execution, Example: opts.Example}
	for _, f := range list {
		doc.Files = append(doc.Files, f.Path)
		opts.UI.Printf("%s\n", render.Name(filepath.FromSlash(f.Path)))
	}
	if err := opts.UI.Document(doc); err != nil {
		return err
	}
	talk(opts, doc)
	return nil
}

func talk(opts *Options, doc document) {
	ui := opts.UI
	if ui.JSON {
		return
	}
	ui.Talkf("\n%s is now the project %s. Agents run on this machine, with your permissions: copies of the files, no sandbox.\n", render.Name(doc.Root), ui.Err.Bold(doc.ProjectID))
	if doc.Example == "" {
		ui.Talkf("Workflows are laufwerk/workflows/NAME/workflow.ts; an example comes with --example %s.\n", scaffold.Example)
		return
	}
	ui.Talkf("next: %s\n", ui.Err.Command(`laufwerk run `+doc.Example+` --input '{"issue": "what is wrong", "check": "the command that must succeed"}'`))
}
