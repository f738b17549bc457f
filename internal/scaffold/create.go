package scaffold

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// Validate loads the project at root and says what is wrong with it.
type Validate func(ctx context.Context, root string) error

// Create puts files into the project at root: all of them, or, with an error, none. The files are written to a staging
// directory beside their place and loaded from there first. A kill before the last rename leaves only that directory,
// whose name begins with ".laufwerk-init".
func Create(ctx context.Context, root string, list []File, validate Validate) (err error) {
	if err := free(root, list); err != nil {
		return err
	}
	stage, err := files.Stage(root, ".laufwerk-init")
	if err != nil {
		return failure.Wrap(err, failure.Failed, "make a directory in %s", root)
	}
	defer func() {
		if rmErr := files.RemoveAll(stage); err == nil {
			err = failure.Wrap(rmErr, failure.Failed, "remove the staging directory")
		}
	}()
	for _, f := range list {
		if err := files.Plant(filepath.Join(stage, filepath.FromSlash(f.Path)), f.Content); err != nil {
			return failure.Wrap(err, failure.Failed, "write %s", f.Path)
		}
	}
	if err := validate(ctx, stage); err != nil {
		return failure.Wrap(err, failure.ProjectInvalid, "the new project does not load; nothing was written")
	}
	crash.Point("scaffold/before-publish")
	return publish(root, stage, list)
}

// free says whether every path can be made without touching what is there.
func free(root string, list []File) error {
	info, err := files.Stat(root)
	if err != nil || !info.IsDir() {
		return failure.New(failure.ProjectNotFound, "%s is not a directory", root).WithHint("mkdir -p %s", root)
	}
	dir, err := files.Lstat(filepath.Join(root, Directory))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return failure.Wrap(err, failure.Failed, "look at %s", filepath.Join(root, Directory))
	case !dir.IsDir():
		return failure.New(failure.AlreadyExists, "%s is not a directory; nothing was written", filepath.Join(root, Directory)).
			WithPaths(Directory).WithHint("move it away, or use another directory: laufwerk init --project DIR …")
	}
	var taken []string
	for _, f := range list {
		if files.Exists(filepath.Join(root, filepath.FromSlash(f.Path))) {
			taken = append(taken, f.Path)
		}
	}
	if taken != nil {
		return exists(root, taken)
	}
	return nil
}

func exists(root string, taken []string) error {
	return failure.New(failure.AlreadyExists, "%s has a laufwerk project already: %s; nothing was written", root, strings.Join(taken, ", ")).
		WithPaths(taken...).WithHint("edit the files, or use another directory: laufwerk init --project DIR …")
}

// publish moves the staged tree into its place. Where the directory is there with other things in it, the files are made
// one by one, and on a failure those that were made are removed again.
func publish(root, stage string, list []File) (err error) {
	target := filepath.Join(root, Directory)
	if !files.Exists(target) {
		// rename(2) of a directory replaces nothing but an empty directory.
		err := files.Rename(filepath.Join(stage, Directory), target)
		return failure.Wrap(err, failure.Failed, "put %s in its place", target)
	}
	var made []string
	defer func() {
		if err != nil {
			for _, p := range made {
				_ = files.Remove(p)
			}
		}
	}()
	for _, f := range list {
		p := filepath.Join(root, filepath.FromSlash(f.Path))
		if err := files.Plant(p, f.Content); errors.Is(err, fs.ErrExist) {
			return exists(root, []string{f.Path})
		} else if err != nil {
			return failure.Wrap(err, failure.Failed, "write %s", p)
		}
		made = append(made, p)
		crash.Point("scaffold/after-file")
	}
	return nil
}
