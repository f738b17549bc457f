//go:build !linux

package files

// Network is the name of the network file system that path is on, "" for a local one, and where that is not known.
func Network(string) (string, error) { return "", nil }
