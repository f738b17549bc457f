package dockerengine

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/system/crash"
)

// Command is what runs in a container beside its first process. The engine shows Argv in its events, and Env, which adds to
// the container's, nowhere.
type Command struct {
	Argv  []string
	Env   []string // name=value
	User  string   // uid:gid, "" for the container's
	Dir   string   // "" for the container's
	Stdin io.Reader
}

// Exec runs a command to its end.
//
//   - No: it was certainly not started.
//   - Yes: it ended with code. 126 and 127 are also the engine's answers for a program that cannot be started or is not there
//     (Docker 20.10 has 126 for both), with the reason in stdout.
//   - Unknown: all else, also an end whose code could not be learned. The command may run on: an engine does not end it with
//     the connection, and neither does ctx.
//
// Starting is bounded, running only by ctx. The end is that of the command itself; a child that keeps its outputs open delays
// it by 2 s. The outputs are whole as far as their own framing says: the engine's has no end. Stdin may be read until its next
// Read returns, also after Exec.
func (e *Engine) Exec(ctx context.Context, id string, cmd Command, stdout, stderr io.Writer) (int, resource.Outcome, error) {
	life, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	started, conn, done, err := e.attach(life, id, cmd, cmd.Stdin != nil)
	if err != nil {
		return 0, done, err
	}
	if cmd.Stdin != nil {
		go feedInput(conn, cmd.Stdin, cancel)
	}
	if err := demux(stdout, stderr, conn); err != nil {
		return 0, resource.Unknown, streamCutError(life, err, cmd)
	}
	if err := context.Cause(life); err != nil { // the end of the stream is ours
		return 0, resource.Unknown, streamCutError(life, err, cmd)
	}
	return e.waitForExit(life, started, cmd)
}

// feedInput gives a command its input. Input that cannot be read must not look like its end: the command is given up.
func feedInput(conn *hijackedConn, in io.Reader, giveUp context.CancelCauseFunc) {
	source := &errorReader{Reader: in}
	_, _ = io.Copy(conn, source) // a command may end before its input does
	if source.err != nil {
		giveUp(source.err)
		return
	}
	_ = conn.CloseWrite()
}

type errorReader struct {
	io.Reader
	err error
}

func (n *errorReader) Read(b []byte) (int, error) {
	c, err := n.Reader.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		n.err = err
	}
	return c, err
}

// Stream is a running command whose streams the caller has. Out and Err have to be read at the same time. Close ends the
// connection, not the command.
type Stream struct {
	In       io.WriteCloser // Close is the command's end of input
	Out, Err io.Reader

	engine *Engine
	id     string // the engine's, of the command
	cmd    Command
	ctx    context.Context
	cancel context.CancelFunc
	ended  chan struct{}
	cut    error
}

// Open starts a command and hands out its streams, until ctx ends or Close is called. Its outcomes are those of Exec.
func (e *Engine) Open(ctx context.Context, id string, cmd Command) (*Stream, resource.Outcome, error) {
	life, cancel := context.WithCancel(ctx)
	started, conn, done, err := e.attach(life, id, cmd, true)
	if err != nil {
		cancel()
		return nil, done, err
	}
	outR, outW := io.Pipe()
	errR, errW := io.Pipe()
	s := &Stream{In: input{conn}, Out: outR, Err: errR, engine: e, id: started, cmd: cmd, ctx: ctx, cancel: cancel, ended: make(chan struct{})}
	context.AfterFunc(life, func() {
		_ = outR.CloseWithError(io.ErrClosedPipe)
		_ = errR.CloseWithError(io.ErrClosedPipe)
	})
	go func() {
		defer close(s.ended)
		if err := demux(outW, errW, conn); err != nil {
			s.cut = streamCutError(ctx, err, cmd)
		}
		_ = outW.CloseWithError(s.cut)
		_ = errW.CloseWithError(s.cut)
	}()
	return s, resource.Done, nil
}

type input struct{ *hijackedConn }

func (i input) Close() error { return i.CloseWrite() }

// Exit waits for the end of the outputs, which have to be read, and is the exit code, with Exec's outcomes.
func (s *Stream) Exit() (int, resource.Outcome, error) {
	<-s.ended
	if s.cut != nil {
		return 0, resource.Unknown, s.cut
	}
	return s.engine.waitForExit(s.ctx, s.id, s.cmd)
}

// Close ends the connection.
func (s *Stream) Close() { s.cancel() }

// attach makes and starts a command. life ends the connection.
func (e *Engine) attach(life context.Context, id string, cmd Command, stdin bool) (string, *hijackedConn, resource.Outcome, error) {
	what := "run " + cmd.name() + " in the container " + id
	making, cancel := beginCall(life, e.limits.effect)
	defer cancel()
	made, err := e.client.ContainerExecCreate(making.ctx, id, container.ExecOptions{
		User: cmd.User, WorkingDir: cmd.Dir, Env: cmd.Env, Cmd: cmd.Argv, AttachStdin: stdin, AttachStdout: true, AttachStderr: true,
	})
	if err == nil && made.ID == "" {
		err = errors.New("the engine's answer has no id")
	}
	if err != nil { // what was not started has no effect, whether it was made or not
		return "", nil, resource.NotDone, e.explain(making, err, failure.Failed, "%s", what)
	}
	starting, cancel := beginCall(life, e.limits.effect)
	defer cancel()
	crash.Point("dockerengine/before-exec")
	conn, err := e.hijack(starting, life, "/exec/"+made.ID+"/start", container.ExecStartOptions{})
	crash.Point("dockerengine/after-exec")
	if err != nil {
		done, err := e.endEffect(starting, err, "%s", what)
		return "", nil, done, err
	}
	return made.ID, conn, resource.Done, nil
}

func (c Command) name() string {
	if len(c.Argv) == 0 {
		return "nothing"
	}
	return c.Argv[0]
}

func streamCutError(ctx context.Context, err error, cmd Command) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return failure.Wrap(err, failure.OutcomeUnknown, "the streams of %s in the container were interrupted; it may still run", cmd.name())
}

// waitForExit is the code of a command whose outputs have ended. The engine notes the code a little later than it ends the stream;
// what still runs after that was cut off, or closed its outputs itself.
func (e *Engine) waitForExit(ctx context.Context, id string, cmd Command) (int, resource.Outcome, error) {
	c, cancel := beginCall(ctx, e.limits.settle)
	defer cancel()
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		running, code, err := e.exitCode(c, id)
		if err != nil {
			return 0, resource.Unknown, e.explain(c, err, failure.OutcomeUnknown, "read the exit code of %s in the container", cmd.name())
		}
		if !running {
			return code, resource.Done, nil
		}
		select {
		case <-ctx.Done():
			return 0, resource.Unknown, streamCutError(ctx, ctx.Err(), cmd)
		case <-c.ctx.Done():
			return 0, resource.Unknown, failure.New(failure.OutcomeUnknown, "the outputs of %s in the container have ended, but it still runs after %s", cmd.name(), c.limit)
		case <-time.After(pause):
		}
	}
}

// exitCode asks for the exit code of a command. The client's type has 0 where the engine says null: no code is known.
func (e *Engine) exitCode(c *call, id string) (running bool, code int, err error) {
	req, err := http.NewRequestWithContext(c.ctx, http.MethodGet, e.url("/exec/"+id+"/json"), nil)
	if err != nil {
		return false, 0, err
	}
	resp, err := e.client.HTTPClient().Do(req)
	if err != nil {
		return false, 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return false, 0, responseError(resp)
	}
	var inspected struct {
		ID       string
		Running  bool
		ExitCode *int
	}
	err = json.NewDecoder(resp.Body).Decode(&inspected)
	switch {
	case err != nil:
		return false, 0, err
	case inspected.ID != id:
		return false, 0, errors.New("the engine's answer is about another command")
	case inspected.Running:
		return true, 0, nil
	case inspected.ExitCode == nil:
		return false, 0, errors.New("the engine reports no exit code")
	}
	return false, *inspected.ExitCode, nil
}
