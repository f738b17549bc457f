package safefs

import "golang.org/x/sys/unix"

const nsPerSec = 1_000_000_000

// rawStat uses statx for the mount id (Linux 5.8), which plain stat does not tell.
func rawStat(fd int, name string) (Info, error) {
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	var x unix.Statx_t
	err := retry0("stat", func() error {
		return unix.Statx(fd, name, flags, unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, &x)
	})
	if err == unix.ENOSYS || err == unix.EPERM {
		return plainStat(fd, name, flags)
	}
	if err != nil {
		return Info{}, err
	}
	i := Info{
		Type: typeOf(uint32(x.Mode)), Mode: uint32(x.Mode) & 0o7777, Size: int64(x.Size),
		Dev: unix.Mkdev(x.Dev_major, x.Dev_minor), Ino: x.Ino, Nlink: uint64(x.Nlink),
		MTimeNS: x.Mtime.Sec*nsPerSec + int64(x.Mtime.Nsec), CTimeNS: x.Ctime.Sec*nsPerSec + int64(x.Ctime.Nsec),
		UID: x.Uid, GID: x.Gid, Blocks: int64(x.Blocks),
	}
	if x.Mask&unix.STATX_MNT_ID != 0 {
		i.mount = x.Mnt_id
	}
	return i, nil
}

func plainStat(fd int, name string, flags int) (Info, error) {
	var st unix.Stat_t
	if err := retry0("stat", func() error { return unix.Fstatat(fd, name, &st, flags) }); err != nil {
		return Info{}, err
	}
	return fromStat(&st), nil
}
