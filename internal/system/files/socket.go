package files

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/laufwerk/laufwerk/internal/system/fault"
)

// CheckConnectable says whether this process may connect to the unix socket at path: nil, or why not. Nothing is connected.
func CheckConnectable(path string) error {
	if err := fault.Point("access", path); err != nil {
		return err
	}
	if err := unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS); err != nil {
		return &fs.PathError{Op: "connect to", Path: path, Err: err}
	}
	return nil
}

// Readlink is what the symbolic link at path says.
func Readlink(path string) (string, error) {
	if err := fault.Point("readlink", path); err != nil {
		return "", err
	}
	return os.Readlink(path)
}
