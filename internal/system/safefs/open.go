package safefs

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/laufwerk/laufwerk/internal/system/fault"
)

// open opens a valid path of any length below the root.
func (r *Root) open(rel string, flags int, mode uint32) (int, error) {
	at := r.fd
	for {
		head, rest, done := chunk(rel)
		if done {
			fd, err := r.openAt(at, head, flags, mode)
			if at != r.fd {
				_ = unix.Close(at)
			}
			return fd, err
		}
		next, err := r.openAt(at, head, dirFlags, 0)
		if at != r.fd {
			_ = unix.Close(at)
		}
		if err != nil {
			return -1, err
		}
		at, rel = next, rest
	}
}

// openByElement is what the kernel does in openAt where it can: each component by itself, none a link, all on one mount.
func (r *Root) openByElement(at int, rel string, flags int, mode uint32) (int, error) {
	dir := at
	done := func(fd int, err error) (int, error) {
		if dir != at {
			_ = unix.Close(dir)
		}
		return fd, err
	}
	for {
		name, rest, more := strings.Cut(rel, "/")
		how, m := flags, mode
		if more {
			how, m = dirFlags, 0
		}
		fd, err := retry("open", func() (int, error) { return unix.Openat(dir, name, how|unix.O_NOFOLLOW|unix.O_CLOEXEC, m) })
		if errors.Is(err, unix.ENOTDIR) {
			if i, e := rawStat(dir, name); e == nil && i.Type == Symlink {
				err = unix.ELOOP
			}
		}
		if err != nil {
			return done(-1, err)
		}
		if name != "." {
			i, err := r.statAt(fd, "")
			if err == nil && i.Mount {
				err = unix.EXDEV
			}
			if err != nil {
				_ = unix.Close(fd)
				return done(-1, err)
			}
		}
		if !more {
			return done(fd, nil)
		}
		if dir != at {
			_ = unix.Close(dir)
		}
		dir, rel = fd, rest
	}
}

// openDir opens a directory to work in; "." is the root itself. The caller closes what comes.
func (r *Root) openDir(op, rel string) (int, error) {
	if rel != "." {
		if err := check(op, rel); err != nil {
			return -1, err
		}
	}
	fd, err := r.open(rel, dirFlags, 0)
	if err != nil {
		return -1, pathError(op, rel, err)
	}
	return fd, nil
}

// withParent runs do with the open directory that holds rel and rel's last name.
func (r *Root) withParent(op, rel string, do func(dir int, name string) error) error {
	if err := check(op, rel); err != nil {
		return err
	}
	dir, name := split(rel)
	at := r.fd
	if dir != "." {
		fd, err := r.open(dir, dirFlags, 0)
		if err != nil {
			return pathError(op, rel, err)
		}
		defer unix.Close(fd)
		at = fd
	}
	return pathError(op, rel, do(at, name))
}

// Open opens a regular file for reading. A link is refused with ErrLink, anything else with ErrNotRegular, without waiting
// for a fifo's writer.
func (r *Root) Open(rel string) (*fault.File, Info, error) {
	fd, info, err := r.openFile("open", rel)
	if err != nil {
		return nil, info, err
	}
	return newFile(fd, rel), info, nil
}

func newFile(fd int, name string) *fault.File {
	f, _ := fault.Open(os.NewFile(uintptr(fd), name), nil)
	return f
}

func (r *Root) openFile(op, rel string) (int, Info, error) {
	if err := check(op, rel); err != nil {
		return -1, Info{}, err
	}
	fd, err := r.open(rel, readFlags, 0)
	if err = openError(err); err != nil {
		return -1, Info{}, pathError(op, rel, err)
	}
	info, err := r.regular(fd)
	if err != nil {
		_ = unix.Close(fd)
		return -1, info, pathError(op, rel, err)
	}
	return fd, info, nil
}

// openError is the kernel's answer to opening what is no file: a socket, a device without driver, a directory to be written.
func openError(err error) error {
	for _, e := range []error{unix.ENXIO, unix.ENODEV, unix.EOPNOTSUPP, unix.EISDIR} {
		if errors.Is(err, e) {
			return ErrNotRegular
		}
	}
	return err
}

func (r *Root) regular(fd int) (Info, error) {
	info, err := r.statAt(fd, "")
	switch {
	case err != nil:
	case info.Type != File:
		err = ErrNotRegular
	case info.Mount:
		err = ErrMount
	}
	return info, err
}

// pathError names operation and path, and turns the kernel's answers into this package's refusals.
func pathError(op, rel string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ELOOP):
		err = ErrLink
	case errors.Is(err, unix.EXDEV):
		err = ErrMount
	case errors.Is(err, unix.ENOTDIR):
		err = ErrNotDir
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return err
	}
	return &fs.PathError{Op: op, Path: rel, Err: err}
}
