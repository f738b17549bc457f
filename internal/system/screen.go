package system

import (
	"os"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// Screen is the size of the terminal on stderr; COLUMNS can make it narrower. ok is false where the size is not known, and
// while the terminal is somebody else's: this process runs in the background.
func (e *Env) Screen() (columns, rows int, ok bool) {
	f, isFile := e.Err.(*os.File)
	if !isFile {
		return 0, 0, false
	}
	columns, rows, err := term.GetSize(int(f.Fd()))
	if err != nil || columns < 1 || rows < 1 {
		return 0, 0, false
	}
	if n := atoi(e.Vars["COLUMNS"]); n > 0 {
		columns = min(columns, n)
	}
	// It fails on a terminal that is not the controlling one: nobody else is told to be in its foreground.
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return columns, rows, err != nil || group == unix.Getpgrp()
}
