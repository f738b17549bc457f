package safefs

import "golang.org/x/sys/unix"

func fromStat(st *unix.Stat_t) Info {
	mode := uint32(st.Mode) //nolint:unconvert // 16 bits on darwin
	return Info{
		Type: typeOf(mode), Mode: mode & 0o7777, Size: st.Size,
		Dev: uint64(st.Dev), Ino: st.Ino, Nlink: uint64(st.Nlink), //nolint:unconvert // differ by system
		MTimeNS: st.Mtim.Nano(), CTimeNS: st.Ctim.Nano(), UID: st.Uid, GID: st.Gid, Blocks: st.Blocks,
	}
}
