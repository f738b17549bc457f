package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/laufwerk/laufwerk/internal/system/fault"
)

// Stage makes a directory in dir that only this user can look into, for a tree that will be renamed into its place.
func Stage(dir, name string) (string, error) { return mkdirTemp(dir, name+"-*") }

func mkdirTemp(dir, pattern string) (string, error) {
	return fault.Get("mkdir", dir, func(string) (string, error) { return os.MkdirTemp(dir, pattern) })
}

// CreateUserFile makes a new file in a directory of the user, with missing parents. The modes are those of any file that the user
// makes: the umask decides. It fails with fs.ErrExist where something has the name, be it a link that leads nowhere.
func CreateUserFile(path string, data []byte) error {
	dir := filepath.Dir(path)
	if err := fault.Do("mkdir", dir, func() error { return os.MkdirAll(dir, 0o777) }); err != nil {
		return err
	}
	f, err := openFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		_ = os.Remove(path)
		return err
	}
	return SyncDir(dir)
}

// Publish gives a file of the same file system its place, durably. It fails with fs.ErrExist where something has the name.
// On file systems without hard links, what appears in the moment of the call is replaced.
func Publish(from, to string) error {
	err := link(from, to)
	if err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) {
		if _, there := Lstat(to); there == nil {
			return fs.ErrExist
		}
		return Rename(from, to)
	}
	if err != nil {
		return err
	}
	return SyncDir(filepath.Dir(to))
}

// Replace puts a file of the same file system into the place of another, with the other's permissions, durably.
func Replace(from, to string) error {
	if info, err := Lstat(to); err == nil && info.Mode().IsRegular() {
		if err := chmod(from, info.Mode().Perm()); err != nil {
			return err
		}
	}
	return Rename(from, to)
}
