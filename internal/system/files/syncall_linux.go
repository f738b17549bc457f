package files

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/laufwerk/laufwerk/internal/system/fault"
)

// SyncAll makes everything durable that was written to the file system of dir: for trees that other programs wrote.
func SyncAll(dir string) error {
	if err := fault.Point("sync", dir); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return unix.Syncfs(int(d.Fd()))
}
