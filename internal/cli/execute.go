package cli

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/cli/render"
	"github.com/laufwerk/laufwerk/internal/cli/settings"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/redact"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// Execute runs the command that env's arguments name and returns its exit code. commands makes the commands of the tree.
func Execute(ctx context.Context, env *system.Env, commands func(*Deps) Commands) int {
	d := newDeps(env)
	d.UI.JSON = wantsJSON(env.Args) // known before the flags are parsed: a mistake in them is reported as JSON too
	err := executeTree(ctx, d, commands)
	if f := failure.As(err); err != nil && (f == nil || f.Hint == "") {
		err = systemError(d, err, f)
	}
	if err == nil {
		err = d.UI.WriteError() // which may be full too, and is not ours
	}
	if err == nil {
		return failure.ExitDone
	}
	d.UI.Failure(err)
	return failure.KindOf(err).Exit()
}

func executeTree(ctx context.Context, d *Deps, commands func(*Deps) Commands) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panicError(d, r)
		}
	}()
	t := newTree(d, commands(d))
	d.UI.Schema = "laufwerk.error/1"
	cmd, rest, err := t.find(d.Env.Args)
	if err != nil {
		return usageError(t.root, "%s", err)
	}
	if err := refuseUnknownWord(cmd, rest); err != nil {
		return err
	}
	d.UI.Schema = Schema(cmd)
	t.root.SetArgs(d.Env.Args)
	return t.root.ExecuteContext(ctx)
}

// systemError adds a hint to an error of the operating system, such as a full or failing disk or missing permissions, or of laufwerk
// itself. No half-written file is left by it.
func systemError(d *Deps, err error, f *failure.Error) error {
	var at *fs.PathError
	var hint string
	switch {
	case files.NoSpace(err):
		hint = "df -h" + quotedHome(d)
	case files.DiskFailed(err):
		hint = "dmesg | tail"
	case files.MachineFailed(err):
		hint = "ulimit -a"
	case files.NotWritable(err) && errors.As(err, &at) && filepath.IsAbs(at.Path):
		hint = "ls -ld " + failure.Quote(at.Path)
	case failure.Is(err, failure.Internal):
		hint = debugCommand(d)
	default:
		return err
	}
	if f == nil {
		f = &failure.Error{Kind: failure.Failed, Err: err}
		err = f
	}
	f.Hint = hint
	return err
}

// quotedHome is the home's path with a space before it, "" where the settings do not tell it.
func quotedHome(d *Deps) string {
	s, err := d.Settings()
	if err != nil {
		return ""
	}
	home, err := s.Home()
	if err != nil {
		return ""
	}
	return " " + failure.Quote(home)
}

func debugCommand(d *Deps) string {
	return "LAUFWERK_DEBUG=true laufwerk " + redact.Line(strings.Join(d.Env.Args, " "))
}

func panicError(d *Deps, cause any) error {
	err := failure.New(failure.Internal, "laufwerk itself failed: %v", cause).
		WithHint("%s", debugCommand(d))
	if s, settingsErr := d.Settings(); settingsErr == nil && s.Bool(settings.Debug) {
		d.UI.Debugf("%s", debug.Stack())
		err.Hint = "report this with the stack above"
	}
	return err
}

func wantsJSON(args []string) bool {
	for _, a := range args {
		switch a {
		case "--":
			return false
		case "--json", "--json=true", "--json=1":
			return true
		}
	}
	return false
}

// Schema names the documents of a command: laufwerk runs list prints laufwerk.runs.list/1.
func Schema(cmd *cobra.Command) string {
	return strings.ReplaceAll(cmd.CommandPath(), " ", ".") + "/1"
}

// usageError is a mistake in how cmd was called; the hint shows how it is called.
func usageError(cmd *cobra.Command, format string, args ...any) *failure.Error {
	return failure.New(failure.Usage, format, args...).WithHint("%s --help", cmd.CommandPath())
}

// failWithDocument ends a command with err and, with --json, with doc's fields beside the error's.
func failWithDocument(err error, doc any) error { return render.Attach(err, doc) }
