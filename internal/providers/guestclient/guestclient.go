// Package guestclient runs commands in a sandbox through the guest, our binary inside it: it starts supervisors there, interrupts
// and fences them. The session's directory is on this host, and the sandbox sees the records of its operations.
package guestclient

import (
	"bytes"
	"context"
	"io"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/providers/sessiondir"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/supervise"
)

// Backend is how a provider reaches its sandbox.
type Backend interface {
	// Start returns once commands can be run in the sandbox and it has proved that it sees this host's files and locks.
	Start(ctx context.Context) error
	// Stopped says whether the sandbox has ended in a way that Start can undo.
	Stopped(ctx context.Context) bool
	// Open starts a supervisor. Its stdin gets spec, unless the pipe that is returned has an In to write it to.
	Open(ctx context.Context, argv []string, spec []byte) (supervise.Pipe, resource.Outcome, error)
	// Exec runs a command to its end.
	Exec(ctx context.Context, c Command, stdout, stderr io.Writer) (code int, done resource.Outcome, err error)
	// Explain turns a command's error into SessionLost where the sandbox is gone.
	Explain(ctx context.Context, err error) error
	// End ends everything in the sandbox.
	End(ctx context.Context) supervise.FenceResult
}

// Command is what a Backend runs.
type Command struct {
	Argv   []string
	Env    []string // in addition to the sandbox's
	Stdin  []byte
	Stderr io.Writer // gets stderr as it comes; may be nil
}

// CommandLimit bounds our own commands inside, which other processes there can stop. It is longer than the limit of a fence.
const CommandLimit = time.Minute

// Sandbox is a sandbox behind its Backend.
type Sandbox struct {
	Backend   Backend
	Dir       string           // the session's directory on this host
	Ops       string           // the records of operations, as the sandbox sees them
	FileOwner *sessiondir.User // owner of the files that are made for the sandbox; nil is the worker
	Name      string           // for people: "the container laufwerk-c…"
	Env       []string         // of our own commands
	Patience  time.Duration
	Standby   Standby
	// Disposable is set where the session ends with the sandbox.
	Disposable *DisposableSandbox

	refusedLaunches atomic.Int32 // consecutive launches that failed
}

// DisposableSandbox is a sandbox that we do not start again: only a cancellation or an uncertain fence ends it, not a failure to reach
// it. Others may restart it, which ends all that ran in it.
type DisposableSandbox struct {
	// StartedAt is when the sandbox was last started.
	StartedAt func(ctx context.Context) (time.Time, error)
}

// Launcher reaches the supervisors inside.
func (s *Sandbox) Launcher() supervise.Launcher { return launcher{s} }

// RunOwn runs one of our own commands inside and returns what it printed. stuck says that it did not end in time.
func (s *Sandbox) RunOwn(ctx context.Context, argv []string, stdin []byte) (out []byte, stuck bool, err error) {
	within, cancel := context.WithTimeout(ctx, s.Patience)
	defer cancel()
	out, err = s.Run(within, Command{Argv: argv, Env: s.Env, Stdin: stdin}, argv[2])
	if stuck = err != nil && within.Err() != nil && ctx.Err() == nil; stuck && !failure.Is(err, failure.SessionLost) {
		err = failure.New(failure.NotReady, "%s in %s did not end within %s: another process there may prevent it", argv[2], s.Name, s.Patience)
	}
	return out, stuck, err
}

// Run runs a command inside, which must exit with 0, and returns the first 64 KiB of its stdout. what names it in errors.
func (s *Sandbox) Run(ctx context.Context, c Command, what string) ([]byte, error) {
	if err := s.Backend.Start(ctx); err != nil {
		return nil, err
	}
	for again := true; ; again = false {
		var out headBuffer
		var tail tailBuffer
		stderr := io.Writer(&tail)
		if c.Stderr != nil {
			stderr = io.MultiWriter(&tail, c.Stderr)
		}
		code, done, err := s.Backend.Exec(ctx, c, &out, stderr)
		switch {
		case done == resource.NotDone && again && s.Backend.Stopped(ctx): // it stopped after Start
			if err := s.Backend.Start(ctx); err != nil {
				return nil, err
			}
			continue
		case err != nil:
			return nil, failure.Wrap(s.Backend.Explain(ctx, err), failure.NotReady, "run %s in %s", what, s.Name)
		case code != 0:
			return nil, failure.New(failure.Failed, "%s in %s ended with %d%s", what, s.Name, code, outputTail(tail.String()))
		}
		return out.Bytes(), nil
	}
}

// outputLimit bounds the output of our own commands that is kept, in bytes: other processes inside can write to it too.
const outputLimit = 64 << 10

type headBuffer struct{ bytes.Buffer }

func (b *headBuffer) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:max(0, min(len(p), outputLimit-b.Len()))])
	return len(p), nil
}

type tailBuffer struct{ bytes.Buffer }

func (e *tailBuffer) Write(p []byte) (int, error) {
	e.Buffer.Write(p)
	e.Next(max(0, e.Len()-outputLimit))
	return len(p), nil
}

// outputTail is the end of a command's stderr after a colon, "" where it printed nothing.
func outputTail(s string) string {
	s = strings.TrimSpace(s)
	switch {
	case s == "":
		return ""
	case len(s) > 2000:
		s = "…" + strings.ToValidUTF8(s[len(s)-2000:], "")
	}
	return ": " + s
}

// insidePath is the sandbox's path of a directory of the session's operations.
func (s *Sandbox) insidePath(dir string) (string, error) {
	rel, err := filepath.Rel(filepath.Join(s.Dir, sessiondir.Ops), dir)
	if err != nil || rel == "." || strings.HasPrefix(rel, "..") {
		return "", failure.New(failure.Internal, "%s is not among the records of the session", dir)
	}
	return path.Join(s.Ops, filepath.ToSlash(rel)), nil
}
