package local

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/safefs"
)

// newSuffix names the file that a write is made in before it takes its place.
const newSuffix = ".laufwerk-new"

// ReadFile reads a file of the workspace. An agent writes there: no link is followed, nothing but a regular file is opened.
func (s *sandbox) ReadFile(_ context.Context, name string) ([]byte, error) {
	rel, err := s.inside(name)
	if err != nil {
		return nil, err
	}
	root, err := s.workspace()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if info, err := root.Lstat(rel); err == nil && info.Size > providers.MaxFile {
		return nil, failure.New(failure.OutputTooLarge, "%s has %d bytes; at most %d are read", name, info.Size, providers.MaxFile)
	}
	b, _, err := root.ReadFile(rel, providers.MaxFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, refusedFile(name, err)
	}
	return b, err
}

// WriteFile puts a file into the workspace, whole or not at all. An existing file keeps its mode; directories are made.
func (s *sandbox) WriteFile(_ context.Context, name string, data []byte) error {
	rel, err := s.inside(name)
	if err != nil {
		return err
	}
	if len(data) > providers.MaxFile {
		return failure.New(failure.OutputTooLarge, "%d bytes for %s; at most %d are written", len(data), name, providers.MaxFile)
	}
	root, err := s.workspace()
	if err != nil {
		return err
	}
	defer root.Close()
	return refusedFile(name, write(root, rel, data))
}

func write(root *safefs.Root, rel string, data []byte) error {
	for i := range len(rel) {
		if rel[i] != '/' {
			continue
		}
		if err := root.Mkdir(rel[:i], 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	mode := uint32(0o644)
	switch info, err := root.Lstat(rel); {
	case err == nil && info.Type == safefs.File:
		mode = info.Mode & 0o777
	case err == nil:
		return errors.New("a " + info.Type.String() + " is in its place")
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	tmp := rel + newSuffix
	if err := root.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := root.Create(tmp, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Close())
	if err == nil {
		crash.Point("local/before-rename-file")
		err = root.Rename(tmp, rel)
	}
	if err != nil {
		_ = root.Remove(tmp)
	}
	return err
}

// inside is a path relative to the workspace. What leads out of it is refused by name, before anything is touched.
func (s *sandbox) inside(name string) (string, error) {
	rel := name
	if filepath.IsAbs(rel) {
		var ok bool
		if rel, ok = strings.CutPrefix(path.Clean(rel), s.spec.Workspace+"/"); !ok {
			return "", failure.New(failure.Usage, "%s is not in the workspace", name)
		}
	}
	rel = path.Clean(rel)
	if rel == "." || rel == ".." || strings.HasPrefix(rel, "../") || !safefs.Valid(rel) {
		return "", failure.New(failure.Usage, "%q does not name a file in the workspace", name)
	}
	return rel, nil
}

func (s *sandbox) workspace() (*safefs.Root, error) {
	root, err := safefs.OpenRoot(s.spec.Workspace)
	if err != nil {
		return nil, failure.Wrap(err, failure.WorkspaceLost, "open the workspace")
	}
	return root, nil
}

func refusedFile(name string, err error) error {
	if err == nil {
		return nil
	}
	return failure.Wrap(err, failure.Failed, "%s", name)
}
