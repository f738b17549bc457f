package process

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/laufwerk/laufwerk/internal/system/fault"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// Command is a program to start in a session of its own.
type Command struct {
	Path   string // of the executable, see Find
	Argv   []string
	Env    []string
	Dir    string
	Stdin  *File
	Stdout *File
	Stderr *File
	Cgroup *Cgroup // nil: that of this process
	// Expendable says that the command and what it starts are to be killed before this process is where memory runs out.
	Expendable bool
}

// Spawn starts c with no descriptors but the three, and gives its process id. Where the calling goroutine is bound to its
// thread for as long as this process lives (see Own), the program is killed when this process is.
func Spawn(c Command, withOwner bool) (int, error) {
	attr := &syscall.ProcAttr{
		Dir: c.Dir, Env: c.Env,
		Files: []uintptr{c.Stdin.Fd(), c.Stdout.Fd(), c.Stderr.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	}
	if withOwner {
		attr.Sys.Pdeathsig = syscall.SIGKILL
	}
	if c.Cgroup != nil {
		d, err := files.Open(c.Cgroup.dir)
		if err != nil {
			return 0, err
		}
		defer d.Close()
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(d.Fd())
	}
	if c.Expendable {
		defer makeOOMVictim()()
	}
	if err := fault.Point("exec", ""); err != nil {
		return 0, err
	}
	pid, err := syscall.ForkExec(c.Path, c.Argv, attr)
	runtime.KeepAlive(c)
	return pid, err
}

// IsProcessLimit says of an error of Spawn that there may be no process more, of this user or in the control group.
func IsProcessLimit(err error) bool { return errors.Is(err, unix.EAGAIN) }

// makeOOMVictim makes this process the first to be killed where memory runs out, which what it starts inherits, until the result
// is called. Where that cannot be done the kernel goes by size, as ever. See proc_pid_oom_score_adj(5): the value is in
// thousandths of all memory, which outweighs what any process has (half of it does not: where there is little, pages of our own
// program's file are more), and who raises it may take it back.
func makeOOMVictim() (restore func()) {
	const name, value = "/proc/self/oom_score_adj", 1000
	b, err := files.Read(name)
	if err != nil {
		return func() {}
	}
	before, err := strconv.Atoi(string(bytes.TrimSpace(b)))
	if err != nil || before >= value || os.WriteFile(name, []byte(strconv.Itoa(value)), 0) != nil {
		return func() {}
	}
	return func() { _ = os.WriteFile(name, []byte(strconv.Itoa(before)), 0) }
}

// BecomeOwner makes this process fit to own others: the caller's goroutine stays on its thread (the parent-death
// signal is tied to the thread), inherited descriptors are closed, the working directory is the root, descendants come to
// us, and the signals that a parent may have left ignored are caught, since an ignored signal would stay ignored in
// everything that is started from here. What comes are SIGINT and SIGTERM.
func BecomeOwner() (<-chan syscall.Signal, error) {
	runtime.LockOSThread()
	if err := CloseInherited(); err != nil {
		return nil, err
	}
	if err := fault.Do("chdir", "/", func() error { return os.Chdir("/") }); err != nil {
		return nil, err
	}
	if err := BecomeSubreaper(); err != nil {
		return nil, err
	}
	drop := make(chan os.Signal, 1)
	signal.Notify(drop, syscall.SIGHUP, syscall.SIGPIPE, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGALRM, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU)
	go func() {
		for range drop {
		}
	}()
	got, out := make(chan os.Signal, 16), make(chan syscall.Signal)
	signal.Notify(got, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		for s := range got {
			out <- s.(syscall.Signal)
		}
	}()
	return out, nil
}

// ChildEnded tells, after it was called, whenever a child ends; several ends may be told as one.
func ChildEnded() <-chan struct{} {
	got, out := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(got, syscall.SIGCHLD)
	go func() {
		for range got {
			out <- struct{}{}
		}
	}()
	return out
}

// Pipe makes the stdin of a Command: with feed a pipe and its other end, else /dev/null.
func Pipe(feed bool) (stdin, w *File, err error) {
	if !feed {
		stdin, err = files.Open(os.DevNull)
		return stdin, nil, err
	}
	return filePipe()
}

func filePipe() (r, w *File, err error) {
	read, write, err := pipe()
	if err != nil {
		return nil, nil, err
	}
	r, _ = fault.Open(read, nil)
	w, _ = fault.Open(write, nil)
	return r, w, nil
}

// DetachStdio replaces stdin and stdout by /dev/null, so that whoever holds their other ends sees them closed.
func DetachStdio() error {
	null, err := files.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	for _, fd := range []int{0, 1} {
		if err := unix.Dup3(int(null.Fd()), fd, 0); err != nil {
			return err
		}
	}
	return nil
}

// Find is the executable that a shell would start for name: a path as it is, relative to dir, anything else from path
// (PATH). Relative and empty elements of path are not searched. The failures are fs.ErrNotExist, fs.ErrPermission, and of a
// machine that cannot tell.
func Find(name, path, dir string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return name, executable(name)
	}
	found := fs.ErrNotExist
	for _, d := range filepath.SplitList(path) {
		if !filepath.IsAbs(d) || name == "" {
			continue
		}
		p := filepath.Join(d, name)
		err := executable(p)
		if err == nil {
			return p, nil
		}
		if errors.Is(err, fs.ErrPermission) || files.MachineFailed(err) {
			found = err
		}
	}
	return "", &fs.PathError{Op: "find", Path: name, Err: found}
}

func executable(path string) error {
	st, err := files.Stat(path)
	if err != nil {
		return err
	}
	if st.IsDir() {
		return &fs.PathError{Op: "exec", Path: path, Err: fs.ErrPermission}
	}
	if err := fault.Point("access", path); err != nil {
		return err
	}
	if err := unix.Access(path, unix.X_OK); err != nil {
		return &fs.PathError{Op: "exec", Path: path, Err: err}
	}
	return nil
}
