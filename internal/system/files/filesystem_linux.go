package files

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/laufwerk/laufwerk/internal/system/fault"
)

// Datasync makes a file's bytes, and its length, durable.
func Datasync(f *File) error {
	if err := fault.Point("sync", f.Name()); err != nil {
		return err
	}
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return err
		}
	}
}

// SyncAll makes everything durable that was written to the file system of dir: for trees that other programs wrote.
func SyncAll(dir string) error {
	d, err := fault.Get("sync", dir, os.Open)
	if err != nil {
		return err
	}
	defer d.Close()
	return unix.Syncfs(int(d.Fd()))
}

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
