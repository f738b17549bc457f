// Package safefs works inside directories that an agent may write, and treats everything in them as hostile.
//
// A Root is recognised by device and inode, never by its path. Below it no link component is followed, no mount is crossed,
// and a file is opened without blocking and without following, then checked to be regular. On Linux the kernel holds these
// rules in one step (openat2 with RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS and RESOLVE_NO_XDEV, Linux 5.6); elsewhere each
// component is opened by itself and compared with the root's mount.
//
// Paths are raw bytes in strings, relative, slash separated and clean: "a/b", or "." for the root where a directory is
// wanted. Empty and absolute paths, "..", empty or "." components and NUL are refused with ErrPath.
package safefs

import (
	"errors"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/laufwerk/laufwerk/internal/system/fault"
)

// What is refused. All are wrapped in a *fs.PathError; a missing path is fs.ErrNotExist and so on, as everywhere.
var (
	ErrPath         = errors.New("not a clean relative path")
	ErrLink         = errors.New("a symbolic link is in the way")
	ErrMount        = errors.New("something else is mounted there")
	ErrNotRegular   = errors.New("not a regular file")
	ErrNotDir       = errors.New("not a directory")
	ErrRootReplaced = errors.New("the path no longer leads to the same directory")
	ErrNotSupported = errors.New("the file system cannot do this")
	ErrChanged      = errors.New("it was replaced while it was read")
)

// Root is an open directory. Its methods may be called by several goroutines at once, but not after Close.
type Root struct {
	fd        int
	path      string // for messages only
	info      Info
	byElement bool // no openat2 here: open component by component
}

// OpenRoot opens a directory as a root. The directory itself must not be a link; links in the path above it are the
// caller's affair (the path is trusted, what it names is recognised again with Check).
func OpenRoot(path string) (*Root, error) {
	path = filepath.Clean(path)
	fd, err := retry("open", func() (int, error) { return unix.Open(path, dirFlags, 0) })
	if err != nil {
		return nil, rootError(path, err)
	}
	return newRoot(fd, path)
}

// OpenRoot opens a directory below r as a root of its own.
func (r *Root) OpenRoot(rel string) (*Root, error) {
	fd, err := r.openDir("openroot", rel)
	if err != nil {
		return nil, err
	}
	return newRoot(fd, filepath.Join(r.path, rel))
}

func newRoot(fd int, path string) (*Root, error) {
	r := &Root{fd: fd, path: path, byElement: !kernelResolves(fd)}
	info, err := r.statAt(fd, "")
	if err != nil {
		_ = unix.Close(fd)
		return nil, &fs.PathError{Op: "openroot", Path: path, Err: err}
	}
	r.info = info
	return r, nil
}

func rootError(path string, err error) error {
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		var st unix.Stat_t
		if unix.Fstatat(unix.AT_FDCWD, path, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && uint32(st.Mode)&unix.S_IFMT == unix.S_IFLNK {
			err = ErrLink
		} else {
			err = ErrNotDir
		}
	}
	return &fs.PathError{Op: "openroot", Path: path, Err: err}
}

// ID is what recognises the root: device and inode.
func (r *Root) ID() (dev, ino uint64) { return r.info.Dev, r.info.Ino }

// Path is the path that the root was opened with, for messages.
func (r *Root) Path() string { return r.path }

// Check says whether path leads to this very directory: nil, ErrRootReplaced, or why it could not be learned
// (fs.ErrNotExist where nothing is there).
func (r *Root) Check(path string) error {
	path = filepath.Clean(path)
	var st unix.Stat_t
	if err := retry0("stat", func() error { return unix.Fstatat(unix.AT_FDCWD, path, &st, unix.AT_SYMLINK_NOFOLLOW) }); err != nil {
		return &fs.PathError{Op: "check", Path: path, Err: err}
	}
	if uint64(st.Dev) != r.info.Dev || st.Ino != r.info.Ino {
		return &fs.PathError{Op: "check", Path: path, Err: ErrRootReplaced}
	}
	return nil
}

// Close gives the root up.
func (r *Root) Close() error {
	if r == nil || r.fd < 0 {
		return nil
	}
	fd := r.fd
	r.fd = -1
	return unix.Close(fd)
}

// retry repeats a call that a signal interrupted, and one that the kernel could not decide because of a rename elsewhere.
func retry[T any](op string, call func() (T, error)) (v T, err error) {
	if err := fault.Point(op, ""); err != nil {
		return v, err
	}
	for tries := 0; ; tries++ {
		v, err = call()
		if err == unix.EINTR || (err == unix.EAGAIN && tries < 128) {
			continue
		}
		return v, err
	}
}

func retry0(op string, call func() error) error {
	_, err := retry(op, func() (struct{}, error) { return struct{}{}, call() })
	return err
}
