//go:build !linux

package system

import "io"

// DiscardTypeahead is not to be had here.
func DiscardTypeahead(io.Reader) {}
