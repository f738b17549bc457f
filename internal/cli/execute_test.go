package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system"
)

// execute runs a tree of one command whose RunE is given.
func execute(t *testing.T, vars map[string]string, use string, runE func(*cobra.Command, []string) error, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	all := map[string]string{"HOME": t.TempDir()}
	for k, v := range vars {
		all[k] = v
	}
	env := &system.Env{Args: args, Vars: all, Dir: "/", Out: &out, Err: &errs}
	code = Execute(context.Background(), env, func(*Deps) Commands {
		return Commands{
			"one": func() *cobra.Command { return &cobra.Command{Use: use, Short: "Do one thing", RunE: runE} },
			"group": func() *cobra.Command {
				return newGroup("group", "Hold things", &cobra.Command{Use: "inner", Short: "Do another", RunE: runE})
			},
		}
	})
	return code, out.String(), errs.String()
}

func TestExitCodesComeFromTheKindOfTheFailure(t *testing.T) {
	for _, row := range failure.Table() {
		code, _, stderr := execute(t, nil, "one", func(*cobra.Command, []string) error { return failure.New(row.Kind, "because") }, "one")
		if code != row.Exit || !strings.Contains(stderr, "error: because") {
			t.Errorf("%s: exit %d, want %d; %s", row.Kind, code, row.Exit, stderr)
		}
	}
	if code, _, _ := execute(t, nil, "one", func(*cobra.Command, []string) error { return errors.New("foreign") }, "one"); code != 1 {
		t.Errorf("a foreign error: exit %d", code)
	}
}

func TestAPanicIsAnInternalFailure(t *testing.T) {
	boom := func(*cobra.Command, []string) error { panic("boom\x1b") }
	code, _, stderr := execute(t, nil, "one", boom, "one")
	if code != 1 || !strings.Contains(stderr, `laufwerk itself failed: boom\x1b`) || strings.Contains(stderr, "goroutine") || !strings.Contains(stderr, "LAUFWERK_DEBUG=true laufwerk one") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	code, stdout, stderr := execute(t, map[string]string{"LAUFWERK_DEBUG": "true"}, "one", boom, "one", "--json")
	if code != 1 || !strings.Contains(stdout, `"code":"internal"`) || !strings.Contains(stderr, "goroutine") {
		t.Errorf("exit %d, stdout %s, stderr %s", code, stdout, stderr)
	}
}

func TestArgumentsAreCountedByTheirNames(t *testing.T) {
	for _, c := range []struct {
		use, args, problem string
	}{
		{"one", "one", ""},
		{"one", "one a", `unexpected argument "a"`},
		{"one RUN KEY [VALUE]", "one r", "needs KEY"},
		{"one RUN KEY [VALUE]", "one", "needs RUN and KEY"},
		{"one RUN KEY [VALUE]", "one r k", ""},
		{"one RUN KEY [VALUE]", "one r k v", ""},
		{"one RUN KEY [VALUE]", "one r k v w", `unexpected argument "w"`},
		{"one [RUN...]", "one", ""},
		{"one [RUN...]", "one a b c", ""},
		{"one RUN...", "one", "needs RUN"},
		{"one RUN...", "one a b", ""},
	} {
		code, _, stderr := execute(t, nil, c.use, func(*cobra.Command, []string) error { return nil }, strings.Fields(c.args)...)
		if (code == 2) != (c.problem != "") || !strings.Contains(stderr, c.problem) {
			t.Errorf("%q called as %q: exit %d, %s", c.use, c.args, code, stderr)
		}
	}
}

func TestUsageErrors(t *testing.T) {
	for _, c := range []struct{ args, message, next string }{
		{"group", "laufwerk group needs one of its commands: inner", "laufwerk group --help"},
		{"group innr", `unknown command "innr" for "laufwerk group"`, "laufwerk group inner"},
		{"group --no-input innr", `unknown command "innr"`, "laufwerk group inner"},
		{"group --set a=b innr --x", `unknown command "innr"`, "laufwerk group inner"},
		{"group --nosuch inner", "unknown flag --nosuch", "laufwerk group --help"},
		{"grop", `unknown command "grop"`, "laufwerk group"},
		{"one --projct=x", "unknown flag --projct", "did you mean --project?"},
		{"one -q", "unknown flag -q", "laufwerk one --help"},
		{"one --project", "flag needs an argument", "laufwerk one --help"},
		{"one --json=maybe", "invalid argument", "laufwerk one --help"},
		{"one --set hoem=/x", `unknown setting "hoem"`, "laufwerk --set home=VALUE"},
	} {
		code, stdout, stderr := execute(t, nil, "one", func(*cobra.Command, []string) error { t.Errorf("%q ran", c.args); return nil }, strings.Fields(c.args)...)
		if code != 2 || stdout != "" || !strings.Contains(stderr, c.message) || !strings.Contains(stderr, "next: ") || !strings.Contains(stderr, c.next) {
			t.Errorf("%q: exit %d, stdout %q, stderr %q", c.args, code, stdout, stderr)
		}
	}
}

func TestJSONIsOnlyAskedForBeforeTheDashes(t *testing.T) {
	_, stdout, _ := execute(t, nil, "one [A...]", func(*cobra.Command, []string) error { return errors.New("no") }, "one", "--", "--json")
	if stdout != "" {
		t.Errorf("stdout %q", stdout)
	}
}

func TestSchemasAreNamedAfterTheCommand(t *testing.T) {
	_, stdout, _ := execute(t, nil, "one", func(*cobra.Command, []string) error { return errors.New("no") }, "group", "inner", "--json")
	if !strings.HasPrefix(stdout, `{"schema":"laufwerk.group.inner/1",`) {
		t.Error(stdout)
	}
}
