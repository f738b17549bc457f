//go:build !linux

package gateway

import "net"

// byRoot cannot be asked here; there are no containers here either.
func byRoot(net.Conn) bool { return true }
