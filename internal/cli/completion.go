package cli

import (
	"bytes"
	"slices"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/suggest"
)

type completionOptions struct {
	*Deps
	Root  *cobra.Command
	Shell string
}

func completionShells() []string { return []string{"bash", "zsh", "fish", "powershell"} }

func newCompletion(d *Deps) *cobra.Command {
	o := &completionOptions{Deps: d}
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print the completion script for a shell: bash, zsh, fish, powershell",
		Long: `Print the script that completes laufwerk's commands, flags, workflows, runs, claims and targets, with descriptions.

  bash        needs the package bash-completion
              laufwerk completion bash > ~/.local/share/bash-completion/completions/laufwerk
  zsh         into a directory of $fpath, before compinit
              laufwerk completion zsh > ~/.zfunc/_laufwerk
  fish        laufwerk completion fish > ~/.config/fish/completions/laufwerk.fish
  powershell  laufwerk completion powershell | Out-String | Invoke-Expression`,
		Example:   "$ laufwerk completion bash > ~/.local/share/bash-completion/completions/laufwerk",
		GroupID:   sectionOther,
		ValidArgs: completionShells(),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Root, o.Shell = cmd.Root(), args[0]
			if !slices.Contains(completionShells(), o.Shell) {
				near := suggest.Closest(o.Shell, completionShells())
				if near == "" {
					near = completionShells()[0]
				}
				return usageError(cmd, "there is no completion for %q: expected bash, zsh, fish or powershell", o.Shell).
					WithHint("laufwerk completion %s", near)
			}
			return runCompletion(o)
		},
	}
}

type completionDocument struct {
	Script string `json:"script"`
	Shell  string `json:"shell"`
}

func runCompletion(o *completionOptions) error {
	var b bytes.Buffer
	generate := map[string]func() error{
		"bash":       func() error { return o.Root.GenBashCompletionV2(&b, true) },
		"zsh":        func() error { return o.Root.GenZshCompletion(&b) },
		"fish":       func() error { return o.Root.GenFishCompletion(&b, true) },
		"powershell": func() error { return o.Root.GenPowerShellCompletionWithDesc(&b) },
	}
	if err := generate[o.Shell](); err != nil {
		return failure.Wrap(err, failure.Internal, "make the script for %s", o.Shell)
	}
	o.UI.Printf("%s", b.String())
	return o.UI.Document(completionDocument{Script: b.String(), Shell: o.Shell})
}
