package scaffold

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/project"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/system/process"
)

// Validate loads the project at root and says what is wrong with it.
type Validate func(ctx context.Context, root string) error

// stageName begins the name of the directory that a kill can leave.
const stageName = ".laufwerk-init"

// owner is the file in a staging directory that says whose it is.
const owner = "owner"

// removeLeftovers removes the staging directories of processes that are known to be dead.
func removeLeftovers(root string) {
	names, _ := files.Names(root)
	for _, name := range names {
		var id process.Identity
		stage := filepath.Join(root, name)
		if !strings.HasPrefix(name, stageName) || files.ReadJSON(filepath.Join(stage, owner), &id) != nil {
			continue
		}
		if is := process.Probe(id); is == process.Dead || is == process.OtherBoot {
			_ = files.RemoveAll(stage)
		}
	}
}

// Create puts files into the directory root, which is no project yet: all of them, or, with an error, none. They are loaded
// from a staging directory beside their place first. A kill leaves either nothing but that directory, whose name begins with
// ".laufwerk-init" and which the next Create removes, or, where the directory laufwerk was there, some whole files that are no project without the config,
// which comes after them: the next Create of the same finishes it.
func Create(ctx context.Context, root string, list []File, validate Validate) error {
	_, err := create(ctx, root, list, false, validate)
	return err
}

func create(ctx context.Context, root string, list []File, force bool, validate Validate) ([]string, error) {
	c := &stagedChange{root: root, list: list, force: force, validate: validate}
	return c.make(ctx)
}

type stagedChange struct {
	root     string
	list     []File
	force    bool
	validate Validate
	config   []byte // the config that the one in list replaces; nil where it replaces none

	stage string
	undo  []func()
}

// make writes what is not there already, and returns its paths.
func (c *stagedChange) make(ctx context.Context) (written []string, err error) {
	if err := c.checkFree(); err != nil {
		return nil, err
	}
	if len(c.list) == 0 {
		return nil, nil
	}
	removeLeftovers(c.root)
	if c.stage, err = files.Stage(c.root, stageName); errors.Is(err, fs.ErrPermission) {
		return nil, failure.New(failure.Failed, "%s cannot be written: permission denied", c.root).
			WithHint("make it writable, or use another directory: laufwerk init --project DIR …")
	} else if err != nil {
		return nil, failure.Wrap(err, failure.Failed, "make a directory in %s", c.root)
	}
	defer func() {
		if rmErr := files.RemoveAll(c.stage); err == nil {
			err = failure.Wrap(rmErr, failure.Failed, "remove the staging directory")
		}
	}()
	if self, err := process.Self(); err == nil {
		_ = files.WriteJSON(filepath.Join(c.stage, owner), self) // it only serves to clean up after a kill
	}
	crash.Point("scaffold/after-stage")
	for _, f := range c.list {
		if err := files.CreateUserFile(filepath.Join(c.stage, filepath.FromSlash(f.Path)), f.Content); err != nil {
			return nil, failure.Wrap(err, failure.Failed, "write %s", f.Path)
		}
	}
	if c.validate != nil {
		if err := c.validate(ctx, c.stage); err != nil {
			return nil, failure.Wrap(err, failure.ProjectInvalid, "the new project cannot be loaded; nothing was written")
		}
	}
	crash.Point("scaffold/before-publish")
	if err := c.publish(ctx); err != nil {
		for _, f := range slices.Backward(c.undo) {
			f()
		}
		return nil, err
	}
	for _, f := range c.list {
		written = append(written, f.Path)
	}
	return written, nil
}

// checkFree drops the files that are there as they should be, and fails where others are in the way.
func (c *stagedChange) checkFree() error {
	info, err := files.Stat(c.root)
	if err != nil || !info.IsDir() {
		return failure.New(failure.ProjectNotFound, "%s is not a directory", c.root).WithHint("mkdir -p %s", c.root)
	}
	at := filepath.Join(c.root, Directory)
	dir, err := files.Lstat(at)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return failure.Wrap(err, failure.Failed, "inspect %s", at)
	case !dir.IsDir():
		return failure.New(failure.AlreadyExists, "%s is not a directory; nothing was written", at).
			WithPaths(Directory).WithHint("move it away, or use another directory: laufwerk init --project DIR …")
	}
	var taken []string
	c.list = slices.DeleteFunc(slices.Clone(c.list), func(f File) bool {
		at := filepath.Join(c.root, filepath.FromSlash(f.Path))
		info, err := files.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) {
			return false
		}
		if err == nil && info.Mode().IsRegular() {
			if have, err := files.Read(at); err == nil && bytes.Equal(have, f.Content) && c.validate == nil {
				return true
			} else if err == nil && bytes.Equal(have, f.Content) {
				return false // it is loaded with the others, and skipped when they are published
			}
			if c.force || f.Path == project.Config && c.config != nil {
				return false
			}
		}
		taken = append(taken, f.Path)
		return false
	})
	if taken != nil {
		return exists(c.root, taken)
	}
	return nil
}

func exists(root string, taken []string) error {
	return failure.New(failure.AlreadyExists, "%s has other files already: %s; nothing was written", root, strings.Join(taken, ", ")).
		WithPaths(taken...).WithHint("move them away, or add --force to replace them")
}

// order is the order in which files are put in their places: what the config imports before it, what imports the config's
// targets after it. A project is whole in between.
func order(file string) int {
	switch {
	case file == project.Config:
		return 1
	case strings.HasPrefix(file, Directory+"/workflows/"):
		return 2
	}
	return 0
}

// publish moves what is staged into its place: whole directories where there is none, else file by file.
func (c *stagedChange) publish(ctx context.Context) error {
	slices.SortStableFunc(c.list, func(a, b File) int { return order(a.Path) - order(b.Path) })
	var written []File
	for _, f := range c.list {
		if err := ctx.Err(); err != nil {
			return err
		}
		same, err := c.installFile(f)
		if err != nil {
			return err
		}
		if !same {
			written = append(written, f)
		}
		crash.Point("scaffold/after-file")
	}
	c.list = written
	return nil
}

// installFile puts one file in its place, with the directories that are missing. It is true where the same file was there.
func (c *stagedChange) installFile(f File) (same bool, err error) {
	from, to := filepath.Join(c.stage, filepath.FromSlash(f.Path)), filepath.Join(c.root, filepath.FromSlash(f.Path))
	if !files.Exists(from) {
		return false, nil // its directory went as a whole
	}
	for dir := range parentDirs(f.Path) {
		target := filepath.Join(c.root, filepath.FromSlash(dir))
		info, err := files.Lstat(target)
		if errors.Is(err, fs.ErrNotExist) {
			// rename(2) of a directory replaces nothing but an empty directory.
			if err := files.Rename(filepath.Join(c.stage, filepath.FromSlash(dir)), target); errors.Is(err, fs.ErrExist) {
				return false, exists(c.root, []string{f.Path})
			} else if err != nil {
				return false, failure.Wrap(err, failure.Failed, "put %s in its place", target)
			}
			c.undo = append(c.undo, func() { _ = files.Rename(target, filepath.Join(c.stage, "undone-"+filepath.Base(dir))) })
			return false, nil
		}
		if err != nil || !info.IsDir() {
			return false, failure.New(failure.AlreadyExists, "%s is not a directory; nothing was written", target).WithPaths(dir)
		}
	}
	have, err := files.Read(to)
	if _, lerr := files.Lstat(to); errors.Is(lerr, fs.ErrNotExist) {
		if err := files.Publish(from, to); errors.Is(err, fs.ErrExist) {
			return false, exists(c.root, []string{f.Path})
		} else if err != nil {
			return false, failure.Wrap(err, failure.Failed, "write %s", to)
		}
		c.undo = append(c.undo, func() { _ = files.Remove(to) })
		return false, nil
	}
	replaces := c.force || f.Path == project.Config && bytes.Equal(have, c.config)
	switch {
	case err == nil && bytes.Equal(have, f.Content):
		return true, nil
	case err != nil || !replaces:
		return false, exists(c.root, []string{f.Path})
	}
	old := filepath.Join(c.stage, "replaced", filepath.FromSlash(f.Path))
	if err := files.CreateUserFile(old, have); err != nil {
		return false, failure.Wrap(err, failure.Failed, "keep the old %s", f.Path)
	}
	if err := files.Replace(from, to); err != nil {
		return false, failure.Wrap(err, failure.Failed, "write %s", to)
	}
	c.undo = append(c.undo, func() { _ = files.Replace(old, to) })
	return false, nil
}

// parentDirs lists the directories of a slash-separated path, the outermost first.
func parentDirs(file string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for i, r := range file {
			if r == '/' && !yield(path.Clean(file[:i])) {
				return
			}
		}
	}
}
