// Package e2e is the harness of the end-to-end tests, which are the folders below, one for each target or kind of test: a machine
// with a project, a home and an agent, on which laufwerk is started, killed and asked.
package e2e

import (
	"bytes"
	"context"
	"flag"
	"io"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/app"
	"github.com/laufwerk/laufwerk/internal/cli"
	"github.com/laufwerk/laufwerk/internal/system"
)

// RepositoryRoot is the repository as the folders of tests see it.
const RepositoryRoot = "../.."

// Update asks a test to write what it would compare with.
var Update = flag.Bool("update", false, "rewrite what is compared with: in testdata/script, README.md, docs")

func runLaufwerk() { system.Exit(app.Main(context.Background(), system.FromOS())) }

// Main runs a package's tests. It makes the test binary laufwerk where a test, or laufwerk itself, starts it: coverage counts,
// nothing is stale. More are the programs that the package's tests have beside it.
func Main(m *testing.M, more map[string]func()) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "__") { // a hidden first argument of ours
		runLaufwerk()
	}
	programs := map[string]func(){"laufwerk": runLaufwerk, "measured": measuredCommand}
	maps.Copy(programs, more)
	testscript.Main(m, programs)
}

// CommandTree is the whole tree of commands.
func CommandTree(t testing.TB) *cobra.Command {
	t.Helper()
	var root *cobra.Command
	env := &system.Env{Args: []string{"help"}, Vars: map[string]string{"HOME": t.TempDir()}, Dir: t.TempDir(), In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}
	code := cli.Execute(context.Background(), env, func(d *cli.Deps) cli.Commands {
		commands := app.Commands(d)
		makeHelp := commands["help"]
		commands["help"] = func() *cobra.Command { // which has the whole tree made
			help := makeHelp()
			help.RunE = func(cmd *cobra.Command, _ []string) error {
				root = cmd.Root()
				return nil
			}
			return help
		}
		return commands
	})
	if code != 0 || root == nil {
		t.Fatalf("help: exit %d", code)
	}
	return root
}

// LeafCommands are the commands below one that do something themselves.
func LeafCommands(cmd *cobra.Command) []*cobra.Command {
	if !cmd.HasSubCommands() {
		if cmd.Hidden {
			return nil
		}
		return []*cobra.Command{cmd}
	}
	var out []*cobra.Command
	for _, c := range cmd.Commands() {
		out = append(out, LeafCommands(c)...)
	}
	return out
}

// Call runs laufwerk in this process, in a home of its own.
func Call(t testing.TB, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	env := &system.Env{Args: args, Vars: map[string]string{"HOME": t.TempDir()}, Dir: t.TempDir(), In: strings.NewReader(""), Out: &out, Err: &errs}
	return app.Main(context.Background(), env), out.String(), errs.String()
}
