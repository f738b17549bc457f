package docs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/cli"
	"github.com/laufwerk/laufwerk/internal/testkit"
)

const generated = "Made from the command tree by make update-commands: do not edit."

// TestCommandPagesAreCurrent holds that docs/commands and docs/man are what the command tree says. make update-commands
// rewrites them.
func TestCommandPagesAreCurrent(t *testing.T) {
	pages := map[string]string{}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
		pages["commands/"+name+".md"] = markdown(cmd)
		pages["man/"+name+".1"] = manual(cmd)
		for _, c := range cmd.Commands() {
			if !c.Hidden {
				walk(c)
			}
		}
	}
	walk(e2e.CommandTree(t))
	docs := filepath.Join(e2e.RepositoryRoot, "docs")
	for _, dir := range []string{"commands", "man"} {
		there, _ := filepath.Glob(filepath.Join(docs, dir, "*"))
		for _, path := range there {
			if pages[dir+"/"+filepath.Base(path)] == "" {
				if !*e2e.Update {
					t.Errorf("%s is the page of no command: make update-commands", path)
				} else if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for name, text := range pages {
		path := filepath.Join(docs, name)
		old, err := os.ReadFile(path)
		switch {
		case err == nil && string(old) == text:
		case *e2e.Update:
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("docs/%s is not what the command says of itself: make update-commands", name)
		}
	}
}

// TestManualPagesAreWellFormed asks the formatter of manual pages, where there is one.
func TestManualPagesAreWellFormed(t *testing.T) {
	groff, err := exec.LookPath("groff")
	testkit.Need(t, "groff", err == nil, "it formats manual pages")
	pages, _ := filepath.Glob(filepath.Join(e2e.RepositoryRoot, "docs/man/*.1"))
	for _, page := range pages {
		if out, err := exec.Command(groff, "-man", "-Tutf8", "-ww", "-z", page).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", page, err, out)
		}
	}
}

func about(cmd *cobra.Command) string {
	if cmd.Long == "" {
		return cmd.Short + "."
	}
	return strings.TrimSpace(cmd.Long)
}

func synopsis(cmd *cobra.Command) string {
	if cmd.HasSubCommands() {
		return cmd.CommandPath() + " COMMAND [flags]"
	}
	return cmd.UseLine() + " [flags]"
}

// flagsOf are a command's own flags, and for the root those of every command.
func flagsOf(cmd *cobra.Command) (rows [][2]string) {
	add := func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" { // which the root's page names for all
			return
		}
		name, usage := cli.FlagText(f)
		rows = append(rows, [2]string{name, usage})
	}
	cmd.LocalNonPersistentFlags().VisitAll(add)
	if !cmd.HasParent() {
		cmd.PersistentFlags().VisitAll(add)
	}
	return rows
}

func children(cmd *cobra.Command) (out []*cobra.Command) {
	for _, c := range cmd.Commands() {
		if !c.Hidden {
			out = append(out, c)
		}
	}
	return out
}

func markdown(cmd *cobra.Command) string {
	var b strings.Builder
	page := func(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") + ".md" }
	fmt.Fprintf(&b, "<!-- %s -->\n\n# %s\n\n", generated, cmd.CommandPath())
	indented := false
	for _, line := range strings.Split(about(cmd), "\n") { // what is indented are lists that keep their shape
		if in := strings.HasPrefix(line, "  "); in != indented {
			b.WriteString("```\n")
			indented = in
		}
		b.WriteString(line + "\n")
	}
	if indented {
		b.WriteString("```\n")
	}
	fmt.Fprintf(&b, "\n```\n%s\n```\n", synopsis(cmd))
	if list := children(cmd); len(list) > 0 {
		b.WriteString("\n| command | |\n|---|---|\n")
		for _, c := range list {
			fmt.Fprintf(&b, "| [%s](%s) | %s |\n", c.CommandPath(), page(c), cell(c.Short))
		}
	}
	if rows := flagsOf(cmd); len(rows) > 0 {
		b.WriteString("\n| flag | |\n|---|---|\n")
		for _, r := range rows {
			fmt.Fprintf(&b, "| `%s` | %s |\n", r[0], cell(r[1]))
		}
	}
	if cmd.Example != "" {
		fmt.Fprintf(&b, "\n```sh\n%s\n```\n", strings.TrimSpace(cmd.Example))
	}
	if !cmd.HasSubCommands() {
		fmt.Fprintf(&b, "\nWith `--json` its documents have the schema `%s`.", cli.Schema(cmd))
	}
	if cmd.HasParent() {
		fmt.Fprintf(&b, "\nFlags of every command, and all commands: [laufwerk](laufwerk.md).\n")
	}
	return b.String()
}

// roff escapes a text: no line of it is a request, and hyphens can be copied.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}

func manual(cmd *cobra.Command) string {
	var b strings.Builder
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	fmt.Fprintf(&b, ".\\\" %s\n.TH %q 1 \"\" \"laufwerk\" \"laufwerk manual\"\n", generated, strings.ToUpper(name))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(name), roff(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", roff(synopsis(cmd)))
	b.WriteString(".SH DESCRIPTION\n")
	verbatim := false
	for _, line := range strings.Split(about(cmd), "\n") {
		in := strings.HasPrefix(line, "  ")
		switch {
		case in && !verbatim:
			b.WriteString(".nf\n")
		case !in && verbatim:
			b.WriteString(".fi\n")
		}
		verbatim = in
		if line == "" {
			b.WriteString(".PP\n")
			continue
		}
		b.WriteString(roff(line) + "\n")
	}
	if verbatim {
		b.WriteString(".fi\n")
	}
	if list := children(cmd); len(list) > 0 {
		b.WriteString(".SH COMMANDS\n")
		for _, c := range list {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(c.CommandPath()), roff(c.Short))
		}
	}
	if rows := flagsOf(cmd); len(rows) > 0 {
		b.WriteString(".SH OPTIONS\n")
		for _, r := range rows {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(r[0]), roff(r[1]))
		}
	}
	if cmd.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(strings.TrimSpace(cmd.Example)))
	}
	b.WriteString(".SH SEE ALSO\n")
	if p := cmd.Parent(); p != nil {
		fmt.Fprintf(&b, ".BR %s (1).\nExit codes: laufwerk help exit\\-codes.\n", roff(strings.ReplaceAll(p.CommandPath(), " ", "-")))
	} else {
		b.WriteString("laufwerk help exit\\-codes, laufwerk help environment, laufwerk help recovery.\n")
	}
	return b.String()
}
