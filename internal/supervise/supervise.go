// Package supervise runs a command under a supervisor: a process of its own that outlives the worker, owns the command's
// whole tree, keeps its output in files, and writes durably how it ended. A worker that comes back attaches to it again.
//
// One operation has one directory of records (it may be inside a sandbox's mount, so all of it is plain files):
//
//	lock        held by the supervisor from before it spawns until everything it owns has ended
//	abandoned   written by a worker that found neither lock nor exit: a supervisor that comes late must not spawn
//	started     JSON Started: who the supervisor and the command are, fsynced before the command can run
//	stdout      what the command wrote, at most Spec.MaxOutput bytes; the rest is drained and counted
//	stderr      likewise
//	exit        JSON Exit, written durably once the command has ended
//	gone        JSON Fenced, written when nothing of it is left
package supervise

import (
	"context"
	"syscall"
	"time"
)

// Spec is what to run. It reaches the supervisor through its stdin, never through the disk or its arguments, since
// environment values may be secret.
type Spec struct {
	Argv      []string       `json:"argv"`
	Env       []string       `json:"env"`
	Dir       string         `json:"dir"` // working directory, as the supervisor sees it
	Stdin     []byte         `json:"stdin,omitempty"`
	Timeout   time.Duration  `json:"timeout,omitempty"` // 0 is none
	Grace     time.Duration  `json:"grace,omitempty"`   // between Interrupt and the end of the tree
	Interrupt syscall.Signal `json:"interrupt,omitempty"`
	MaxOutput int64          `json:"maxOutput"` // bytes per stream
	Mark      string         `json:"mark"`      // value of LAUFWERK_MARK in every process's environment: session and operation
}

// Identity is a process that cannot be mistaken for another one.
type Identity struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"startTime"` // clock ticks since boot
	BootID    string `json:"bootId"`
	PIDNS     string `json:"pidns"`
}

// Started is the record before the command runs.
type Started struct {
	Supervisor Identity  `json:"supervisor"`
	Mark       string    `json:"mark"`
	Cgroup     string    `json:"cgroup,omitempty"` // directory of its own cgroup v2; "" where none could be had
	At         time.Time `json:"at"`
}

// Exit is how the command ended.
type Exit struct {
	Code        int       `json:"code"` // 128+n after signal n
	Signal      int       `json:"signal,omitempty"`
	Error       string    `json:"error,omitempty"` // it could not be started: why
	TimedOut    bool      `json:"timedOut,omitempty"`
	Interrupted bool      `json:"interrupted,omitempty"` // ended because it was asked to
	StdoutBytes int64     `json:"stdoutBytes"`           // written by the command, stored or not
	StderrBytes int64     `json:"stderrBytes"`
	StartedAt   time.Time `json:"startedAt"`
	EndedAt     time.Time `json:"endedAt"`
}

// Status of an operation's directory.
type Status int

// Nothing is NotStarted until `abandoned` makes it so for good.
const (
	NotStarted Status = iota // no supervisor ever got as far as spawning, and none will
	Running                  // the supervisor lives and the command has not ended
	Ended                    // there is an exit record; background processes may still be owned
	Lost                     // it was started, there is no exit record, and the supervisor is gone
)

func (s Status) String() string { return [...]string{"not started", "running", "ended", "lost"}[s] }

// Fenced says what is left after a fence. Sure is false where something may have escaped our sight.
type Fenced struct {
	Sure      bool      `json:"sure"`
	How       string    `json:"how"` // "cgroup", "subreaper", "marks", "boot", "nothing started"
	Survivors []int     `json:"survivors,omitempty"`
	Why       string    `json:"why,omitempty"` // of Sure == false
	At        time.Time `json:"at"`
}

// Launcher starts supervisors and reaches them: on this host, or inside a sandbox.
type Launcher interface {
	// Launch starts a supervisor on dir and hands it spec. It returns once the supervisor has read spec or is known not to run;
	// an error that leaves this open is a failure of kind OutcomeUnknown.
	Launch(ctx context.Context, dir string, spec Spec) error
	// Interrupt asks the command to stop in its own way; after the grace period the supervisor ends the tree.
	Interrupt(ctx context.Context, dir string) error
	// Fence ends everything of this operation, with or without a living supervisor.
	Fence(ctx context.Context, dir string) Fenced
}
