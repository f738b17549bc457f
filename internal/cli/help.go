package cli

import (
	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/cli/render"
	"github.com/laufwerk/laufwerk/internal/suggest"
)

type helpOptions struct {
	*Deps
	Root  *cobra.Command
	Words []string
}

func newHelp(d *Deps) *cobra.Command {
	o := &helpOptions{Deps: d}
	return &cobra.Command{
		Use:   "help [COMMAND...]",
		Short: "Explain a command or a topic: exit-codes, environment, recovery",
		Long: `Explain a command, or a topic:

  exit-codes    what every exit code and error.code means
  environment   settings, where they come from, and other variables
  recovery      what to do after a failure`,
		Example: "$ laufwerk help run\n$ laufwerk help exit-codes",
		GroupID: sectionOther,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Root, o.Words = cmd.Root(), args
			return runHelp(o)
		},
	}
}

// helpTopic is a page of help that is not about a command, as text and as a document.
type helpTopic struct {
	text func(*render.UI)
	data func() any
}

func helpTopics() map[string]helpTopic {
	return map[string]helpTopic{
		"exit-codes":  {printExitCodesHelp, newExitCodesHelpDocument},
		"environment": {printEnvironmentHelp, newEnvironmentHelpDocument},
		"recovery":    {printRecoveryHelp, newRecoveryHelpDocument},
	}
}

func runHelp(o *helpOptions) error {
	if len(o.Words) == 1 {
		if t, ok := helpTopics()[o.Words[0]]; ok {
			t.text(o.UI)
			return o.UI.Document(t.data())
		}
	}
	cmd, err := findNamedCommand(o.Root, o.Words)
	if err != nil {
		return err
	}
	return cmd.Help()
}

func findNamedCommand(root *cobra.Command, words []string) (*cobra.Command, error) {
	cmd := root
next:
	for _, word := range words {
		var known []string
		for _, c := range cmd.Commands() {
			if c.Name() == word {
				cmd = c
				continue next
			}
			known = append(known, c.Name())
		}
		if cmd == root {
			for name := range helpTopics() {
				known = append(known, name)
			}
		}
		err := usageError(root, "there is no help for %q: %s has no such command, and no topic has this name", word, cmd.CommandPath())
		if near := suggest.Closest(word, known); near != "" {
			if cmd == root {
				return nil, err.WithHint("laufwerk help %s", near)
			}
			return nil, err.WithHint("%s %s --help", cmd.CommandPath(), near)
		}
		return nil, err
	}
	return cmd, nil
}
