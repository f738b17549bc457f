package system

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// DiscardTypeahead throws away what was typed before a question was shown. It does nothing where in is no terminal.
func DiscardTypeahead(in io.Reader) {
	if f, ok := in.(*os.File); ok {
		_ = unix.IoctlSetInt(int(f.Fd()), unix.TCFLSH, unix.TCIFLUSH)
	}
}
