//go:build !linux

package process

import (
	"context"
	"os/exec"
	"syscall"
)

// Cgroup does not exist here.
type Cgroup struct{}

// Command is a program to start in a session of its own.
type Command struct {
	Path                  string
	Argv, Env             []string
	Dir                   string
	Stdin, Stdout, Stderr *File
	Cgroup                *Cgroup
	Expendable            bool
}

// Stream does not exist here.
type Stream struct{}

// What needs Linux fails here with ErrUnsupported, or knows nothing.
func Supported() error                                         { return ErrUnsupported }
func Self() (Identity, error)                                  { return Identity{}, ErrUnsupported }
func KillStopped(string, ...string) int                        { return 0 }
func Probe(Identity) Liveness                                  { return OtherNamespace }
func Signal(Identity, syscall.Signal) error                    { return ErrUnsupported }
func Reap() (ended []Status, empty bool)                       { return nil, true }
func Descendants(int) []Identity                               { return nil }
func KillChildren() int                                        { return 0 }
func KillDescendants()                                         {}
func IsProcessLimit(error) bool                                { return false }
func SpareThreads()                                            {}
func SignalGroup(int, syscall.Signal) error                    { return ErrUnsupported }
func SignalInSandbox(Identity, syscall.Signal) error           { return ErrUnsupported }
func FindMarked(string, func(string) bool) ([]Identity, error) { return nil, ErrUnsupported }
func CgroupPath(string) (dir, why string)                      { return "", ErrUnsupported.Error() }
func MakeCgroup(string) (*Cgroup, error)                       { return nil, ErrUnsupported }
func OpenCgroup(string) (*Cgroup, error)                       { return nil, ErrUnsupported }
func FindCgroups(string) []string                              { return nil }
func AllMarks(string) ([]Mark, error)                          { return nil, ErrUnsupported }
func FindByArguments(func([]string) bool) ([]Identity, error)  { return nil, ErrUnsupported }
func Executing(string) []int                                   { return nil }
func (*Cgroup) Populated() (bool, error)                       { return true, ErrUnsupported }
func (*Cgroup) Kill() error                                    { return ErrUnsupported }
func (*Cgroup) End(context.Context) error                      { return ErrUnsupported }
func (*Cgroup) Remove() error                                  { return ErrUnsupported }
func (*Cgroup) PIDs() []int                                    { return nil }
func Spawn(Command, bool) (int, error)                         { return 0, ErrUnsupported }
func BecomeOwner() (<-chan syscall.Signal, error)              { return nil, ErrUnsupported }
func ChildEnded() <-chan struct{}                              { return nil }
func Pipe(bool) (stdin, w *File, err error)                    { return nil, nil, ErrUnsupported }
func DetachStdio() error                                       { return ErrUnsupported }
func Find(string, string, string) (string, error)              { return "", ErrUnsupported }
func NewStream(func([]byte)) (s *Stream, w *File, err error)   { return nil, nil, ErrUnsupported }
func (*Stream) Run()                                           {}
func IgnoreSignals()                                           {}
func CatchSignals()                                            {}
func UnignoreSignals()                                         {}
func KeepOpen(*File)                                           {}
func Daemonize(string) (*File, error)                          { return nil, ErrUnsupported }
func (*Stream) Drain()                                         {}
func (*Stream) Done() <-chan struct{}                          { return nil }

// Mark is a process with the value of a variable in its initial environment.
type Mark struct {
	Identity
	Value string
}

// Arguments cannot be read here.
func Arguments(int) []string { return nil }

func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func startUnprivileged(cmd *exec.Cmd) error { return cmd.Start() }

// Confine does nothing here: the limits of the script engine and the parent's deadline are all there is.
func Confine(uint64) error { return nil }
