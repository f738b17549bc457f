//go:build !linux

package safefs

import "golang.org/x/sys/unix"

const (
	dirFlags  = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	listFlags = dirFlags
	readFlags = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_NOFOLLOW | unix.O_CLOEXEC
)

func kernelResolves(int) bool { return false }

func (r *Root) openAt(at int, rel string, flags int, mode uint32) (int, error) {
	return r.openByElement(at, rel, flags, mode)
}
