package process

import (
	"errors"
	"io"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laufwerk/laufwerk/internal/system/fault"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// stderrKept is how much of the end of a child's stderr is kept, in bytes.
const stderrKept = 8 << 10

// Child is a process that this one started and that speaks over its stdin and stdout.
type Child struct {
	Stdin  io.WriteCloser
	Stdout io.ReadCloser

	cmd    *exec.Cmd
	stderr *tail
	once   sync.Once
	state  error
}

// StartChild starts argv with exactly env and no descriptors but the three pipes. The child is in a process group of its
// own, so that a terminal's SIGINT reaches only its parent, and on Linux it can gain no privileges by exec. It has no parent-death signal (that would fire when the
// starting *thread* ends): it must end by itself when its stdin does.
func StartChild(argv, env []string) (*Child, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(fault.Environment(), env...)
	if cmd.Env == nil {
		cmd.Env = []string{}
	}
	cmd.Dir = "/"
	cmd.SysProcAttr = childAttr()
	if err := fault.Point("pipe", ""); err != nil {
		return nil, err
	}
	c := &Child{cmd: cmd, stderr: &tail{}}
	cmd.Stderr = c.stderr
	var err error
	if c.Stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if c.Stdout, err = cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := fault.Do("exec", argv[0], func() error { return startUnprivileged(cmd) }); err != nil {
		return nil, err
	}
	return c, nil
}

// PID is the child's process id.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Kill ends the child at once. It may be called at any time, also after the end.
func (c *Child) Kill() { _ = c.cmd.Process.Kill() }

// Wait waits for the end, after Stdout was read to its end or closed. It may be called more than once.
func (c *Child) Wait() error {
	c.once.Do(func() { c.state = c.cmd.Wait() })
	return c.state
}

// Stderr is the end of what the child wrote to stderr.
func (c *Child) Stderr() string { return c.stderr.String() }

type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if over := len(t.b) - stderrKept; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}

// CloseInherited closes the descriptors beyond the three streams that came from the starting process: whatever this process
// opened itself is marked close-on-exec, and nothing that is could have been inherited.
func CloseInherited() error {
	names, err := descriptorNames()
	if err != nil {
		return err
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd <= 2 {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
	return nil
}

func descriptorNames() ([]string, error) {
	// A directory of one's own descriptors: a sandbox on Linux may lack the link /dev/fd, other systems have no /proc.
	d, err := files.Open("/proc/self/fd")
	if err != nil {
		d, err = files.Open("/dev/fd")
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

// OnStdinHangUp calls do once nobody can write to stdin, a pipe, any more. It occupies a thread, and is woken by nothing else:
// not by what is written.
func OnStdinHangUp(do func()) {
	for {
		p := []unix.PollFd{{Fd: 0, Events: unix.POLLHUP}} // that it is asked for counts outside of Linux only
		if _, err := unix.Poll(p, -1); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			return
		}
		if p[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0 {
			do()
			return
		}
		time.Sleep(100 * time.Millisecond) // a system that tells of more than it was asked for
	}
}
