package system

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// IgnorePipe lets a closed stdout be an error of the write instead of the end of the process: a worker outlives `| head -1`.
// The signal is taken and dropped, not ignored: commands that this process starts would inherit an ignored one, and a
// `yes | head -1` in an agent's shell would no longer end quietly.
func IgnorePipe() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// BrokenPipe says whether a write failed because nobody reads any more.
func BrokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }

// ReaderGone says whether nobody can read any more what is written to w. Only files can tell without being written to.
func ReaderGone(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		one := []unix.PollFd{{Fd: int32(fd)}} // no event is waited for: errors are reported all the same
		n, err := unix.Poll(one, 0)
		gone = err == nil && n == 1 && one[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
	})
	return err == nil && gone
}
