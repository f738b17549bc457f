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
