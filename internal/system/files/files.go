// Package files is the door to laufwerk's own state on disk: trusted directories that only this user writes.
// Everything written here is durable when the call returns: the bytes are fsynced, and so is the directory that names them.
// Directories that an agent can write are opened through safefs instead.
package files

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"

	"github.com/laufwerk/laufwerk/internal/system/fault"
)

// Modes of everything below $LAUFWERK_HOME.
const (
	DirMode  fs.FileMode = 0o700
	FileMode fs.FileMode = 0o600
)

// MkdirAll makes dir and its parents, private to the user. The names of all that it made are durable.
func MkdirAll(dir string) error {
	there, err := isDir(dir)
	if there || err != nil {
		return err
	}
	if parent := filepath.Dir(dir); parent != dir {
		if err := MkdirAll(parent); err != nil {
			return err
		}
	}
	err = Mkdir(dir)
	if errors.Is(err, fs.ErrExist) { // somebody else made it this moment, or it is a link that leads nowhere
		if there, e := isDir(dir); there || e != nil {
			return e
		}
	}
	return err
}

func isDir(path string) (bool, error) {
	st, err := Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case !st.IsDir():
		return false, &fs.PathError{Op: "mkdir", Path: path, Err: errors.New("a file is in the way")}
	}
	return true, nil
}

// Mkdir makes one directory; it fails with fs.ErrExist where there is one.
func Mkdir(dir string) error {
	if err := fault.Do("mkdir", dir, func() error { return os.Mkdir(dir, DirMode) }); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(dir))
}

// SyncDir makes the names in a directory durable.
func SyncDir(dir string) error {
	d, err := Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Read is the whole file. What is no regular file is an error: a FIFO would be waited for without end.
func Read(path string) ([]byte, error) {
	return fault.Get("read", path, func(path string) ([]byte, error) {
		f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
			return nil, cmp.Or(err, error(&fs.PathError{Op: "read", Path: path, Err: errors.New("not a regular file")}))
		}
		return io.ReadAll(f)
	})
}

// ReadJSON decodes a file; a missing one is fs.ErrNotExist.
func ReadJSON(path string, into any) error {
	b, err := Read(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Write replaces a file atomically: temporary file, fsync, rename, fsync of the directory. A full disk leaves the old one.
func Write(path string, data []byte) error {
	return write(path, data, true, func(tmp string) error { return rename(tmp, path) })
}

// WriteJSON is Write of v, indented for people who look.
func WriteJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return Write(path, append(b, '\n'))
}

// WriteVolatile replaces a file atomically, and is in no hurry to make it durable: after a power failure it may be the old one,
// empty or torn. It is for what can be made again and tells by itself whether it is whole.
func WriteVolatile(path string, data []byte) error {
	return write(path, data, false, func(tmp string) error { return rename(tmp, path) })
}

// Create makes a file that must not be there yet, whole or not at all; it fails with fs.ErrExist where there is one.
func Create(path string, data []byte) error {
	return write(path, data, true, func(tmp string) error {
		defer func() { _ = os.Remove(tmp) }()
		return link(tmp, path)
	})
}

func createTemp(dir string) (*File, error) {
	if err := fault.Point("create", dir); err != nil {
		return nil, err
	}
	return fault.Open(os.CreateTemp(dir, ".tmp-*"))
}

func rename(from, to string) error {
	return fault.Do("rename", to, func() error { return os.Rename(from, to) })
}

func link(from, to string) error {
	return fault.Do("link", to, func() error { return os.Link(from, to) })
}

func write(path string, data []byte, durable bool, publish func(tmp string) error) error {
	dir := filepath.Dir(path)
	f, err := createTemp(dir)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil && durable {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = publish(f.Name())
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	if err != nil || !durable {
		return err
	}
	return SyncDir(dir)
}

// Names are the entries of a directory, sorted, temporary files of Write left out; a missing directory has none.
func Names(dir string) ([]string, error) { return names(dir, false) }

// TemporaryFiles are the temporary files of Write and WriteVolatile in a directory: being written now, or left by a process that was
// killed.
func TemporaryFiles(dir string) ([]string, error) { return names(dir, true) }

func names(dir string, temporary bool) ([]string, error) {
	es, err := fault.Get("readdir", dir, os.ReadDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(es))
	for _, e := range es {
		if n := e.Name(); strings.HasPrefix(n, ".tmp-") == temporary {
			names = append(names, n)
		}
	}
	sort.Strings(names)
	return names, nil
}

// Stat follows links: it is for trusted paths.
func Stat(path string) (fs.FileInfo, error) {
	return fault.Get("stat", path, os.Stat)
}

// Lstat does not follow a link.
func Lstat(path string) (fs.FileInfo, error) {
	return fault.Get("stat", path, os.Lstat)
}

// Exists says whether something may be at path: where a failure keeps that from being known it does, so that nobody takes what
// cannot be read for what is gone.
func Exists(path string) bool {
	_, err := Lstat(path)
	return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR)
}

// Remove removes a file or an empty directory; a missing one is no error. The removal is durable.
func Remove(path string) error {
	if err := fault.Do("remove", path, func() error { return os.Remove(path) }); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := SyncDir(filepath.Dir(path)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// RemoveAll removes a tree that only laufwerk wrote. It must never be used on a tree that an agent could write: see safefs.
func RemoveAll(path string) error {
	return fault.Do("remove", path, func() error { return os.RemoveAll(path) })
}

// Rename renames within one file system, durably.
func Rename(from, to string) error {
	if err := rename(from, to); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(to))
}

// Append opens a file for appending, creating it privately.
func Append(path string) (*File, error) {
	return openFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, FileMode)
}

func openFile(path string, flag int, mode fs.FileMode) (*File, error) {
	if err := fault.Point("open", path); err != nil {
		return nil, err
	}
	return fault.Open(os.OpenFile(path, flag, mode))
}

// Open opens a file for reading.
func Open(path string) (*File, error) { return openFile(path, os.O_RDONLY, 0) }

// File is an open file of ours.
type File = fault.File

// TempDir makes a private temporary folder of the system's.
func TempDir(prefix string) (string, error) { return mkdirTemp("", prefix) }
