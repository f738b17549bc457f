package cli

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/suggest"
)

// refuseUnknownWord refuses a word under a group that is none of its commands, wherever flags stand around it. cobra would show
// the group's help and succeed.
func refuseUnknownWord(cmd *cobra.Command, rest []string) error {
	if !cmd.HasSubCommands() {
		return nil
	}
	word, ok := firstWord(cmd, rest)
	if !ok {
		return nil
	}
	err := usageError(cmd, "unknown command %q for %q", word, cmd.CommandPath())
	if near := suggest.Closest(word, subcommands(cmd)); near != "" {
		return err.WithHint("%s %s", cmd.CommandPath(), near)
	}
	return err
}

func subcommands(cmd *cobra.Command) []string {
	var names []string
	for _, c := range cmd.Commands() {
		if !c.Hidden {
			names = append(names, c.Name())
		}
	}
	return names
}

// firstWord is the first argument that is neither a flag nor a flag's value. A flag that nobody knows ends the search: it
// is the mistake to report.
func firstWord(cmd *cobra.Command, args []string) (string, bool) {
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "--":
			return "", false
		case !strings.HasPrefix(a, "-") || a == "-":
			return a, true
		case strings.HasPrefix(a, "--") && !strings.Contains(a, "="):
			f := cmd.Flag(a[2:])
			if f == nil {
				return "", false
			}
			if f.NoOptDefVal == "" {
				i++
			}
		}
	}
	return "", false
}

func requireSubcommand(cmd *cobra.Command, _ []string) error {
	return usageError(cmd, "%s needs one of its commands: %s", cmd.CommandPath(), strings.Join(subcommands(cmd), ", "))
}

// checkPositional checks the number of arguments by the names in cmd.Use: "answer RUN KEY [VALUE]", "init [WORD...]".
func checkPositional(cmd *cobra.Command, args []string) error {
	var required []string
	optional, endless := 0, false
	for _, name := range strings.Fields(cmd.Use)[1:] {
		bare := strings.Trim(name, "[]")
		endless = endless || strings.HasSuffix(bare, "...")
		if bare == name {
			required = append(required, strings.TrimSuffix(bare, "..."))
		} else {
			optional++
		}
	}
	switch {
	case len(args) < len(required):
		return usageError(cmd, "%s needs %s", cmd.CommandPath(), strings.Join(required[len(args):], " and "))
	case !endless && len(args) > len(required)+optional:
		return usageError(cmd, "%s: unexpected argument %q", cmd.CommandPath(), args[len(required)+optional])
	}
	return nil
}

// flagError turns a mistake in a flag into a usage error that names the flag which was probably meant.
func flagError(cmd *cobra.Command, err error) error {
	if errors.Is(err, pflag.ErrHelp) || failure.As(err) != nil {
		return err
	}
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return usageError(cmd, "%s: %s", cmd.CommandPath(), err)
	}
	if short := unknown.GetSpecifiedShortnames(); short != "" {
		return usageError(cmd, "unknown flag -%s for %q", unknown.GetSpecifiedName(), cmd.CommandPath())
	}
	f := usageError(cmd, "unknown flag --%s for %q", unknown.GetSpecifiedName(), cmd.CommandPath())
	var names []string
	cmd.Flags().VisitAll(func(known *pflag.Flag) {
		if !known.Hidden {
			names = append(names, known.Name)
		}
	})
	if near := suggest.Closest(unknown.GetSpecifiedName(), names); near != "" {
		f.Message += "; did you mean --" + near + "?"
	}
	return f
}
