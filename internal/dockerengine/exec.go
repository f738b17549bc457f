package dockerengine

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/system/crash"
)

// Command is what runs in a container beside its first process. Argv is visible in the engine's events; Env, which adds to
// the container's, is not visible anywhere.
type Command struct {
	Argv  []string
	Env   []string // name=value
	User  string   // uid:gid, "" for the container's
	Dir   string   // "" for the container's
	Stdin io.Reader
}

// Exec runs a command to its end. No: it was certainly not started. Yes: it ended with code; 126 and 127 are also the
// engine's answers for a program that cannot be started or is not there. Unknown: all else, also an end whose code could not
// be learned; the command may run on, since an engine does not end it with the connection, and neither does ctx.
// Starting is bounded, running only by ctx. The outputs are whole as far as their own framing says: the engine's has no end.
// Stdin may be read until its next Read returns, also after Exec.
func (e *Engine) Exec(ctx context.Context, id string, cmd Command, stdout, stderr io.Writer) (int, providers.Done, error) {
	life, cancel := context.WithCancel(ctx)
	defer cancel()
	exec, conn, done, err := e.attach(life, id, cmd, cmd.Stdin != nil)
	if err != nil {
		return 0, done, err
	}
	if cmd.Stdin != nil {
		go func() {
			_, _ = io.Copy(conn, cmd.Stdin)
			_ = conn.CloseWrite()
		}()
	}
	if err := demux(stdout, stderr, conn); err != nil {
		return 0, providers.Unknown, e.cut(ctx, err, cmd)
	}
	return e.exit(ctx, exec, cmd)
}

// Stream is a running command whose streams the caller has. Out and Err have to be read at the same time. Close ends the
// connection, not the command.
type Stream struct {
	In       io.WriteCloser // Close is the command's end of input
	Out, Err io.Reader

	engine *Engine
	exec   string
	cmd    Command
	ctx    context.Context
	cancel context.CancelFunc
	ended  chan struct{}
	cut    error
}

// Open starts a command and hands out its streams, until ctx ends or Close is called. Its outcomes are those of Exec.
func (e *Engine) Open(ctx context.Context, id string, cmd Command) (*Stream, providers.Done, error) {
	life, cancel := context.WithCancel(ctx)
	exec, conn, done, err := e.attach(life, id, cmd, true)
	if err != nil {
		cancel()
		return nil, done, err
	}
	outR, outW := io.Pipe()
	errR, errW := io.Pipe()
	s := &Stream{In: input{conn}, Out: outR, Err: errR, engine: e, exec: exec, cmd: cmd, ctx: ctx, cancel: cancel, ended: make(chan struct{})}
	context.AfterFunc(life, func() {
		_ = outR.CloseWithError(io.ErrClosedPipe)
		_ = errR.CloseWithError(io.ErrClosedPipe)
	})
	go func() {
		defer close(s.ended)
		if err := demux(outW, errW, conn); err != nil {
			s.cut = e.cut(ctx, err, cmd)
		}
		_ = outW.CloseWithError(s.cut)
		_ = errW.CloseWithError(s.cut)
	}()
	return s, providers.Yes, nil
}

type input struct{ *hijacked }

func (i input) Close() error { return i.CloseWrite() }

// Exit waits for the end of the outputs, which have to be read, and is the exit code, with Exec's outcomes.
func (s *Stream) Exit() (int, providers.Done, error) {
	<-s.ended
	if s.cut != nil {
		return 0, providers.Unknown, s.cut
	}
	return s.engine.exit(s.ctx, s.exec, s.cmd)
}

// Close ends the connection.
func (s *Stream) Close() { s.cancel() }

// attach makes and starts a command. life ends the connection.
func (e *Engine) attach(life context.Context, id string, cmd Command, stdin bool) (string, *hijacked, providers.Done, error) {
	made, cancel := begin(life, e.limits.effect)
	defer cancel()
	what := "run " + cmd.name() + " in the container " + id
	exec, err := e.client.ContainerExecCreate(made.ctx, id, container.ExecOptions{
		User: cmd.User, WorkingDir: cmd.Dir, Env: cmd.Env, Cmd: cmd.Argv, AttachStdin: stdin, AttachStdout: true, AttachStderr: true,
	})
	if err == nil && exec.ID == "" {
		err = errors.New("the engine's answer has no id")
	}
	if err != nil { // what was not started has no effect, whether it was made or not
		return "", nil, providers.No, e.explain(made, err, failure.Failed, "%s", what)
	}
	started, cancel := begin(life, e.limits.effect)
	defer cancel()
	crash.Point("dockerengine/before-exec")
	conn, err := e.hijack(started, life, "/exec/"+exec.ID+"/start", container.ExecStartOptions{})
	crash.Point("dockerengine/after-exec")
	if err != nil {
		done, err := e.effect(started, err, "%s", what)
		return "", nil, done, err
	}
	return exec.ID, conn, providers.Yes, nil
}

func (c Command) name() string {
	if len(c.Argv) == 0 {
		return "nothing"
	}
	return c.Argv[0]
}

// cut is a stream that broke off.
func (e *Engine) cut(ctx context.Context, err error, cmd Command) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return failure.Wrap(err, failure.OutcomeUnknown, "the connection to %s in the container broke off; it may still run", cmd.name())
}

// exit is the code of a command whose outputs have ended. The engine notes the code a little later than it ends the stream;
// what still runs after that was cut off, or closed its outputs itself.
func (e *Engine) exit(ctx context.Context, exec string, cmd Command) (int, providers.Done, error) {
	c, cancel := begin(ctx, e.limits.settle)
	defer cancel()
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		look, err := e.client.ContainerExecInspect(c.ctx, exec)
		switch {
		case err != nil && c.ctx.Err() != nil && c.parent.Err() == nil:
		case err != nil:
			return 0, providers.Unknown, e.explain(c, err, failure.OutcomeUnknown, "learn how %s in the container ended", cmd.name())
		case look.ExecID != exec:
			return 0, providers.Unknown, failure.New(failure.OutcomeUnknown, "learn how %s in the container ended: the engine's answer is about another command", cmd.name())
		case !look.Running:
			return look.ExitCode, providers.Yes, nil
		}
		select {
		case <-c.ctx.Done():
			return 0, providers.Unknown, failure.New(failure.OutcomeUnknown, "the outputs of %s in the container have ended, but it still runs after %s", cmd.name(), c.limit)
		case <-time.After(pause):
		}
	}
}
