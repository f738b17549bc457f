package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/app"
	"github.com/laufwerk/laufwerk/internal/cli"
	"github.com/laufwerk/laufwerk/internal/cli/settings"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system"
)

// The machine contract, over whatever the command tree holds: a command that is added is held to it without a line here.

// unasked is a stdin that must not be read: without a terminal nobody is asked anything.
type unasked struct{ read bool }

func (u *unasked) Read([]byte) (int, error) {
	u.read = true
	return 0, io.EOF
}

// outcome is how a command ended, called as a program calls it: no terminal, and a home and a directory of its own.
type outcome struct {
	code           int
	stdout, stderr string
	asked          bool
}

func called(t *testing.T, vars map[string]string, out io.Writer, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	in := &unasked{}
	env := &system.Env{Args: args, Vars: map[string]string{"HOME": t.TempDir()}, Dir: t.TempDir(), In: in, Out: &stdout, Err: &stderr, Now: time.Now}
	for k, v := range vars {
		env.Vars[k] = v
	}
	if out != nil {
		env.Out = out
	}
	code := app.Main(context.Background(), env)
	return outcome{code, stdout.String(), stderr.String(), in.read}
}

// arguments are values for the arguments that a command names, none of which is there.
func arguments(cmd *cobra.Command) []string {
	args := strings.Fields(cmd.CommandPath())[1:]
	for _, name := range strings.Fields(cmd.Use)[1:] {
		switch {
		case strings.HasPrefix(name, "["):
		case name == "SHELL":
			args = append(args, "bash")
		default:
			args = append(args, "nosuch")
		}
	}
	return args
}

// endsAsDocumented checks one JSON outcome against the table of failures and the schema of the command.
func endsAsDocumented(t *testing.T, cmd *cobra.Command, o outcome) {
	t.Helper()
	if o.stderr != "" {
		t.Errorf("stderr has %q: with --json everything is in the document", o.stderr)
	}
	if o.asked {
		t.Error("stdin was read without a terminal")
	}
	lines := strings.Split(strings.TrimSuffix(o.stdout, "\n"), "\n")
	for i, line := range lines {
		var doc struct {
			Schema     string `json:"schema"`
			Error      *struct{ Code, Message, Hint *string }
			Conditions *[]failure.Condition `json:"conditions"`
		}
		if err := json.Unmarshal([]byte(line), &doc); err != nil {
			t.Fatalf("line %d is no document: %v\n%s", i+1, err, o.stdout)
		}
		if doc.Schema != cli.Schema(cmd) {
			t.Errorf("the schema is %q, want %q", doc.Schema, cli.Schema(cmd))
		}
		last := i == len(lines)-1
		switch {
		case o.code == 0 && doc.Error != nil, o.code != 0 && last && doc.Error == nil:
			t.Errorf("exit %d with %s", o.code, line)
		case o.code != 0 && last:
			if doc.Error.Code == nil || doc.Error.Message == nil || doc.Error.Hint == nil || *doc.Error.Message == "" || doc.Conditions == nil {
				t.Fatalf("the failure has a part missing: %s", line)
			}
			if exit, known := exits()[failure.Kind(*doc.Error.Code)]; !known || exit != o.code {
				t.Errorf("exit %d with the code %q, which stands for %d (%t)", o.code, *doc.Error.Code, exit, known)
			}
		}
	}
}

func exits() map[failure.Kind]int {
	out := map[failure.Kind]int{}
	for _, row := range failure.Table() {
		out[row.Kind] = row.Exit
	}
	return out
}

func TestContract(t *testing.T) {
	for _, cmd := range e2e.LeafCommands(e2e.CommandTree(t)) {
		t.Run(strings.ReplaceAll(cmd.CommandPath(), " ", "_"), func(t *testing.T) {
			t.Parallel()
			args := arguments(cmd)
			asJSON := called(t, nil, nil, append(slices.Clone(args), "--json")...)
			endsAsDocumented(t, cmd, asJSON)

			asText := called(t, nil, nil, args...)
			if asText.code != asJSON.code || asText.asked {
				t.Errorf("as text exit %d, as JSON %d; asked: %t", asText.code, asJSON.code, asText.asked)
			}
			if asText.code != 0 && !strings.Contains(asText.stderr, "error: ") {
				t.Errorf("exit %d without an error: %q", asText.code, asText.stderr)
			}

			// A reader that goes away changes nothing.
			for _, extra := range [][]string{nil, {"--json"}} {
				if cut := called(t, nil, closedPipe{}, append(slices.Clone(args), extra...)...); cut.code != asText.code || strings.Contains(cut.stderr, "standard output") {
					t.Errorf("with a cut pipe exit %d, not %d: %s", cut.code, asText.code, cut.stderr)
				}
			}

			// A failure before the command begins is a document of the command, too.
			broken := called(t, map[string]string{"LAUFWERK_SCRIPT_MEMORY": "none"}, nil, append(slices.Clone(args), "--json")...)
			endsAsDocumented(t, cmd, broken)
			if unknown := called(t, nil, nil, append(slices.Clone(args), "--json", "--set", "nosuch=1")...); unknown.code != failure.ExitUsage {
				t.Errorf("--set nosuch=1: exit %d", unknown.code)
			} else {
				endsAsDocumented(t, cmd, unknown)
			}
		})
	}
}

// closedPipe is a stdout that nobody reads any more.
type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) {
	return 0, &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.EPIPE}
}

// TestExamplesParse holds that what --help shows can be typed: the command, its flags, the number of its arguments.
func TestExamplesParse(t *testing.T) {
	for _, cmd := range append(e2e.LeafCommands(e2e.CommandTree(t)), e2e.CommandTree(t)) {
		for line := range strings.Lines(cmd.Example) {
			line = strings.TrimSpace(line)
			typed, ok := strings.CutPrefix(line, "$ ")
			if !ok {
				if line != "" && !strings.HasPrefix(line, "#") {
					t.Errorf("%s: %q is neither a comment nor a command", cmd.CommandPath(), line)
				}
				continue
			}
			if err := parses(t, typed); err != nil {
				t.Errorf("%s: %q: %v", cmd.CommandPath(), typed, err)
			}
		}
	}
}

func parses(t *testing.T, typed string) error {
	words, err := shellWords(typed)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(words, func(w string) bool { return w == ">" || w == "|" || w == "&&" }); i >= 0 {
		words = words[:i]
	}
	if words[0] != "laufwerk" {
		return fmt.Errorf("it begins with %s", words[0])
	}
	root := e2e.CommandTree(t)
	cmd, rest, err := root.Find(words[1:])
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

// shellWords splits a line at blanks, with quotes.
func shellWords(line string) (words []string, err error) {
	word, begun, quote := "", false, rune(0)
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, begun = r, true
		case quote == 0 && r == ' ':
			if begun {
				words = append(words, word)
			}
			word, begun = "", false
		default:
			word += string(r)
			begun = true
		}
	}
	if quote != 0 {
		return nil, errors.New("a quotation does not end")
	}
	if begun {
		words = append(words, word)
	}
	return words, nil
}

// TestFourSources sets every setting in each of its sources, with all weaker ones set to something else.
func TestFourSources(t *testing.T) {
	values := map[string][3]string{ // in the file, the variable, the flag
		settings.Home: {"/tmp/file", "/tmp/variable", "/tmp/flag"}, settings.Color: {"always", "never", "auto"},
		settings.Debug: {"true", "false", "true"}, settings.ScriptMemory: {"65MiB", "66MiB", "67MiB"},
		settings.ScriptConfigTime: {"11s", "12s", "13s"}, settings.ScriptStepTime: {"11s", "12s", "13s"},
		settings.WriteBackMaxFiles: {"11", "12", "13"}, settings.WriteBackMaxBytes: {"11", "12", "13"},
		settings.DockerHost: {"unix:///tmp/file", "unix:///tmp/variable", "unix:///tmp/flag"},
	}
	for _, row := range settings.Table() {
		v, ok := values[row.Name]
		if !ok {
			t.Errorf("%s: no values to try", row.Name)
			continue
		}
		t.Run(row.Name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.toml")
			section, key, nested := strings.Cut(row.Name, ".")
			text := fmt.Sprintf("%s = %q\n", row.Name, v[0])
			if nested {
				text = fmt.Sprintf("[%s]\n%s = %q\n", section, key, v[0])
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			vars := map[string]string{}
			is := func(value, origin string, args ...string) {
				t.Helper()
				o := called(t, vars, nil, append([]string{"config", "--json"}, args...)...)
				var doc struct {
					Settings []struct{ Name, Value, Origin, Default string }
				}
				if err := json.Unmarshal([]byte(o.stdout), &doc); err != nil {
					t.Fatalf("%v\n%s", err, o.stdout)
				}
				i := slices.IndexFunc(doc.Settings, func(s struct{ Name, Value, Origin, Default string }) bool { return s.Name == row.Name })
				if i < 0 || doc.Settings[i].Value != value || doc.Settings[i].Origin != origin || doc.Settings[i].Default != row.Default {
					t.Errorf("want %s from %s, got %+v", value, origin, doc.Settings)
				}
			}
			is(row.Default, "default")
			vars[settings.FileEnv] = file
			is(v[0], file)
			vars[row.Env()] = v[1]
			is(v[1], row.Env())
			is(v[2], "--set", "--set", row.Name+"="+v[2])
		})
	}
}

// TestExitCodesAreTheTopic compares the table of failures with what `help exit-codes` says.
func TestExitCodesAreTheTopic(t *testing.T) {
	o := called(t, nil, nil, "help", "exit-codes", "--json")
	var doc struct {
		Exits []struct {
			Code    int
			Meaning string
			Kinds   []failure.Kind `json:"errorCodes"`
		}
	}
	if err := json.Unmarshal([]byte(o.stdout), &doc); err != nil {
		t.Fatal(err)
	}
	said := map[failure.Kind]int{}
	for _, e := range doc.Exits {
		if e.Meaning == "" {
			t.Errorf("%d has no meaning", e.Code)
		}
		for _, k := range e.Kinds {
			said[k] = e.Code
		}
	}
	if want := exits(); fmt.Sprint(said) != fmt.Sprint(want) {
		t.Errorf("the topic says %v, the table is %v", said, want)
	}
}
