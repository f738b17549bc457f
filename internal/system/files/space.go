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
	st, err := Statfs(path)
	return FreeSpace{Bytes: uint64(st.Bavail) * uint64(st.Bsize), Inodes: uint64(st.Ffree), AllInodes: uint64(st.Files)}, err
}

// Statfs is what the system says of the file system that path is on.
func Statfs(path string) (st unix.Statfs_t, err error) {
	if err := fault.Point("statfs", path); err != nil {
		return st, err
	}
	if err := unix.Statfs(path, &st); err != nil {
		return unix.Statfs_t{}, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	return st, nil
}
