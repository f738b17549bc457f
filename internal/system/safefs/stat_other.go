//go:build !linux

package safefs

import "golang.org/x/sys/unix"

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
