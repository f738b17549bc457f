package safefs

import "golang.org/x/sys/unix"

// Type of a path.
type Type uint8

// The types.
const (
	Unknown Type = iota
	File
	Dir
	Symlink
	Fifo
	Socket
	CharDevice
	BlockDevice
)

func (t Type) String() string {
	return [...]string{"unknown", "file", "directory", "symlink", "fifo", "socket", "character device", "block device"}[t]
}

// Info is what is at a path; links are never followed.
type Info struct {
	Type    Type
	Mode    uint32 // permission bits with setuid (04000), setgid (02000) and sticky (01000)
	Size    int64
	Dev     uint64
	Ino     uint64
	Nlink   uint64
	MTimeNS int64
	CTimeNS int64
	UID     uint32
	GID     uint32
	Blocks  int64 // of 512 bytes: fewer than Size needs means a sparse file
	Mount   bool  // something else is mounted there: what is told is the mounted directory or file; it is never entered

	mount uint64 // id of the mount it lies on, 0 where the system does not tell
}

func (i Info) ordinary() error {
	switch i.Type {
	case File, Dir:
		return nil
	case Symlink:
		return ErrLink
	default:
		return ErrNotRegular
	}
}

// Same says whether both are the same file or directory.
func (i Info) Same(o Info) bool { return i.Dev == o.Dev && i.Ino == o.Ino }

func typeOf(mode uint32) Type {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return File
	case unix.S_IFDIR:
		return Dir
	case unix.S_IFLNK:
		return Symlink
	case unix.S_IFIFO:
		return Fifo
	case unix.S_IFSOCK:
		return Socket
	case unix.S_IFCHR:
		return CharDevice
	case unix.S_IFBLK:
		return BlockDevice
	default:
		return Unknown
	}
}

// statAt looks at a name in an open directory, or at the open directory or file itself when name is "".
func (r *Root) statAt(fd int, name string) (Info, error) {
	info, err := rawStat(fd, name)
	if err != nil {
		return info, err
	}
	if r.info.Ino != 0 {
		info.Mount = !r.sameMount(info)
	}
	return info, nil
}

// sameMount: devices alone mislead where one mount has several of them (overlayfs shows its files with the devices of its
// layers), so they decide only for directories, and only where the mount's id is unknown.
func (r *Root) sameMount(i Info) bool {
	if r.info.mount != 0 && i.mount != 0 {
		return r.info.mount == i.mount
	}
	return i.Type != Dir || i.Dev == r.info.Dev
}

func fromStat(st *unix.Stat_t) Info {
	mode := uint32(st.Mode) //nolint:unconvert // 16 bits on darwin
	return Info{
		Type: typeOf(mode), Mode: mode & 0o7777, Size: st.Size,
		Dev: uint64(st.Dev), Ino: st.Ino, Nlink: uint64(st.Nlink), //nolint:unconvert // differ by system
		MTimeNS: st.Mtim.Nano(), CTimeNS: st.Ctim.Nano(), UID: st.Uid, GID: st.Gid, Blocks: st.Blocks,
	}
}
