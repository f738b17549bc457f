// Package completion is the command `laufwerk completion`, and what shells are told while somebody types: workflows, runs,
// claims, targets, questions, settings, each with a description.
package completion

import (
	"bytes"
	"slices"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/cli"
	"github.com/laufwerk/laufwerk/internal/cli/render"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/suggest"
)

// Options of the command.
type Options struct {
	UI    *render.UI
	Root  *cobra.Command
	Shell string
}

// Shells are those that there is a script for.
func Shells() []string { return []string{"bash", "zsh", "fish", "powershell"} }

// New makes the command.
func New(d *cli.Deps) *cobra.Command {
	opts := &Options{UI: d.UI}
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print the script that completes laufwerk commands in a shell: bash, zsh, fish, powershell",
		Long: `Print the script that completes laufwerk's commands, flags, workflows, runs, claims and targets, with descriptions.

  bash        needs the package bash-completion
              laufwerk completion bash > ~/.local/share/bash-completion/completions/laufwerk
  zsh         into a directory of $fpath, before compinit
              laufwerk completion zsh > ~/.zfunc/_laufwerk
  fish        laufwerk completion fish > ~/.config/fish/completions/laufwerk.fish
  powershell  laufwerk completion powershell | Out-String | Invoke-Expression`,
		Example:   "$ laufwerk completion bash > ~/.local/share/bash-completion/completions/laufwerk",
		GroupID:   cli.SectionOther,
		ValidArgs: Shells(),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.Root, opts.Shell = cmd.Root(), args[0]
			if !slices.Contains(Shells(), opts.Shell) {
				near := suggest.Closest(opts.Shell, Shells())
				if near == "" {
					near = Shells()[0]
				}
				return cli.Usage(cmd, "there is no completion for %q: expected bash, zsh, fish or powershell", opts.Shell).
					WithHint("laufwerk completion %s", near)
			}
			return run(opts)
		},
	}
}

func run(opts *Options) error {
	var b bytes.Buffer
	generate := map[string]func() error{
		"bash":       func() error { return opts.Root.GenBashCompletionV2(&b, true) },
		"zsh":        func() error { return opts.Root.GenZshCompletion(&b) },
		"fish":       func() error { return opts.Root.GenFishCompletion(&b, true) },
		"powershell": func() error { return opts.Root.GenPowerShellCompletionWithDesc(&b) },
	}
	if err := generate[opts.Shell](); err != nil {
		return failure.Wrap(err, failure.Internal, "make the script for %s", opts.Shell)
	}
	opts.UI.Printf("%s", b.String())
	return opts.UI.Document(map[string]string{"shell": opts.Shell, "script": b.String()})
}
