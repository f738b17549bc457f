package scaffold

import (
	"bytes"
	"errors"
	"io/fs"
	"path"
	"path/filepath"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/sdk"
	"github.com/laufwerk/laufwerk/templates"
)

// TypeState is how a file for editors and tsc stands to this build's.
type TypeState string

// The states.
const (
	TypeCurrent TypeState = "current"
	TypeMissing TypeState = "missing"
	TypeOlder   TypeState = "different" // made by another build
	TypeOwn     TypeState = "own"       // changed by somebody, who may keep it
)

// TypeFile is one of them.
type TypeFile struct {
	Path  string    `json:"path"` // relative to the project's root, slash separated
	State TypeState `json:"state"`
	made  []byte
}

// Stale says whether a refresh would write it.
func (f TypeFile) Stale() bool { return f.State == TypeMissing || f.State == TypeOlder }

// Types compares the declarations and the tsconfig of the project at root with those of this build. The declarations are
// made and never edited; a tsconfig that differs is its owner's.
func Types(root string) ([]TypeFile, error) {
	tsconfig, err := fs.ReadFile(templates.Files, "project/tsconfig.json")
	if err != nil {
		return nil, failure.Wrap(err, failure.Internal, "read the templates")
	}
	out := []TypeFile{
		{Path: path.Join(Directory, "types/laufwerk.d.ts"), State: TypeOlder, made: []byte(sdk.Declarations())},
		{Path: path.Join(Directory, "tsconfig.json"), State: TypeOwn, made: tsconfig},
	}
	for i := range out {
		at := filepath.Join(root, filepath.FromSlash(out[i].Path))
		info, err := files.Lstat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			out[i].State = TypeMissing
			continue
		case err != nil:
			return nil, failure.Wrap(err, failure.Failed, "inspect %s", at)
		case !info.Mode().IsRegular():
			return nil, failure.New(failure.AlreadyExists, "%s is not a file", at).WithPaths(out[i].Path).WithHint("mv %s %s.other", failure.Quote(at), failure.Quote(at))
		case info.Size() != int64(len(out[i].made)):
			continue
		}
		have, err := files.Read(at)
		if err != nil {
			return nil, failure.Wrap(err, failure.Failed, "read %s", at)
		}
		if bytes.Equal(have, out[i].made) {
			out[i].State = TypeCurrent
		}
	}
	return out, nil
}

// RefreshTypes brings the files that Types finds stale up to date, each whole or not at all, and with force a tsconfig of
// somebody's too. It returns what it found.
func RefreshTypes(root string, force bool) ([]TypeFile, error) {
	list, err := Types(root)
	if err != nil {
		return nil, err
	}
	for _, f := range list {
		if !f.Stale() && (!force || f.State != TypeOwn) {
			continue
		}
		if err := replace(root, f); err != nil {
			return nil, failure.Wrap(err, failure.Failed, "write %s", f.Path)
		}
	}
	return list, nil
}

// replace goes through a directory of its own, so that the file has the modes that the user's files have.
func replace(root string, f TypeFile) (err error) {
	dir := filepath.Join(root, Directory)
	if info, err := files.Lstat(filepath.Dir(filepath.Join(root, f.Path))); err == nil && !info.IsDir() {
		return failure.New(failure.AlreadyExists, "%s is not a directory", path.Dir(f.Path)).WithPaths(path.Dir(f.Path))
	}
	stage, err := files.Stage(dir, ".laufwerk-types")
	if err != nil {
		return err
	}
	defer func() {
		if rmErr := files.RemoveAll(stage); err == nil {
			err = rmErr
		}
	}()
	from, to := filepath.Join(stage, filepath.Base(f.Path)), filepath.Join(root, filepath.FromSlash(f.Path))
	if err := files.CreateUserFile(from, f.made); err != nil {
		return err
	}
	if !files.Exists(filepath.Dir(to)) { // one directory below laufwerk/ at most
		tmp := filepath.Join(stage, "dir", filepath.Base(f.Path))
		if err := files.CreateUserFile(tmp, f.made); err != nil {
			return err
		}
		return files.Rename(filepath.Dir(tmp), filepath.Dir(to))
	}
	return files.Rename(from, to)
}
