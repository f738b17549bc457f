package process

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"

	"github.com/laufwerk/laufwerk/internal/system/fault"
)

// OwnCommand is a command of our own binary, as a person would type it.
type OwnCommand struct {
	Path   string   // of the binary; see system.Executable
	Args   []string // without the program's name
	Env    []string
	Dir    string
	Stderr io.Writer
}

// RunningCommand is such a command under way.
type RunningCommand struct {
	cmd *exec.Cmd
	out bytes.Buffer
}

// StartOwn starts it without input. Its stdout is kept.
func StartOwn(ctx context.Context, c OwnCommand) (*RunningCommand, error) {
	r := &RunningCommand{cmd: exec.CommandContext(ctx, c.Path, c.Args...)} //nolint:gosec // our own binary
	r.cmd.Args[0] = "laufwerk"
	r.cmd.Env, r.cmd.Dir, r.cmd.Stdout, r.cmd.Stderr = c.Env, c.Dir, &r.out, c.Stderr
	return r, fault.Do("exec", c.Path, r.cmd.Start)
}

// PID is the process's id.
func (r *RunningCommand) PID() int { return r.cmd.Process.Pid }

// Kill ends it with SIGKILL.
func (r *RunningCommand) Kill() error { return r.cmd.Process.Kill() }

// Wait is its exit code and what it wrote to stdout; -1 where a signal ended it.
func (r *RunningCommand) Wait() (int, []byte, error) {
	err := r.cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), r.out.Bytes(), nil
	}
	return 0, r.out.Bytes(), err
}
