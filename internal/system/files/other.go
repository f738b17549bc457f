//go:build !linux

package files

import "golang.org/x/sys/unix"

// Network is the name of the network file system that path is on, "" for a local one, and where that is not known.
func Network(string) (string, error) { return "", nil }

// Datasync makes a file's bytes, and its length, durable.
func Datasync(f *File) error { return f.Sync() }

// SyncAll makes everything durable that was written: for trees that other programs wrote.
func SyncAll(string) error {
	_ = unix.Sync()
	return nil
}
