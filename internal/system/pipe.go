package system

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// IgnorePipe lets a closed stdout be an error of the write instead of the end of the process: a worker outlives `| head -1`.
// The signal is taken and dropped, not ignored: commands that this process starts would inherit an ignored one, and a
// `yes | head -1` in an agent's shell would no longer end quietly.
func IgnorePipe() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// BrokenPipe says whether a write failed because nobody reads any more.
func BrokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }
