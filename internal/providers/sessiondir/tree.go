package sessiondir

import (
	"errors"
	"io/fs"
	"path"
	"strings"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/safefs"
)

// newSuffix names the file that a write is made in before it takes its place.
const newSuffix = ".laufwerk-new"

// Tree is a workspace's directory on this host, in which an agent writes.
type Tree struct {
	Host     string // the directory
	Seen     string // as commands see it
	User     *User  // to whom new files are given, nil is the worker
	ReadOnly bool
}

// ReadFile reads a file of at most providers.MaxFile bytes; fs.ErrNotExist where there is none.
func (t Tree) ReadFile(name string) ([]byte, error) {
	rel, err := t.inside(name)
	if err != nil {
		return nil, err
	}
	root, err := t.open()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if info, err := root.Lstat(rel); err == nil && info.Size > providers.MaxFile {
		return nil, failure.New(failure.OutputTooLarge, "%s has %d bytes; at most %d are read", name, info.Size, providers.MaxFile)
	}
	b, _, err := root.ReadFile(rel, providers.MaxFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, refusedError(name, err)
	}
	return b, err
}

// WriteFile puts a file in place of the one that has its name, whole or not at all. An existing file keeps its mode;
// directories and links are not replaced.
func (t Tree) WriteFile(name string, data []byte) error {
	rel, err := t.inside(name)
	if err != nil {
		return err
	}
	if t.ReadOnly {
		return failure.New(failure.Unsupported, "%s cannot be written: the session has read-only access", name)
	}
	if len(data) > providers.MaxFile {
		return failure.New(failure.OutputTooLarge, "%d bytes for %s; at most %d are written", len(data), name, providers.MaxFile)
	}
	root, err := t.open()
	if err != nil {
		return err
	}
	defer root.Close()
	return refusedError(name, t.write(root, rel, data))
}

func (t Tree) write(root *safefs.Root, rel string, data []byte) error {
	for i := range len(rel) {
		if rel[i] != '/' {
			continue
		}
		if err := mkdir(root, rel[:i], 0o755, t.User); err != nil {
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
	return putFile(root, rel, rel+newSuffix, mode, data, t.User)
}

// mkdir makes a directory unless there is one.
func mkdir(root *safefs.Root, rel string, mode uint32, user *User) error {
	err := root.Mkdir(rel, mode)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil && user != nil {
		err = root.Lchown(rel, user.UID, user.GID)
	}
	return err
}

// putFile makes a file under the name tmp and then lets it take the place of whatever has its name.
func putFile(root *safefs.Root, rel, tmp string, mode uint32, data []byte, user *User) error {
	if err := root.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := root.Create(tmp, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Close())
	if err == nil && user != nil {
		err = root.Lchown(tmp, user.UID, user.GID)
	}
	if err == nil {
		crash.Point("sessiondir/before-rename-file")
		err = root.Rename(tmp, rel)
	}
	if err != nil {
		_ = root.Remove(tmp)
	}
	return err
}

func (t Tree) inside(name string) (string, error) {
	rel := name
	if path.IsAbs(rel) {
		var ok bool
		if rel, ok = strings.CutPrefix(path.Clean(rel), t.Seen+"/"); !ok {
			return "", failure.New(failure.Usage, "%s is not in the workspace", name)
		}
	}
	rel = path.Clean(rel)
	if rel == "." || rel == ".." || strings.HasPrefix(rel, "../") || !safefs.Valid(rel) {
		return "", failure.New(failure.Usage, "%q does not name a file in the workspace", name)
	}
	return rel, nil
}

func (t Tree) open() (*safefs.Root, error) {
	root, err := safefs.OpenRoot(t.Host)
	if err != nil {
		return nil, failure.Wrap(err, failure.WorkspaceLost, "open the workspace")
	}
	return root, nil
}

func refusedError(name string, err error) error {
	if err == nil {
		return nil
	}
	return failure.Wrap(err, failure.Failed, "%s", name)
}
