package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func showHelp(d *Deps, cmd *cobra.Command) {
	text := helpText(cmd)
	if d.UI.JSON {
		d.UI.Schema = "laufwerk.help/1"
		_ = d.UI.Document(commandHelpDocument{cmd.CommandPath(), text})
		return
	}
	d.UI.Printf("%s", text)
}

type commandHelpDocument struct {
	Command string `json:"command"`
	Text    string `json:"text"`
}

func helpText(cmd *cobra.Command) string {
	var b strings.Builder
	about := cmd.Long
	if about == "" {
		about = cmd.Short + "."
	}
	b.WriteString(strings.TrimSpace(about) + "\n\nUsage\n  ")
	if cmd.HasSubCommands() {
		b.WriteString(cmd.CommandPath() + " COMMAND [flags]\n")
	} else {
		b.WriteString(cmd.UseLine() + " [flags]\n")
	}
	listCommands(&b, cmd)
	if cmd.Example != "" {
		b.WriteString("\nExamples\n" + indent(cmd.Example) + "\n")
	}
	listFlags(&b, "Flags", cmd.LocalNonPersistentFlags())
	if own := cmd.PersistentFlags(); !cmd.HasParent() {
		listFlags(&b, "Flags of every command", own)
		b.WriteString("\nMore: laufwerk COMMAND --help, laufwerk help exit-codes|environment|recovery\n")
	} else {
		b.WriteString("\nFlags of every command: laufwerk --help\n")
	}
	return b.String()
}

func listCommands(b *strings.Builder, cmd *cobra.Command) {
	sections := cmd.Groups()
	if len(sections) == 0 {
		sections = []*cobra.Group{{Title: "Commands"}}
	}
	for _, s := range sections {
		title := "\n" + s.Title + "\n"
		for _, c := range cmd.Commands() {
			if c.GroupID == s.ID && !c.Hidden {
				b.WriteString(title + "  " + pad(c.Name(), 12) + c.Short + "\n")
				title = ""
			}
		}
	}
}

func listFlags(b *strings.Builder, title string, flags *pflag.FlagSet) {
	head := "\n" + title + "\n"
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		name, usage := FlagText(f)
		b.WriteString(head + "  " + pad(name, 24) + usage + "\n")
		head = ""
	})
}

// FlagText is how a flag is given, with its value, and what it does.
func FlagText(f *pflag.Flag) (name, usage string) {
	value, usage := pflag.UnquoteUsage(f)
	name = "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	if f.NoOptDefVal == "" && value != "" {
		name += " " + value
	}
	return name, usage
}

func indent(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, l := range lines {
		if l != "" {
			lines[i] = "  " + l
		}
	}
	return strings.Join(lines, "\n")
}

func pad(s string, n int) string { return s + strings.Repeat(" ", max(1, n-len(s))) }
