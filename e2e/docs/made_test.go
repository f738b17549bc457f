package docs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/cli"
	"github.com/laufwerk/laufwerk/internal/scaffold"
)

var made = regexp.MustCompile(`(?s)(<!-- made: (\w+) -->\n).*?(<!-- end -->)`)

// TestMadePartsAreCurrent holds that what stands between "made" and "end" in a document is what the binary says of itself.
// make update-docs rewrites it.
func TestMadePartsAreCurrent(t *testing.T) {
	parts := map[string]func(*testing.T) string{
		"commands": commandTable, "schemas": schemaTable, "exits": exitTable, "codes": codeTable, "settings": settingsTable, "recovery": recoveryCases,
	}
	seen := map[string]bool{}
	for _, path := range documents(t) {
		old, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		now := made.ReplaceAllFunc(old, func(part []byte) []byte {
			m := made.FindSubmatch(part)
			name := string(m[2])
			if parts[name] == nil {
				t.Fatalf("%s: nothing makes %q", path, name)
			}
			seen[name] = true
			return []byte(string(m[1]) + "\n" + strings.TrimSpace(parts[name](t)) + "\n\n" + string(m[3]))
		})
		switch {
		case bytes.Equal(old, now):
		case *e2e.Update:
			if err := os.WriteFile(path, now, 0o644); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("%s is not what the binary says: make update-docs", filepath.Base(path))
		}
	}
	for name := range parts {
		if !seen[name] {
			t.Errorf("no document has the part %q", name)
		}
	}
}

// cell is text in a table of Markdown.
func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }

func commandTable(t *testing.T) string {
	out := "| command | what it does |\n|---|---|\n"
	for _, group := range e2e.CommandTree(t).Groups() {
		for _, cmd := range e2e.LeafCommands(e2e.CommandTree(t)) {
			if sectionOf(cmd) != group.ID {
				continue
			}
			_, args, _ := strings.Cut(cmd.Use, " ")
			out += fmt.Sprintf("| `%s` | %s |\n", strings.TrimSpace(cmd.CommandPath()+" "+args), cell(cmd.Short))
		}
	}
	return out
}

func sectionOf(cmd *cobra.Command) string {
	for cmd.Parent().HasParent() {
		cmd = cmd.Parent()
	}
	return cmd.GroupID
}

func schemaTable(t *testing.T) string {
	out := "| command | schema |\n|---|---|\n"
	for _, cmd := range e2e.LeafCommands(e2e.CommandTree(t)) {
		out += fmt.Sprintf("| `%s` | `%s` |\n", cmd.CommandPath(), cli.Schema(cmd))
	}
	return out
}

// topic asks the binary.
func topic(t *testing.T, name string, into any) {
	t.Helper()
	code, stdout, stderr := e2e.Call(t, "help", name, "--json")
	if code != 0 {
		t.Fatalf("help %s: exit %d, %s", name, code, stderr)
	}
	if err := json.Unmarshal([]byte(stdout), into); err != nil {
		t.Fatal(err)
	}
}

type exitTopic struct {
	Exits []struct {
		Code       int
		Meaning    string
		ErrorCodes []string
	}
}

func exitTable(t *testing.T) string {
	var doc exitTopic
	topic(t, "exit-codes", &doc)
	out := "| exit | meaning |\n|---|---|\n"
	for _, e := range doc.Exits {
		out += fmt.Sprintf("| %d | %s |\n", e.Code, cell(e.Meaning))
	}
	return out
}

func codeTable(t *testing.T) string {
	var doc exitTopic
	topic(t, "exit-codes", &doc)
	out := "| exit | meaning | `error.code` |\n|---|---|---|\n"
	for _, e := range doc.Exits {
		codes := ""
		if len(e.ErrorCodes) > 0 {
			codes = "`" + strings.Join(e.ErrorCodes, "` `") + "`"
		}
		out += fmt.Sprintf("| %d | %s | %s |\n", e.Code, cell(e.Meaning), codes)
	}
	return out
}

func settingsTable(t *testing.T) string {
	var doc struct {
		Settings []struct{ Name, Variable, Default, Expected, Help string }
	}
	topic(t, "environment", &doc)
	out := "| setting | variable | default | what it is |\n|---|---|---|---|\n"
	for _, s := range doc.Settings {
		out += fmt.Sprintf("| `%s` | `%s` | `%s` | %s: %s |\n", s.Name, s.Variable, s.Default, cell(s.Help), cell(s.Expected))
	}
	return out
}

func recoveryCases(t *testing.T) string {
	var doc struct {
		Cases []struct {
			Case, What string
			Commands   []string
		}
	}
	topic(t, "recovery", &doc)
	out := ""
	for _, c := range doc.Cases {
		out += fmt.Sprintf("## %s\n\n%s\n\n", c.Case, c.What)
		for _, command := range c.Commands {
			out += "- `" + command + "`\n"
		}
		out += "\n"
	}
	return out
}

// Who is in trouble types what stands there: each command is one, with the arguments that it needs.
func TestRecoveryNamesWholeCommands(t *testing.T) {
	var doc struct{ Cases []struct{ Commands []string } }
	topic(t, "recovery", &doc)
	n := 0
	for _, c := range doc.Cases {
		for _, line := range c.Commands {
			words, err := scaffold.Words(line)
			if err != nil || len(words) < 2 || words[0] != "laufwerk" {
				continue // codex login
			}
			n++
			cmd, rest, err := e2e.CommandTree(t).Find(words[1:])
			if err == nil && cmd.HasSubCommands() {
				err = errors.New("it is a group of commands")
			}
			if err == nil {
				err = cmd.ParseFlags(rest)
			}
			if err == nil {
				err = cmd.ValidateArgs(cmd.Flags().Args())
			}
			if err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
	}
	if n < 30 {
		t.Errorf("only %d commands were looked at", n)
	}
}
