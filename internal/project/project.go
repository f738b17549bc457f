// Package project finds and loads a project: a directory with laufwerk/laufwerk.config.ts, its targets, its workflows.
package project

import (
	"context"
	"encoding/json"
	"path"
	"path/filepath"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/script"
	"github.com/laufwerk/laufwerk/internal/sha256hex"
	"github.com/laufwerk/laufwerk/internal/suggest"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/system/projectfs"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// Files of a project, relative to its root.
const (
	Dir       = "laufwerk"
	Config    = "laufwerk/laufwerk.config.ts"
	workflows = "laufwerk/workflows"
)

// Project is a loaded project.
type Project struct {
	Root        string               // absolute, links resolved
	ID          string               // projectId
	Scope       string               // of labels, run keys, listings and admission: one value for each id and root
	Targets     []targets.Definition // in the order of the config
	Concurrency int                  // live runs at once; 0 is unlimited
	Bundle      string               // digest of the config's bundle

	runner *script.Runner
}

// Find is the root of the project that explicit (a directory, relative to dir) names, or else the nearest one from dir
// upwards. Roots that somebody else owns or can write are refused, and so is one inside home ($LAUFWERK_HOME; "" checks
// nothing): code from there would run as this user.
func Find(dir, explicit, home string) (string, error) {
	if explicit != "" {
		if !filepath.IsAbs(explicit) {
			explicit = filepath.Join(dir, explicit)
		}
		root := projectfs.Real(explicit)
		if !projectfs.IsDir(root) {
			return "", failure.New(failure.ProjectNotFound, "%s is not a directory: --project needs the directory of a project", explicit).WithHint("laufwerk --help")
		}
		found, err := hasConfig(root)
		if err != nil {
			return "", err
		}
		if !found {
			return "", failure.New(failure.ProjectNotFound, "%s is not a project: there is no %s in it", explicit, Config).
				WithHint("cd %s && laufwerk init --execution local", failure.Quote(explicit))
		}
		return root, checkTrusted(root, home)
	}
	for at := projectfs.Real(dir); ; at = filepath.Dir(at) {
		found, err := hasConfig(at)
		if err != nil {
			return "", err
		}
		if found {
			return at, checkTrusted(at, home)
		}
		if at == filepath.Dir(at) {
			break
		}
	}
	return "", failure.New(failure.ProjectNotFound, "there is no project here: neither %s nor a directory above it has a %s", dir, Config).
		WithHint("laufwerk init --execution local")
}

func hasConfig(root string) (bool, error) {
	info, err := files.Lstat(filepath.Join(root, Config))
	if files.MachineFailed(err) {
		return false, failure.Wrap(err, failure.ProjectInvalid, "find a project in %s", root)
	}
	return err == nil && !info.IsDir(), nil
}

func checkTrusted(root, home string) error {
	if home != "" {
		if rel, err := filepath.Rel(projectfs.Real(home), root); err == nil && filepath.IsLocal(rel) {
			return failure.New(failure.ProjectInvalid, "the project %s is inside laufwerk's own state (%s): its files were written by runs", root, home).
				WithHint("use the project that the run came from")
		}
	}
	return check(root, "", Dir, Config)
}

// check refuses paths, relative to root, that somebody else owns or can write.
func check(root string, paths ...string) error {
	for _, p := range paths {
		at := filepath.Join(root, filepath.FromSlash(p))
		if why := projectfs.Untrusted(at); why != "" {
			return failure.New(failure.ProjectInvalid, "%s is refused, since its code would run as you: %s", at, why).
				WithPaths(at).WithHint("ls -ld %s\nchmod go-w %s", failure.Quote(at), failure.Quote(at))
		}
	}
	return nil
}

// Load evaluates the config of the project at root, as Find returned it.
func Load(ctx context.Context, runner *script.Runner, root string) (*Project, error) {
	found, err := hasConfig(root)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, failure.New(failure.ProjectNotFound, "%s is not a project any more: there is no %s in it", root, Config).
			WithPaths(root).WithHint("ls -la %s", failure.Quote(root))
	}
	if err := check(root, "", Dir, Config); err != nil {
		return nil, err
	}
	value, bundle, err := runner.Evaluate(ctx, root, Config, script.EvalOptions{})
	if err != nil {
		return nil, WithDefaultHint(err, root, Config)
	}
	c, err := parse(value)
	if err != nil {
		return nil, WithDefaultHint(configError(err), root, Config)
	}
	for i := range c.targets {
		c.targets[i].Root = root
	}
	return &Project{
		Root: root, ID: c.projectID, Scope: sha256hex.Of(c.projectID + "\x00" + root)[:16], Targets: c.targets, Concurrency: c.concurrency,
		Bundle: bundle.Digest, runner: runner,
	}, nil
}

// configError gives a failure of the rules the config's name: defineConfig was not called, or its value was changed after it.
func configError(err error) error {
	f := failure.As(err)
	if f == nil {
		return failure.Wrap(err, failure.ProjectInvalid, "%s", Config)
	}
	out := failure.New(failure.ProjectInvalid, "%s: %s", Config, f.Message).WithPaths(Config)
	out.Hint = f.Hint
	if len(f.Paths) > 0 {
		out.WithField("option", f.Paths[0])
	}
	return out
}

// WithDefaultHint says what to do about a module that cannot be evaluated, where nothing better is known.
func WithDefaultHint(err error, root, file string) error {
	f := failure.As(err)
	if f == nil || f.Kind != failure.ProjectInvalid || f.Hint != "" {
		return err
	}
	if len(f.Paths) > 0 && path.Ext(f.Paths[0]) == ".ts" && filepath.IsLocal(filepath.FromSlash(f.Paths[0])) {
		file = f.Paths[0] // the module that it is in, which may be one that file imports
	}
	f.Hint = "${EDITOR:-vi} " + failure.Quote(filepath.Join(root, filepath.FromSlash(file)))
	if failure.Is(f.Err, failure.LimitExceeded) {
		f.Hint += "\nlaufwerk help environment" // names the settings
	}
	return err
}

// Validate is the one set of rules for defineConfig, in the form that script.Validator describes.
func Validate(value json.RawMessage) (json.RawMessage, error) {
	if _, err := parse(value); err != nil {
		return nil, err
	}
	return value, nil
}

// TargetsOf are the project's targets of a kind: all, or the one with an id. Where there is none with that id, the failure is
// NotFound and names the command with the id that comes closest.
func (p *Project) TargetsOf(kind, id, command string) ([]targets.Definition, error) {
	var out []targets.Definition
	var ids []string
	for _, t := range p.Targets {
		if t.Kind != kind {
			continue
		}
		ids = append(ids, t.ID)
		if id == "" || id == t.ID {
			out = append(out, t)
		}
	}
	if id == "" || len(out) > 0 {
		return out, nil
	}
	e := failure.New(failure.NotFound, "the project has no %s target %q", kind, id).WithHint("%s", command)
	if near := suggest.Closest(id, ids); near != "" {
		e.WithHint("%s --target %s", command, near)
	}
	return nil, e
}
