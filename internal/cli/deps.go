// Package cli is the command line: every command in a file of its own (runs_list.go is `laufwerk runs list`), the tree's
// rules (unknown words are usage errors with a suggestion), what a terminal shows and asks while a run is worked on, and the
// edge at which an error becomes text or JSON and an exit code. What commands do is the use cases' below.
package cli

import (
	"context"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/cli/render"
	"github.com/laufwerk/laufwerk/internal/cli/settings"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/project"
	"github.com/laufwerk/laufwerk/internal/system"
)

// Deps is what every command is built from. Flags are only valid once a command runs, so constructors keep the functions.
type Deps struct {
	Env      *system.Env
	UI       *render.UI
	Settings func() (*settings.Settings, error) // resolved at the first call
	Flags    *Flags
	UseCases
}

// Flags are those of every command.
type Flags struct {
	JSON    bool
	NoInput bool
	Project string
	Set     []string
}

func newDeps(env *system.Env) *Deps {
	d := &Deps{Env: env, Flags: &Flags{}}
	d.Settings = sync.OnceValues(func() (*settings.Settings, error) { return settings.Resolve(env, d.Flags.Set) })
	d.UI = render.New(env, func() string {
		s, err := d.Settings()
		if err != nil {
			return "auto" // the command that needs the settings reports them
		}
		return s.Text(settings.Color)
	})
	return d
}

// ProjectDir is where the search for the project starts, absolute, and whether --project named it: then it must be there.
func (d *Deps) ProjectDir() (dir string, named bool) {
	if d.Flags.Project == "" {
		return d.Env.Dir, false
	}
	return d.Path(d.Flags.Project), true
}

// findProject is the root of the project that --project names, or else of the nearest one from the working directory upwards,
// outside of $LAUFWERK_HOME.
func (d *Deps) findProject() (string, error) {
	set, err := d.Settings()
	if err != nil {
		return "", err
	}
	home, err := set.Home()
	if err != nil {
		return "", err
	}
	return project.Find(d.Env.Dir, d.Flags.Project, home)
}

func (d *Deps) loadProject(ctx context.Context) (*project.Project, error) {
	root, err := d.findProject()
	if err != nil {
		return nil, err
	}
	return d.Projects.Load(ctx, root)
}

// Path makes a path that somebody typed absolute.
func (d *Deps) Path(p string) string {
	if filepath.IsAbs(p) {
		return filepath.Clean(p)
	}
	return filepath.Join(d.Env.Dir, p)
}

// Interactive says whether a person can be asked: on stderr, answering on stdin.
func (d *Deps) Interactive() bool {
	return d.Env.InTTY && d.Env.ErrTTY && !d.Flags.NoInput && !d.Flags.JSON
}

func (d *Deps) bind(root *cobra.Command) {
	f := root.PersistentFlags()
	f.BoolVar(&d.Flags.JSON, "json", false, "print JSON: one document, or one object per line where the output is a stream")
	f.BoolVar(&d.Flags.NoInput, "no-input", false, "never ask on the terminal")
	f.StringVar(&d.Flags.Project, "project", "", "the `DIR` of the project (default: the nearest project from the working directory upwards)")
	f.StringArrayVar(&d.Flags.Set, "set", nil, "override a setting with `NAME=VALUE` for this command; laufwerk help environment lists the names")
}

// Interruptible is ctx that also ends with SIGINT, SIGTERM or SIGHUP; its cause is then a failure of the signal's kind. A
// second signal ends the process at once. stop must be called.
func (d *Deps) Interruptible(ctx context.Context) (interruptible context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		for sig := range system.Signals(ctx) {
			kind := failure.Interrupted
			switch sig {
			case syscall.SIGTERM:
				kind = failure.Terminated
			case syscall.SIGHUP:
				kind = failure.HungUp
			}
			cancel(failure.New(kind, "interrupted")) // and with it the watch over signals
		}
	}()
	return ctx, func() { cancel(nil) }
}
