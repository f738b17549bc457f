package files

import (
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
