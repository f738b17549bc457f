package gateway

import (
	"net"

	"golang.org/x/sys/unix"
)

// byRoot says whether the other end of a connection is root's, as a supervisor is.
func byRoot(conn net.Conn) bool {
	raw, err := conn.(*net.UnixConn).SyscallConn() //nolint:errcheck // there are no others
	if err != nil {
		return false
	}
	uid := uint32(1)
	_ = raw.Control(func(fd uintptr) {
		if credentials, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			uid = credentials.Uid
		}
	})
	return uid == 0
}
