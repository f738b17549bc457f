package system

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// SurviveClosedPipes lets a closed stdout or stderr be an error of the write instead of the end of the process: a worker outlives
// `| head -1`. Go ends a process for its writes to descriptors 1 and 2 alone (os/signal), so Out and Err become copies of them.
// IgnorePipe does as much for whatever else is written there, but to start its threads takes as long as all that a short command does.
func (e *Env) SurviveClosedPipes() {
	e.Out, e.Err = pipeSafeWriter(e.Out, os.Stdout, 1), pipeSafeWriter(e.Err, os.Stderr, 2)
}

func pipeSafeWriter(w io.Writer, stream *os.File, fd uintptr) io.Writer {
	if w != io.Writer(stream) {
		return w
	}
	number, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		IgnorePipe()
		return w
	}
	return os.NewFile(uintptr(number), stream.Name())
}

// IgnorePipe lets this be so for every write of the process, those of libraries too. The signal is taken and dropped, not
// ignored: commands that this process starts would inherit an ignored one, and a `yes | head -1` in an agent's shell would no
// longer end quietly.
func IgnorePipe() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// BrokenPipe says whether a write failed because nobody reads any more.
func BrokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }

// IsReaderGone says whether nobody can read any more what is written to w. Only files can tell without being written to.
func IsReaderGone(w io.Writer) bool {
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
