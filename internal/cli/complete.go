package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/cli/settings"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/project"
	"github.com/laufwerk/laufwerk/internal/redact"
	"github.com/laufwerk/laufwerk/internal/runs"
	"github.com/laufwerk/laufwerk/internal/scaffold"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/targets"
	"github.com/laufwerk/laufwerk/internal/workflow"
)

// IsCompletion says whether a first argument is a shell that asks what could be typed next.
func IsCompletion(arg string) bool {
	return arg == cobra.ShellCompRequestCmd || arg == cobra.ShellCompNoDescRequestCmd
}

// Complete answers a shell that asks what could be typed next. Errors are not printed: they would appear in the line that
// somebody is typing.
func Complete(ctx context.Context, env *system.Env, commands func(*Deps) Commands) int {
	d := newDeps(env)
	t := newTree(d, commands(d))
	t.addAll()
	root := t.root
	words := completer{d}
	words.attach(root.Commands())
	words.attachGlobal(root)
	walkCommands(root, func(cmd *cobra.Command) { // the marks in a flag's words name its value, and are for help alone
		for _, flags := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
			flags.VisitAll(func(f *pflag.Flag) { _, f.Usage = pflag.UnquoteUsage(f) })
		}
	})
	root.SetOut(env.Out)
	root.SetErr(env.Err)
	root.SetArgs(env.Args)
	defer func() { _ = recover() }()
	_ = root.ExecuteContext(ctx)
	return failure.ExitDone
}

// A person waits for the answer: words that are not found within these times are not offered.
const (
	completionTimeout   = 1500 * time.Millisecond
	completionStoreWait = 250 * time.Millisecond
)

type completer struct {
	*Deps
}

// attach makes the arguments of commands complete by their names in Use, and some flags by their own names.
func (c completer) attach(commands []*cobra.Command) {
	for _, cmd := range commands {
		c.attach(cmd.Commands())
		if cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 {
			cmd.ValidArgsFunction = c.argument
		}
		for flag, words := range map[string]func(context.Context) []string{"target": c.targetWords, "execution": c.executionWords} {
			if cmd.Flags().Lookup(flag) != nil {
				_ = cmd.RegisterFlagCompletionFunc(flag, c.offer(words)) // fails only for a flag that is not there
			}
		}
	}
}

func (c completer) attachGlobal(root *cobra.Command) {
	_ = root.RegisterFlagCompletionFunc("project", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	})
	_ = root.RegisterFlagCompletionFunc("set", func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		words := func(context.Context) []string {
			var out []string
			for _, row := range settings.Table() {
				out = append(out, completionWord(row.Name+"=", row.Help))
			}
			return out
		}
		return c.ask(cmd, words, typed), cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	})
}

func (c completer) offer(words func(context.Context) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return c.ask(cmd, words, typed), cobra.ShellCompDirectiveNoFileComp
	}
}

// argument completes the next argument, by its name in Use.
func (c completer) argument(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	names := strings.Fields(cmd.Use)[1:]
	if len(args) >= len(names) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var words func(context.Context) []string
	switch strings.Trim(names[len(args)], "[]") {
	case "WORKFLOW":
		words = c.workflowWords
	case "RUN":
		words = func(ctx context.Context) []string { return c.runWords(ctx, cmd.Name()) }
	case "CLAIM":
		words = c.claimWords
	case "KEY":
		words = func(ctx context.Context) []string { return c.questionWords(ctx, args[0]) }
	case "COMMAND...":
		words = func(context.Context) []string { return helpWords(cmd.Root()) }
	case "FILE.ts":
		return []string{"ts"}, cobra.ShellCompDirectiveFilterFileExt
	default:
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.ask(cmd, words, typed), cobra.ShellCompDirectiveNoFileComp
}

// ask returns those of words that begin with what was typed, or none if words takes too long.
func (c completer) ask(cmd *cobra.Command, words func(context.Context) []string, typed string) []string {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
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

// completionWord is a word with its description. Control characters in them are escaped.
func completionWord(name, about string) string {
	return cobra.CompletionWithDesc(redact.Line(name), redact.Line(about))
}

func (c completer) openRuns(ctx context.Context) *runs.Service {
	svc, err := c.Open(ctx, false)
	if err != nil {
		return nil
	}
	svc.Store.SetWait(completionStoreWait)
	return svc
}

func (c completer) projectRoot() string {
	root, err := project.Find(c.Env.Dir, c.Flags.Project, "")
	if err != nil {
		return ""
	}
	return root
}

// wordsOf makes a word of each thing in a list that could be read; word is "" for one that is not offered.
func wordsOf[T any](list []T, err error, word func(T) string) (out []string) {
	if err != nil {
		return nil
	}
	for _, one := range list {
		if w := word(one); w != "" {
			out = append(out, w)
		}
	}
	return out
}

func (c completer) workflowWords(context.Context) []string {
	root := c.projectRoot()
	if root == "" {
		return nil
	}
	names, err := project.Workflows(root)
	return wordsOf(names, err, func(name string) string { return completionWord(name, "workflow of "+root) })
}

// runWords are the runs that command can be used on: those of this project or, outside of a project, all.
func (c completer) runWords(ctx context.Context, command string) []string {
	svc := c.openRuns(ctx)
	if svc == nil {
		return nil
	}
	list, err := svc.List(ctx, "")
	root := c.projectRoot()
	return wordsOf(list, err, func(r runs.Run) string {
		switch {
		case root != "" && r.Root != root,
			command == "answer" && r.State != runs.Waiting,
			(command == "resume" || command == "cancel") && r.Terminal():
			return ""
		}
		about := r.Workflow + ", " + r.State
		if len(r.Waiting) > 0 && r.State == runs.Waiting {
			about += ": " + r.Waiting[0].Title
		}
		return completionWord(r.ID, about)
	})
}

func (c completer) claimWords(ctx context.Context) []string {
	svc := c.openRuns(ctx)
	if svc == nil {
		return nil
	}
	list, err := svc.Driver.List(ctx, claims.Filter{Outstanding: true})
	return wordsOf(list, err, func(c claims.Claim) string {
		return completionWord(c.ID, string(c.Kind)+", "+string(c.State)+", of run "+c.Run)
	})
}

func (c completer) questionWords(ctx context.Context, run string) []string {
	svc := c.openRuns(ctx)
	if svc == nil {
		return nil
	}
	r, err := svc.Get(ctx, run)
	return wordsOf(r.Waiting, err, func(q workflow.Question) string { return completionWord(q.Key, q.Type+": "+q.Title) })
}

func (c completer) targetWords(ctx context.Context) []string {
	root := c.projectRoot()
	if root == "" {
		return nil
	}
	p, err := c.Projects.Load(ctx, root)
	if err != nil {
		return nil
	}
	return wordsOf(p.Targets, nil, func(t targets.Definition) string { return completionWord(t.ID, t.Kind) })
}

func helpWords(root *cobra.Command) []string {
	out := []string{completionWord("exit-codes", "what every exit code means"), completionWord("environment", "settings and variables"), completionWord("recovery", "what to do after a failure")}
	for _, c := range root.Commands() {
		if !c.Hidden {
			out = append(out, completionWord(c.Name(), c.Short))
		}
	}
	return out
}

func (c completer) executionWords(context.Context) []string { return scaffold.Executions() }
