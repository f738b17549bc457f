package app_test

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/app"
	"github.com/laufwerk/laufwerk/internal/cli"
	"github.com/laufwerk/laufwerk/internal/system"
)

// whole has the commands under names that nobody types: a start makes them all, as there is none that it could make alone.
func whole(d *cli.Deps) cli.Commands {
	out := cli.Commands{}
	for name, construct := range app.Commands(d) {
		out["the command "+name] = construct
	}
	return out
}

// What is made of the tree is seen by nobody: any command line ends as it does with the whole tree.
func TestALazyTreeIsTheWholeTree(t *testing.T) {
	home, dir := t.TempDir(), t.TempDir()
	ends := func(commands func(*cli.Deps) cli.Commands, args []string) outcome {
		var out, errs bytes.Buffer
		in := &unasked{}
		env := &system.Env{Args: args, Vars: map[string]string{"HOME": home}, Dir: dir, In: in, Out: &out, Err: &errs, Now: time.Now}
		return outcome{cli.Execute(context.Background(), env, commands), out.String(), errs.String(), in.read}
	}
	lines := [][]string{
		{}, {""}, {"-"}, {"--"}, {"--", "version"}, {"version", "--"}, {"version", "--", "--json"}, {"-h"}, {"-h", "version"}, {"-x", "version"},
		{"--version"}, {"--version", "run"}, {"version", "--version"}, {"run", "--version"}, {"--version=maybe"}, {"--json", "--version"},
		{"--nosuch", "version", "run"}, {"--nosuch", "run", "help"}, {"--nosuch=x", "version"}, {"--project", "version"},
		{"--project", "version", "version"}, {"--project", "version", "runs", "lst"}, {"--project=x", "help", "version"}, {"--set", "a=b", "version"},
		{"--set", "color=never", "version", "--help"}, {"--set"}, {"--set", "version"}, {"--json=no", "version"}, {"--json=false", "version"}, {"--no-input", "version", "version"},
		{"versoin"}, {"versoin", "version"}, {"Version"}, {"run version"}, {"version", "run"}, {"version", "nosuch"}, {"run", "version"}, {"diff", "help"}, {"resume", "help", "--help"},
		{"help", "help"}, {"help", "completion"}, {"help", "versoin"}, {"help", "runs", "lst"}, {"help", "nosuch"}, {"help", "exit-codes"}, {"help", "--nosuch"},
		{"completion"}, {"completion", "bsh"}, {"completion", "bash"}, {"completion", "zsh", "--json"}, {"completion", "fish"}, {"completion", "powershell"},
		{"__complete", "ru"}, {"--json", "__complete", "ru"}, {"__completeNoDesc", ""}, {"config"}, {"config", "--json"}, {"types", "--nosuch"},
	}
	all := append(e2e.LeafCommands(e2e.CommandTree(t)), groups(e2e.CommandTree(t))...)
	for _, cmd := range all {
		path := strings.Fields(cmd.CommandPath())[1:]
		lines = append(lines, slices.Concat([]string{"help"}, path), slices.Concat(path, []string{"x", "--no-inptu"}))
		for _, flag := range []string{"--help", "-h", "--nosuch", "-q", "--json=maybe", "--set"} {
			lines = append(lines, slices.Concat(path, []string{flag}), slices.Concat([]string{"--json"}, path, []string{flag}),
				slices.Concat([]string{flag}, path), slices.Concat([]string{"--project", "help", "--no-input"}, path, []string{flag, "version"}))
		}
	}
	for _, args := range lines {
		if got, want := ends(app.Commands, args), ends(whole, args); got != want {
			t.Errorf("%q ends with %+v\nof the whole tree with %+v", args, got, want)
		}
	}
}

// What a start costs grows with what it is asked for, not with what there is.
func TestALazyTreeMakesTheCommandThatIsNamed(t *testing.T) {
	makes := func(args ...string) []string {
		var made []string
		recording := func(d *cli.Deps) cli.Commands {
			out := app.Commands(d)
			for name, construct := range out {
				out[name] = func() *cobra.Command {
					made = append(made, name)
					return construct()
				}
			}
			return out
		}
		env := &system.Env{Args: args, Vars: map[string]string{"HOME": t.TempDir()}, Dir: t.TempDir(), In: &unasked{}, Out: &bytes.Buffer{}, Err: &bytes.Buffer{}, Now: time.Now}
		cli.Execute(context.Background(), env, recording)
		return slices.Sorted(slices.Values(made))
	}
	names := slices.Sorted(maps.Keys(app.Commands(&cli.Deps{Env: &system.Env{}})))
	for _, name := range names {
		want := []string{name}
		if name == "help" || name == "completion" {
			want = names
		}
		for _, args := range [][]string{{name, "--help"}, {"--project", "run", name, "--help"}, {"--json", name, "--nosuch"}} {
			if got := makes(args...); !slices.Equal(got, want) {
				t.Errorf("%q makes %q, want %q", args, got, want)
			}
		}
	}
	for _, args := range [][]string{nil, {"--help"}, {"--version"}, {"nosuch"}, {"help", "run"}} {
		if got := makes(args...); !slices.Equal(got, names) {
			t.Errorf("%q makes %q, want all", args, got)
		}
	}
}
