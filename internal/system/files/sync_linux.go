package files

import (
	"os"

	"golang.org/x/sys/unix"
)

// Datasync makes a file's bytes, and its length, durable.
func Datasync(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return err
		}
	}
}
