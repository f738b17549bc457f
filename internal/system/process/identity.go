// Package process is the door to processes: who one is, whether it still lives, how it is signalled without ever hitting
// another one, how it is started, owned, and ended with everything that it started.
//
// Linux is complete. Elsewhere the package builds, and what needs Linux fails with ErrUnsupported.
package process

import (
	"errors"

	"github.com/laufwerk/laufwerk/internal/system/fault"
)

// ErrUnsupported says that this system lacks what laufwerk needs to own processes.
var ErrUnsupported = errors.New("owning processes needs Linux")

// ErrGone says that the process is not there any more, or that another one has its id.
var ErrGone = errors.New("the process is gone")

// File is an open file.
type File = fault.File

// Identity is a process that cannot be mistaken for another one.
type Identity struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"startTime"` // clock ticks since boot
	BootID    string `json:"bootId"`
	PIDNS     string `json:"pidns"`
}

// Liveness is what is known of a recorded process.
type Liveness int

// OtherNamespace is a process of another PID namespace: from here nothing can be said about it.
const (
	OtherNamespace Liveness = iota
	Alive
	Dead      // it ended (an unreaped zombie has ended too), or another process has its id now
	OtherBoot // the machine was started again since: it cannot live
)

// Status is how a reaped child ended.
type Status struct {
	PID    int
	Code   int // 128+n after signal n
	Signal int // 0 where it exited by itself
}
