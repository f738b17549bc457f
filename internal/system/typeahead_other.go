//go:build !linux

package system

import "io"

// DropTypedAhead is not to be had here.
func DropTypedAhead(io.Reader) {}
