package process

import (
	"io"
	"os"
	"syscall"

	"github.com/laufwerk/laufwerk/internal/system/fault"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// DetachedProcess is a program that outlives this process.
type DetachedProcess struct {
	In     io.WriteCloser  // its stdin; safe to close at any time
	Out    io.ReadCloser   // its stdout
	Exited <-chan struct{} // closed when it has ended, as long as this process sees it; nil where nobody waits for that
}

// Detach starts a program in a session of its own, in the root directory, with exactly env and no descriptors but its
// stdin, stdout and stderr, which is appended to the file log.
func Detach(path string, argv, env []string, log string) (*DetachedProcess, error) {
	d, p, err := detach(path, argv, env, log)
	if err != nil {
		return nil, err
	}
	exited := make(chan struct{})
	go func() {
		_, _ = p.Wait()
		close(exited)
	}()
	d.Exited = exited
	return d, nil
}

// DetachReaped is Detach in a process that reaps whatever ends, see CatchSignals. A wait for the program would keep a thread
// and a descriptor for as long as it lives.
func DetachReaped(path string, argv, env []string, log string) (*DetachedProcess, error) {
	d, p, err := detach(path, argv, env, log)
	if err != nil {
		return nil, err
	}
	_ = p.Release()
	return d, nil
}

func detach(path string, argv, env []string, log string) (*DetachedProcess, *os.Process, error) {
	var open []*os.File
	closeAll := func() {
		for _, f := range open {
			_ = f.Close()
		}
	}
	stderr, err := files.OpenForeign(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, files.FileMode)
	if err != nil {
		return nil, nil, err
	}
	defer stderr.Close()
	inR, inW, err := pipe()
	if err != nil {
		return nil, nil, err
	}
	open = append(open, inR, inW)
	outR, outW, err := pipe()
	if err != nil {
		closeAll()
		return nil, nil, err
	}
	open = append(open, outR, outW)
	if env == nil {
		env = []string{}
	}
	p, err := startProcess(path, argv, &os.ProcAttr{
		Dir: "/", Env: env, Files: []*os.File{inR, outW, stderr}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		closeAll()
		return nil, nil, err
	}
	_, _ = inR.Close(), outW.Close()
	return &DetachedProcess{In: inW, Out: outR}, p, nil
}

func startProcess(path string, argv []string, attr *os.ProcAttr) (*os.Process, error) {
	return fault.Get("exec", path, func(string) (*os.Process, error) { return os.StartProcess(path, argv, attr) })
}

func pipe() (r, w *os.File, err error) {
	if err := fault.Point("pipe", ""); err != nil {
		return nil, nil, err
	}
	return os.Pipe()
}
