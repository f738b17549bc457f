// Package entered is what providers share that work in a sandbox through our own program in it, see package inside: how
// supervisors are started, asked and fenced there, and how the sandbox proves that it has this host's files. The session's
// directory is this host's, and the sandbox sees the records of its operations in it.
package entered

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

// Box is a sandbox, as its provider reaches it.
type Box interface {
	// Start makes sure that commands can be run in it, and that it has proved that it has this host's files and locks.
	Start(ctx context.Context) error
	// Stopped looks whether it has ended so that Start starts it again.
	Stopped(ctx context.Context) bool
	// Open starts a supervisor with spec on its stdin, or with the pipe's In still to be given it.
	Open(ctx context.Context, argv []string, spec []byte) (supervise.Pipe, resource.Outcome, error)
	// Exec runs a command to its end.
	Exec(ctx context.Context, c Command, stdout, stderr io.Writer) (code int, done resource.Outcome, err error)
	// Explain makes SessionLost of the error of a command where the sandbox is gone.
	Explain(ctx context.Context, err error) error
	// End ends everything in it.
	End(ctx context.Context) supervise.FenceResult
}

// Command is what a Box runs.
type Command struct {
	Argv  []string
	Env   []string // in addition to what the sandbox gives
	Stdin []byte
	Talk  io.Writer // gets, as it comes, what it prints to stderr; nil for nobody
}

// CommandLimit bounds what our own commands take inside, where anything else that runs can stop them. It is more than a fence
// gives itself.
const CommandLimit = time.Minute

// Sandbox works in a Box.
type Sandbox struct {
	Box      Box
	Dir      string           // the session's directory on this host
	Ops      string           // where the sandbox has the records of operations
	Gives    *sessiondir.User // to whom this host's files of the sandbox are given, nil is the worker
	Name     string           // for people: "the container laufwerk-c…"
	Env      []string         // of our own commands
	Patience time.Duration
	Standby  Standby
	// Lasting is set where the end of the sandbox is that of the session.
	Lasting *DisposableSandbox

	refused atomic.Int32 // launches in a row that came to nothing
}

// DisposableSandbox is a sandbox that is not started again once it was ended. Only cancellation and doubt end it: that it could not be
// reached is no reason. Something else may start it again, which ends all that ran in it.
type DisposableSandbox struct {
	// Began is when the sandbox was started last.
	Began func(ctx context.Context) (time.Time, error)
}

// Launcher reaches the supervisors inside.
func (s *Sandbox) Launcher() supervise.Launcher { return launcher{s} }

// RunOwn runs one of our own commands inside and returns what it printed. stuck says that it did not end in time.
func (s *Sandbox) RunOwn(ctx context.Context, argv []string, stdin []byte) (out []byte, stuck bool, err error) {
	within, cancel := context.WithTimeout(ctx, s.Patience)
	defer cancel()
	out, err = s.Run(within, Command{Argv: argv, Env: s.Env, Stdin: stdin}, argv[2])
	if stuck = err != nil && within.Err() != nil && ctx.Err() == nil; stuck && !failure.Is(err, failure.SessionLost) {
		err = failure.New(failure.NotReady, "%s in %s did not end within %s: something else that runs there may keep it from that", argv[2], s.Name, s.Patience)
	}
	return out, stuck, err
}

// Run runs a command inside to its end, which has to be a good one, and returns the beginning of what it printed, 64 KiB at
// most. What says to people what it is.
func (s *Sandbox) Run(ctx context.Context, c Command, what string) ([]byte, error) {
	if err := s.Box.Start(ctx); err != nil {
		return nil, err
	}
	for again := true; ; again = false {
		var out headBuffer
		var talk tailBuffer
		said := io.Writer(&talk)
		if c.Talk != nil {
			said = io.MultiWriter(&talk, c.Talk)
		}
		code, done, err := s.Box.Exec(ctx, c, &out, said)
		switch {
		case done == resource.NotDone && again && s.Box.Stopped(ctx): // since it was looked at
			if err := s.Box.Start(ctx); err != nil {
				return nil, err
			}
			continue
		case err != nil:
			return nil, failure.Wrap(s.Box.Explain(ctx, err), failure.NotReady, "run %s in %s", what, s.Name)
		case code != 0:
			return nil, failure.New(failure.Failed, "%s in %s ended with %d%s", what, s.Name, code, outputTail(talk.String()))
		}
		return out.Bytes(), nil
	}
}

// outputLimit is the most that is kept of what our own commands print, in bytes: others inside can write to their outputs too.
const outputLimit = 64 << 10

// headBuffer keeps the first bytes that are written to it.
type headBuffer struct{ bytes.Buffer }

func (b *headBuffer) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:max(0, min(len(p), outputLimit-b.Len()))])
	return len(p), nil
}

// tailBuffer keeps the last ones.
type tailBuffer struct{ bytes.Buffer }

func (e *tailBuffer) Write(p []byte) (int, error) {
	e.Buffer.Write(p)
	e.Next(max(0, e.Len()-outputLimit))
	return len(p), nil
}

// outputTail is the end of what a command said, after a colon; one that was killed said nothing.
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

// insidePath is a directory of the session's operations as the sandbox sees it.
func (s *Sandbox) insidePath(dir string) (string, error) {
	rel, err := filepath.Rel(filepath.Join(s.Dir, sessiondir.Ops), dir)
	if err != nil || rel == "." || strings.HasPrefix(rel, "..") {
		return "", failure.New(failure.Internal, "%s is not among the records of the session", dir)
	}
	return path.Join(s.Ops, filepath.ToSlash(rel)), nil
}
