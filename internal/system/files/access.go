package files

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/laufwerk/laufwerk/internal/system/fault"
)

// Owner is the user id that owns what info describes.
func Owner(info fs.FileInfo) (uid int, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(st.Uid), true
}

// Inode is the identity of what info describes on its file system, 0 where there is none.
func Inode(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}

// Writable says whether this process may make names in dir: nil, or why not. It also finds read-only file systems.
func Writable(dir string) error {
	return access("write to", dir, func() error { return unix.Access(dir, unix.W_OK|unix.X_OK) })
}

// CheckConnectable says whether this process may connect to the unix socket at path: nil, or why not. Nothing is connected.
func CheckConnectable(path string) error {
	return access("connect to", path, func() error { return unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS) })
}

func access(op, path string, ask func() error) error {
	if err := fault.Point("access", path); err != nil {
		return err
	}
	if err := ask(); err != nil {
		return &fs.PathError{Op: op, Path: path, Err: err}
	}
	return nil
}

// MakePrivate takes all access from the group and from others.
func MakePrivate(dir string) error { return chmod(dir, DirMode) }

func chmod(path string, mode fs.FileMode) error {
	return fault.Do("chmod", path, func() error { return os.Chmod(path, mode) })
}

// NoSpace says whether err comes from a full disk or an exhausted quota.
func NoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// DiskFailed says whether err tells of a disk that could not be read or written.
func DiskFailed(err error) bool { return errors.Is(err, syscall.EIO) }

// MachineFailed says whether err tells of the machine, and not of what was asked of it: a disk that is full or fails, or no more
// open files, memory, processes or locks.
func MachineFailed(err error) bool {
	exhausted := []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN, syscall.ENOLCK}
	return NoSpace(err) || DiskFailed(err) || slices.ContainsFunc(exhausted, func(e error) bool { return errors.Is(err, e) })
}

// NotWritable says whether err comes from a read-only file system or a missing permission.
func NotWritable(err error) bool {
	return errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission)
}

// OpenFile is os.OpenFile that follows no link at the last component and never waits for the other side of a fifo.
func OpenFile(path string, flag int, mode fs.FileMode) (*File, error) {
	return openFile(path, flag|unix.O_NOFOLLOW|unix.O_NONBLOCK, mode)
}

// OpenForeign is OpenFile for libraries, which want the operating system's own file.
func OpenForeign(path string, flag int, mode fs.FileMode) (*os.File, error) {
	f, err := OpenFile(path, flag, mode)
	return fault.Unwrap(f), err
}

// Overwrite writes data over the beginning of a file, in place and durably, creating it where it is missing. It is for
// records that fit into one sector: those are replaced whole or not at all.
func Overwrite(path string, data []byte) error {
	f, err := OpenFile(path, os.O_CREATE|os.O_WRONLY, FileMode)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if _, err := f.WriteAt(data, 0); err != nil {
		return err
	}
	return Datasync(f)
}

// Readlink is what the symbolic link at path says.
func Readlink(path string) (string, error) {
	return fault.Get("readlink", path, os.Readlink)
}
