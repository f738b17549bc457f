//go:build !linux

package files

import "os"

// Datasync makes a file's bytes, and its length, durable.
func Datasync(f *os.File) error { return f.Sync() }
