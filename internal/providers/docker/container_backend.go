package docker

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/providers/guestclient"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/system/crash"
)

// containerBackend runs commands in a session's container.
type containerBackend struct{ s *sandbox }

func (b containerBackend) Start(ctx context.Context) error               { return b.s.start(ctx) }
func (b containerBackend) End(ctx context.Context) supervise.FenceResult { return b.s.kill(ctx) }
func (b containerBackend) command(argv, env []string) dockerengine.Command {
	return dockerengine.Command{Argv: argv, Env: env, User: b.s.spec.User, Dir: "/"}
}

// Stopped says whether the container has ended.
func (b containerBackend) Stopped(ctx context.Context) bool {
	got, err := b.s.p.inspect(ctx, b.s.e, b.s.intent)
	if err != nil || got.State.Running {
		return false
	}
	b.s.up.Lock()
	defer b.s.up.Unlock()
	b.s.running = false
	return true
}

// Open starts a supervisor. Its spec goes through the pipe, since the engine's events show the arguments of an exec.
func (b containerBackend) Open(ctx context.Context, argv []string, _ []byte) (supervise.Pipe, resource.Outcome, error) {
	crash.Point("docker/before-exec")
	st, done, err := b.s.e.Open(ctx, b.s.intent.Resource, b.command(argv, b.s.guest.Env))
	crash.Point("docker/after-exec")
	if err != nil {
		return supervise.Pipe{}, done, err
	}
	exited := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, st.Err) // the supervisor has a log of its own
		if _, done, _ := st.Exit(); done == resource.Done {
			close(exited)
		}
	}()
	return supervise.Pipe{In: st.In, Out: st.Out, Exited: exited, Close: st.Close}, done, nil
}

func (b containerBackend) Exec(ctx context.Context, c guestclient.Command, stdout, stderr io.Writer) (int, resource.Outcome, error) {
	cmd := b.command(c.Argv, c.Env)
	if c.Stdin != nil {
		cmd.Stdin = bytes.NewReader(c.Stdin)
	}
	return b.s.e.Exec(ctx, b.s.intent.Resource, cmd, stdout, stderr)
}

// Explain turns a command's error into SessionLost where the container is gone.
func (b containerBackend) Explain(ctx context.Context, err error) error {
	if errors.Is(err, dockerengine.ErrNoContainer) || errors.Is(err, dockerengine.ErrNotRunning) {
		if _, why := b.s.p.inspect(ctx, b.s.e, b.s.intent); failure.Is(why, failure.SessionLost) {
			return why
		}
	}
	return err
}
