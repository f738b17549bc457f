package app_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/e2e"
)

func groups(cmd *cobra.Command) []*cobra.Command {
	if !cmd.HasSubCommands() {
		return nil
	}
	out := []*cobra.Command{cmd}
	for _, c := range cmd.Commands() {
		out = append(out, groups(c)...)
	}
	return out
}

// C51: an unknown word under a group is a usage error with a suggestion, with flags before and after it.
func TestUnknownWordsUnderEveryGroup(t *testing.T) {
	for _, group := range groups(e2e.CommandTree(t)) {
		path := strings.Fields(group.CommandPath())[1:]
		near := group.Commands()[0].Name()
		for _, tail := range [][]string{{near + "x"}, {"--no-input", near + "x"}, {near + "x", "--no-input"}, {"--project", "x", near + "x"}, {near + "x", "--nosuch"}} {
			args := append(append([]string{}, path...), tail...)
			code, stdout, stderr := e2e.Call(t, args...)
			if code != 2 || stdout != "" || !strings.Contains(stderr, `unknown command "`+near+`x"`) || !strings.Contains(stderr, "next: "+group.CommandPath()+" "+near) {
				t.Errorf("%q: exit %d, stdout %q, stderr %q", args, code, stdout, stderr)
			}
		}
		if code, stdout, _ := e2e.Call(t, append(append([]string{"--json"}, path...), "nosuch")...); code != 2 || jsonCode(stdout) != "usage" {
			t.Errorf("%s nosuch --json: exit %d, %s", group.CommandPath(), code, stdout)
		}
	}
}

func TestUnknownFlagsOfEveryCommand(t *testing.T) {
	for _, cmd := range e2e.LeafCommands(e2e.CommandTree(t)) {
		args := append(strings.Fields(cmd.CommandPath())[1:], "--no-inptu")
		code, stdout, stderr := e2e.Call(t, args...)
		if code != 2 || stdout != "" || !strings.Contains(stderr, "did you mean --no-input?") {
			t.Errorf("%q: exit %d, stdout %q, stderr %q", args, code, stdout, stderr)
		}
		if code, stdout, _ := e2e.Call(t, append(args, "--json")...); code != 2 || jsonCode(stdout) != "usage" {
			t.Errorf("%q --json: exit %d, %s", args, code, stdout)
		}
	}
}

func TestEveryCommandExplainsItself(t *testing.T) {
	for _, cmd := range e2e.LeafCommands(e2e.CommandTree(t)) {
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: Short is %q; it is a phrase without a period", cmd.CommandPath(), cmd.Short)
		}
		if !strings.Contains(cmd.Example, "$ "+cmd.CommandPath()) {
			t.Errorf("%s has no example that runs it", cmd.CommandPath())
		}
		if cmd.Parent() == cmd.Root() && cmd.GroupID == "" {
			t.Errorf("%s is in no section of the help", cmd.CommandPath())
		}
		code, stdout, stderr := e2e.Call(t, append(strings.Fields(cmd.CommandPath())[1:], "--help")...)
		if code != 0 || stderr != "" || !strings.Contains(stdout, "Usage\n  "+cmd.CommandPath()) || !strings.Contains(stdout, " help for "+cmd.CommandPath()+"\n") {
			t.Errorf("%s --help: exit %d, stderr %q, %s", cmd.CommandPath(), code, stderr, stdout)
		}
	}
}

func jsonCode(stdout string) string {
	var doc struct {
		Schema string
		Error  struct{ Code string }
	}
	if err := json.Unmarshal([]byte(stdout), &doc); err != nil || doc.Schema == "" {
		return "not a document: " + stdout
	}
	return doc.Error.Code
}
