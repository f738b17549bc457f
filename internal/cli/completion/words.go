package completion

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/cli"
	"github.com/laufwerk/laufwerk/internal/cli/settings"
	"github.com/laufwerk/laufwerk/internal/cli/worker"
	"github.com/laufwerk/laufwerk/internal/project"
	"github.com/laufwerk/laufwerk/internal/redact"
	"github.com/laufwerk/laufwerk/internal/runs"
	"github.com/laufwerk/laufwerk/internal/scaffold"
)

// Somebody waits with a finger on the tab key: whatever is not known by then is not offered.
const (
	patience  = 1500 * time.Millisecond
	storeWait = 250 * time.Millisecond
)

// Sources are where words come from.
type Sources struct {
	Deps    *cli.Deps
	Open    worker.Open
	Project func(ctx context.Context, root string) (*project.Project, error)
}

// Attach lets the arguments and flags of commands be completed, by the names that they have in Use and in the flags' usage.
func Attach(commands []*cobra.Command, s Sources) {
	for _, cmd := range commands {
		Attach(cmd.Commands(), s)
		if cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 {
			cmd.ValidArgsFunction = s.argument
		}
		for flag, words := range map[string]func(context.Context) []string{"target": s.targets, "execution": s.executions} {
			if cmd.Flags().Lookup(flag) != nil {
				_ = cmd.RegisterFlagCompletionFunc(flag, s.offering(words)) // fails only for a flag that is not there
			}
		}
	}
}

// AttachGlobal lets the flags of every command be completed.
func AttachGlobal(root *cobra.Command, s Sources) {
	_ = root.RegisterFlagCompletionFunc("project", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	})
	_ = root.RegisterFlagCompletionFunc("set", func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		words := func(context.Context) []string {
			var out []string
			for _, row := range settings.Table() {
				out = append(out, word(row.Name+"=", row.Help))
			}
			return out
		}
		return s.ask(cmd, words, typed), cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	})
}

func (s Sources) offering(words func(context.Context) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return s.ask(cmd, words, typed), cobra.ShellCompDirectiveNoFileComp
	}
}

// argument completes the argument that comes next, by its name in Use.
func (s Sources) argument(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	names := strings.Fields(cmd.Use)[1:]
	if len(args) >= len(names) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var words func(context.Context) []string
	switch strings.Trim(names[len(args)], "[]") {
	case "WORKFLOW":
		words = s.workflows
	case "RUN":
		words = func(ctx context.Context) []string { return s.runs(ctx, cmd.Name()) }
	case "CLAIM":
		words = s.claims
	case "KEY":
		words = func(ctx context.Context) []string { return s.questions(ctx, args[0]) }
	case "COMMAND...":
		words = func(context.Context) []string { return topics(cmd.Root()) }
	case "FILE.ts":
		return []string{"ts"}, cobra.ShellCompDirectiveFilterFileExt
	default:
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return s.ask(cmd, words, typed), cobra.ShellCompDirectiveNoFileComp
}

// ask gives what words answers in time, and what is typed begins.
func (s Sources) ask(cmd *cobra.Command, words func(context.Context) []string, typed string) []string {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer := make(chan []string, 1)
	go func() { answer <- words(ctx) }()
	var out []string
	select {
	case all := <-answer:
		for _, w := range all {
			if strings.HasPrefix(w, typed) {
				out = append(out, w)
			}
		}
	case <-ctx.Done():
	}
	return out
}

// word is one offer: foreign text in it cannot act on a terminal.
func word(name, about string) string {
	return cobra.CompletionWithDesc(redact.Line(name), redact.Line(about))
}

func (s Sources) service(ctx context.Context) *runs.Service {
	svc, err := s.Open(ctx, false)
	if err != nil {
		return nil
	}
	svc.Store.SetWait(storeWait)
	return svc
}

func (s Sources) root() string {
	root, err := project.Find(s.Deps.Env.Dir, s.Deps.Flags.Project, "")
	if err != nil {
		return ""
	}
	return root
}

func (s Sources) workflows(context.Context) []string {
	root := s.root()
	if root == "" {
		return nil
	}
	names, err := project.Workflows(root)
	if err != nil {
		return nil
	}
	var out []string
	for _, n := range names {
		out = append(out, word(n, "workflow of "+root))
	}
	return out
}

// runs are those that command has something to do with: this project's, or in no project all.
func (s Sources) runs(ctx context.Context, command string) []string {
	svc := s.service(ctx)
	if svc == nil {
		return nil
	}
	list, err := svc.List(ctx, "")
	if err != nil {
		return nil
	}
	root := s.root()
	var out []string
	for _, r := range list {
		switch {
		case root != "" && r.Root != root,
			command == "answer" && r.State != runs.Waiting,
			(command == "resume" || command == "cancel") && r.Terminal():
			continue
		}
		about := r.Workflow + ", " + r.State
		if len(r.Waiting) > 0 && r.State == runs.Waiting {
			about += ": " + r.Waiting[0].Title
		}
		out = append(out, word(r.ID, about))
	}
	return out
}

func (s Sources) claims(ctx context.Context) []string {
	svc := s.service(ctx)
	if svc == nil {
		return nil
	}
	list, err := svc.Driver.List(ctx, claims.Filter{Outstanding: true})
	if err != nil {
		return nil
	}
	var out []string
	for _, c := range list {
		out = append(out, word(c.ID, string(c.Kind)+", "+string(c.State)+", of run "+c.Run))
	}
	return out
}

func (s Sources) questions(ctx context.Context, run string) []string {
	svc := s.service(ctx)
	if svc == nil {
		return nil
	}
	r, err := svc.Get(ctx, run)
	if err != nil {
		return nil
	}
	var out []string
	for _, q := range r.Waiting {
		out = append(out, word(q.Key, q.Type+": "+q.Title))
	}
	return out
}

func (s Sources) targets(ctx context.Context) []string {
	root := s.root()
	if root == "" {
		return nil
	}
	p, err := s.Project(ctx, root)
	if err != nil {
		return nil
	}
	var out []string
	for _, t := range p.Targets {
		out = append(out, word(t.ID, t.Kind))
	}
	return out
}

// topics are what help explains.
func topics(root *cobra.Command) []string {
	out := []string{word("exit-codes", "what every exit code means"), word("environment", "settings and variables"), word("recovery", "what to do after a failure")}
	for _, c := range root.Commands() {
		if !c.Hidden {
			out = append(out, word(c.Name(), c.Short))
		}
	}
	return out
}

func (s Sources) executions(context.Context) []string { return scaffold.Executions() }
