package files

import (
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/laufwerk/laufwerk/internal/system/fault"
)

// Network is the name of the network file system that path is on, "" for a local one. Locks between machines, and renames
// that are seen at once, cannot be counted on there.
func Network(path string) (string, error) {
	if err := fault.Point("statfs", path); err != nil {
		return "", err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return "", &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	switch uint32(st.Type) {
	case unix.NFS_SUPER_MAGIC:
		return "NFS", nil
	case unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, 0xff534d42:
		return "SMB", nil
	case unix.V9FS_MAGIC:
		return "9P", nil
	case unix.FUSE_SUPER_MAGIC:
		return "FUSE", nil
	case unix.CEPH_SUPER_MAGIC:
		return "Ceph", nil
	case unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC:
		return "AFS", nil
	}
	return "", nil
}
