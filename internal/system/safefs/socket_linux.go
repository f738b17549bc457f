package safefs

import (
	"context"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/laufwerk/laufwerk/internal/system/fault"
)

// Listen makes a Unix socket with this name, in place of anything else that is no directory, and listens there. The name stays
// when the listener is closed: see Remove.
func (r *Root) Listen(rel string) (l *net.UnixListener, err error) {
	err = r.withParent("listen", rel, func(dir int, name string) error {
		if err := unix.Unlinkat(dir, name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
		if err := fault.Point("listen", name); err != nil {
			return err
		}
		// By way of the open directory: nothing on the way can be exchanged, and an address has 107 bytes only.
		l, err = net.ListenUnix("unix", &net.UnixAddr{Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir, name), Net: "unix"})
		if err == nil {
			l.SetUnlinkOnClose(false)
		}
		return err
	})
	return l, err
}

// Connect connects to the Unix socket with this name, and to none that a link of this name leads to. Where as many wait there
// as may, it fails.
func (r *Root) Connect(ctx context.Context, rel string) (net.Conn, error) {
	var conn net.Conn
	err := r.withParent("connect", rel, func(dir int, name string) error {
		fd, err := r.openAt(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		info, err := rawStat(fd, "")
		if err == nil && info.Type != Socket {
			err = unix.ENOTSOCK
		}
		if err != nil {
			return err
		}
		if err := fault.Point("connect", name); err != nil {
			return err
		}
		conn, err = new(net.Dialer).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", fd))
		return err
	})
	return conn, err
}
