package safefs

import (
	"errors"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/laufwerk/laufwerk/internal/system/fault"
)

// Lstat looks at a path without opening or following it.
func (r *Root) Lstat(rel string) (Info, error) {
	if rel == "." {
		i, err := r.statAt(r.fd, "")
		return i, pathError("lstat", rel, err)
	}
	var info Info
	err := r.withParent("lstat", rel, func(dir int, name string) (err error) {
		info, err = r.statAt(dir, name)
		return err
	})
	return info, err
}

// Exists says whether something has this name, whatever it is.
func (r *Root) Exists(rel string) (bool, error) {
	_, err := r.Lstat(rel)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// ReadDir is the names in a directory, raw and sorted by bytes, all of them in memory.
func (r *Root) ReadDir(rel string) ([]string, error) {
	f, err := r.list("readdir", rel)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return names(f)
}

func (r *Root) list(op, rel string) (*fault.File, error) {
	if rel != "." {
		if err := check(op, rel); err != nil {
			return nil, err
		}
	}
	fd, err := r.open(rel, listFlags, 0)
	if err != nil {
		return nil, pathError(op, rel, err)
	}
	return newFile(fd, rel), nil
}

func names(f *fault.File) ([]string, error) {
	ns, err := f.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	slices.Sort(ns)
	return ns, nil
}

// Readlink is the target of a link, raw.
func (r *Root) Readlink(rel string) ([]byte, error) {
	var target []byte
	err := r.withParent("readlink", rel, func(dir int, name string) (err error) {
		target, err = readlinkAt(dir, name)
		return err
	})
	return target, err
}

func readlinkAt(dir int, name string) ([]byte, error) {
	for size := 256; ; size *= 4 {
		b := make([]byte, size)
		n, err := retry("readlink", func() (int, error) { return unix.Readlinkat(dir, name, b) })
		if err != nil {
			return nil, err
		}
		if n < size {
			return b[:n], nil
		}
	}
}

// Mkdir makes one directory with exactly these mode bits, whatever the umask.
func (r *Root) Mkdir(rel string, mode uint32) error {
	return r.withParent("mkdir", rel, func(dir int, name string) error {
		if err := retry0("mkdir", func() error { return unix.Mkdirat(dir, name, mode&0o777|0o300) }); err != nil {
			return err
		}
		return r.chmodAt(dir, name, mode)
	})
}

// Create makes a file that must not be there yet, open for writing and reading, with exactly these mode bits.
func (r *Root) Create(rel string, mode uint32) (*fault.File, error) {
	fd, err := r.createFile("create", rel, mode)
	if err != nil {
		return nil, err
	}
	return newFile(fd, rel), nil
}

// OpenOrCreate opens a regular file for writing and reading, and makes it with these mode bits where there is none. What is
// refused is refused as by Open.
func (r *Root) OpenOrCreate(rel string, mode uint32) (*fault.File, error) {
	if err := check("open", rel); err != nil {
		return nil, err
	}
	fd, err := r.open(rel, readFlags|unix.O_RDWR|unix.O_CREAT, mode)
	if err = openError(err); err != nil {
		return nil, pathError("open", rel, err)
	}
	if _, err := r.regular(fd); err != nil {
		_ = unix.Close(fd)
		return nil, pathError("open", rel, err)
	}
	return newFile(fd, rel), nil
}

func (r *Root) createFile(op, rel string, mode uint32) (int, error) {
	if err := check(op, rel); err != nil {
		return -1, err
	}
	fd, err := r.open(rel, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return -1, pathError(op, rel, err)
	}
	if mode != 0o600 {
		if err := fchmod(fd, mode); err != nil {
			_ = unix.Close(fd)
			return -1, pathError(op, rel, err)
		}
	}
	return fd, nil
}

func fchmod(fd int, mode uint32) error {
	return retry0("chmod", func() error { return unix.Fchmod(fd, mode&0o7777) })
}

// Symlink makes a link with exactly this target.
func (r *Root) Symlink(target, rel string) error {
	return r.withParent("symlink", rel, func(dir int, name string) error {
		return retry0("symlink", func() error { return unix.Symlinkat(target, dir, name) })
	})
}

// Chmod sets the mode bits of a file or directory; a link is refused with ErrLink, anything else with ErrNotRegular.
func (r *Root) Chmod(rel string, mode uint32) error {
	if rel == "." {
		return pathError("chmod", rel, r.chmodAt(r.fd, ".", mode))
	}
	return r.withParent("chmod", rel, func(dir int, name string) error { return r.chmodAt(dir, name, mode) })
}

// Lchown gives a path, which may be a link, to another user and group. It clears the setuid and setgid bits of a file.
func (r *Root) Lchown(rel string, uid, gid int) error {
	if rel == "." {
		return pathError("chown", rel, retry0("chown", func() error { return unix.Fchownat(r.fd, ".", uid, gid, unix.AT_SYMLINK_NOFOLLOW) }))
	}
	return r.withParent("chown", rel, func(dir int, name string) error {
		return retry0("chown", func() error { return unix.Fchownat(dir, name, uid, gid, unix.AT_SYMLINK_NOFOLLOW) })
	})
}

// Remove removes a file, link, fifo, socket or device; a directory is refused by the kernel (EISDIR or EPERM).
func (r *Root) Remove(rel string) error {
	return r.withParent("remove", rel, func(dir int, name string) error {
		return retry0("remove", func() error { return unix.Unlinkat(dir, name, 0) })
	})
}

// RemoveDir removes an empty directory.
func (r *Root) RemoveDir(rel string) error {
	return r.withParent("rmdir", rel, func(dir int, name string) error {
		return retry0("remove", func() error { return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR) })
	})
}

// Rename moves a to b and replaces a file that is there.
func (r *Root) Rename(a, b string) error {
	return r.rename("rename", a, b, unix.Renameat)
}

// RenameNoReplace moves a to b; fs.ErrExist where something is there, ErrNotSupported where the file system cannot promise it.
func (r *Root) RenameNoReplace(a, b string) error {
	return r.rename("rename", a, b, renameNoReplace)
}

// Exchange swaps a and b in one step; ErrNotSupported where the file system cannot.
func (r *Root) Exchange(a, b string) error {
	return r.rename("exchange", a, b, exchange)
}

func (r *Root) rename(op, a, b string, call func(fromDir int, from string, toDir int, to string) error) error {
	return r.withParent(op, a, func(aDir int, aName string) error {
		return r.withParent(op, b, func(bDir int, bName string) error {
			return retry0(op, func() error { return call(aDir, aName, bDir, bName) })
		})
	})
}

// unsupportedFlags turns the answers of a file system that does not know a rename's flags into ErrNotSupported. EINVAL also says
// that a directory was to be moved into itself; that no caller does, and it is refused all the same.
func unsupportedFlags(err error) error {
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTSUP) {
		return ErrNotSupported
	}
	return err
}

// SyncDir makes the names in a directory durable.
func (r *Root) SyncDir(rel string) error {
	f, err := r.list("syncdir", rel)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
