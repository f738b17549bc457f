//go:build !linux

package safefs

import (
	"context"
	"net"

	"golang.org/x/sys/unix"
)

// chmodAt: without O_PATH the file must be readable to be pinned; a directory or file of mode 000 is changed by name, which
// here can be told not to follow a link.
func (r *Root) chmodAt(dir int, name string, mode uint32) error {
	info, err := r.statAt(dir, name)
	if err != nil {
		return err
	}
	if err := info.ordinary(); err != nil {
		return err
	}
	if info.Mount {
		return ErrMount
	}
	return unix.Fchmodat(dir, name, mode&0o7777, unix.AT_SYMLINK_NOFOLLOW)
}

const (
	dirFlags  = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	listFlags = dirFlags
	readFlags = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_NOFOLLOW | unix.O_CLOEXEC
)

func kernelResolves(int) bool { return false }

func (r *Root) openAt(at int, rel string, flags int, mode uint32) (int, error) {
	return r.openByElement(at, rel, flags, mode)
}

func renameNoReplace(fromDir int, from string, toDir int, to string) error {
	return unsupportedFlags(unix.RenameatxNp(fromDir, from, toDir, to, unix.RENAME_EXCL))
}

func exchange(fromDir int, from string, toDir int, to string) error {
	return unsupportedFlags(unix.RenameatxNp(fromDir, from, toDir, to, unix.RENAME_SWAP))
}

// Listen works on Linux only.
func (r *Root) Listen(rel string) (*net.UnixListener, error) {
	return nil, pathError("listen", rel, unix.EOPNOTSUPP)
}

// Connect works on Linux only.
func (r *Root) Connect(_ context.Context, rel string) (net.Conn, error) {
	return nil, pathError("connect", rel, unix.EOPNOTSUPP)
}

func rawStat(fd int, name string) (Info, error) {
	var st unix.Stat_t
	err := retry0("stat", func() error {
		if name == "" {
			return unix.Fstat(fd, &st)
		}
		return unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	})
	if err != nil {
		return Info{}, err
	}
	return fromStat(&st), nil
}

// clone: sharing blocks needs another call here, by path; files are copied.
func clone(int, int) error { return unix.EOPNOTSUPP }

// Sync asks the system to write out what waits; here it does not wait for the end of that.
func (r *Root) Sync() error {
	unix.Sync()
	return nil
}
