package safefs

import (
	"errors"
	"strconv"

	"golang.org/x/sys/unix"
)

func renameNoReplace(fromDir int, from string, toDir int, to string) error {
	return unsupportedFlags(unix.Renameat2(fromDir, from, toDir, to, unix.RENAME_NOREPLACE))
}

func exchange(fromDir int, from string, toDir int, to string) error {
	return unsupportedFlags(unix.Renameat2(fromDir, from, toDir, to, unix.RENAME_EXCHANGE))
}

func clone(to, from int) error { return unix.IoctlFileClone(to, from) }

// Sync makes everything below the root durable, and whatever else waits to be written on its file system.
func (r *Root) Sync() error {
	f, err := r.list("sync", ".")
	if err != nil {
		return err
	}
	defer f.Close()
	return pathError("sync", ".", retry0("sync", func() error { return unix.Syncfs(int(f.Fd())) }))
}

// chmodAt pins the inode with O_PATH first, so that a link that is swapped in cannot redirect the change. fchmodat2 is of
// Linux 6.6; before it, the magic link in /proc leads to exactly the pinned inode.
func (r *Root) chmodAt(dir int, name string, mode uint32) error {
	fd, err := r.openAt(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	info, err := r.statAt(fd, "")
	if err != nil {
		return err
	}
	if err := info.ordinary(); err != nil {
		return err
	}
	if info.Mode == mode&0o7777 {
		return nil
	}
	err = retry0("chmod", func() error { return unix.Fchmodat(fd, "", mode&0o7777, unix.AT_EMPTY_PATH) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
		err = unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), mode&0o7777)
	}
	return err
}
