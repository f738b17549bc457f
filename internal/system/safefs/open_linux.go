package safefs

import "golang.org/x/sys/unix"

// dirFlags open a directory to work in: needs no permission to read it.
const (
	dirFlags  = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	listFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	readFlags = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_NOFOLLOW | unix.O_CLOEXEC
)

// The last component is covered as well: O_NOFOLLOW refuses it if it is a link, and with O_PATH opens the link itself.
const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_MAGICLINKS

// kernelResolves says whether openat2 works: it is missing before Linux 5.6, and older container engines' seccomp profiles
// answer EPERM.
func kernelResolves(fd int) bool {
	got, err := retry("open", func() (int, error) {
		return unix.Openat2(fd, ".", &unix.OpenHow{Flags: uint64(dirFlags), Resolve: resolve})
	})
	if err != nil {
		return false
	}
	_ = unix.Close(got)
	return true
}

// openAt opens a clean path of less than PATH_MAX bytes below the open directory at.
func (r *Root) openAt(at int, rel string, flags int, mode uint32) (int, error) {
	if r.byElement {
		return r.openByElement(at, rel, flags, mode)
	}
	open := func(flags int, mode uint32) (int, error) {
		return retry("open", func() (int, error) {
			return unix.Openat2(at, rel, &unix.OpenHow{Flags: uint64(flags), Mode: uint64(mode), Resolve: resolve})
		})
	}
	fd, err := open(flags, mode)
	if err == unix.ENOTDIR && flags&unix.O_DIRECTORY != 0 { // that is what a link in the last place is called here
		if link, e := open(unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); e == nil {
			if i, e := rawStat(link, ""); e == nil && i.Type == Symlink {
				err = unix.ELOOP
			}
			_ = unix.Close(link)
		}
	}
	return fd, err
}
