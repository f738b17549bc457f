package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/laufwerk/laufwerk/internal/system/fault"
)

// ErrNoTool says that a program is not on PATH.
var ErrNoTool = errors.New("not found on PATH")

// Tool is a short-lived program of the host whose output is read: no terminal, and of input and environment (but PATH) only
// what is given.
type Tool struct {
	Name  string // looked up on PATH
	Args  []string
	Dir   string
	Env   []string
	Stdin io.Reader
}

// ToolError is a tool that ended with another code than 0.
type ToolError struct {
	Command string // what was called, for people
	Code    int    // -1 if a signal ended it
	Stderr  string // the first 4 KiB, raw
}

func (e *ToolError) Error() string {
	return fmt.Sprintf("%s ended with %d: %s", e.Command, e.Code, strings.TrimSpace(e.Stderr))
}

// RunTool starts a tool and hands its stdout to read, which may stop early; ctx kills it. It answers read's error, ErrNoTool,
// a *ToolError, or why the tool could not be started.
func RunTool(ctx context.Context, t Tool, read func(io.Reader) error) error {
	path, err := exec.LookPath(t.Name)
	if err != nil {
		return fmt.Errorf("%s: %w", t.Name, ErrNoTool)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cmd := exec.CommandContext(ctx, path, t.Args...) //nolint:gosec // the callers name their tools
	cmd.Dir, cmd.Stdin = t.Dir, t.Stdin
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, t.Env...)
	cmd.WaitDelay = 2 * time.Second
	var stderr head
	cmd.Stderr = &stderr
	if err := fault.Point("pipe", ""); err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := fault.Do("exec", path, cmd.Start); err != nil {
		return err
	}
	readErr := read(out)
	if readErr != nil {
		stop()
	}
	err = cmd.Wait()
	if readErr != nil {
		return readErr
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && ctx.Err() == nil {
		return &ToolError{Command: strings.Join(append([]string{t.Name}, t.Args...), " "), Code: exit.ExitCode(), Stderr: stderr.String()}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

type head struct{ b bytes.Buffer }

func (h *head) Write(p []byte) (int, error) {
	if room := 4096 - h.b.Len(); room > 0 {
		h.b.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

func (h *head) String() string { return h.b.String() }
