package files

import "golang.org/x/sys/unix"

// Network is the name of the network file system that path is on, "" for a local one. Locks between machines, and renames
// that are seen at once, cannot be counted on there.
func Network(path string) (string, error) {
	st, err := Statfs(path)
	if err != nil {
		return "", err
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
