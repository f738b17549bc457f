//go:build !linux

package files

// Datasync makes a file's bytes, and its length, durable.
func Datasync(f *File) error { return f.Sync() }
