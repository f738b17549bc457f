// Package help is the command `laufwerk help`: commands, and topics that are no command.
package help

import (
	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/cli"
	"github.com/laufwerk/laufwerk/internal/cli/render"
	"github.com/laufwerk/laufwerk/internal/suggest"
)

// Options of the command.
type Options struct {
	UI    *render.UI
	Root  *cobra.Command
	Words []string
}

// New makes the command.
func New(d *cli.Deps) *cobra.Command {
	opts := &Options{UI: d.UI}
	return &cobra.Command{
		Use:   "help [COMMAND...]",
		Short: "Explain a command or a topic: exit-codes, environment, recovery",
		Long: `Explain a command, or a topic:

  exit-codes    what every exit code and error.code means
  environment   settings, where they come from, and other variables
  recovery      what to do after a failure`,
		Example: "$ laufwerk help run\n$ laufwerk help exit-codes",
		GroupID: cli.SectionOther,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.Root, opts.Words = cmd.Root(), args
			return run(opts)
		},
	}
}

// topic is a page that is no command: a text, and the same as data.
type topic struct {
	text func(*render.UI)
	data func() any
}

func topics() map[string]topic {
	return map[string]topic{
		"exit-codes":  {exitCodesText, exitCodesData},
		"environment": {environmentText, environmentData},
		"recovery":    {recoveryText, recoveryData},
	}
}

func run(opts *Options) error {
	if len(opts.Words) == 1 {
		if t, ok := topics()[opts.Words[0]]; ok {
			t.text(opts.UI)
			return opts.UI.Document(t.data())
		}
	}
	cmd, err := named(opts.Root, opts.Words)
	if err != nil {
		return err
	}
	return cmd.Help()
}

func named(root *cobra.Command, words []string) (*cobra.Command, error) {
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
			for name := range topics() {
				known = append(known, name)
			}
		}
		err := cli.Usage(root, "there is no help for %q: %s has no such command, and no topic has this name", word, cmd.CommandPath())
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
