package files

import (
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/laufwerk/laufwerk/internal/system/fault"
)

// FreeSpace is what a file system has left for this user.
type FreeSpace struct {
	Bytes  uint64
	Inodes uint64 // 0 with AllInodes 0 where the file system makes them as it needs them
	// AllInodes is how many there are in all.
	AllInodes uint64
}

// Space is the room on the file system of path.
func Space(path string) (FreeSpace, error) {
	if err := fault.Point("statfs", path); err != nil {
		return FreeSpace{}, err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return FreeSpace{}, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	return FreeSpace{Bytes: uint64(st.Bavail) * uint64(st.Bsize), Inodes: uint64(st.Ffree), AllInodes: uint64(st.Files)}, nil
}
