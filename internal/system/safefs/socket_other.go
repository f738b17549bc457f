//go:build !linux

package safefs

import (
	"context"
	"net"

	"golang.org/x/sys/unix"
)

// Listen works on Linux only.
func (r *Root) Listen(rel string) (*net.UnixListener, error) {
	return nil, pathError("listen", rel, unix.EOPNOTSUPP)
}

// Connect works on Linux only.
func (r *Root) Connect(_ context.Context, rel string) (net.Conn, error) {
	return nil, pathError("connect", rel, unix.EOPNOTSUPP)
}
