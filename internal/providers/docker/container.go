package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/providers/guestclient"
	"github.com/laufwerk/laufwerk/internal/providers/sessiondir"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/system/crash"
)

func (p *Provider) container(in resource.Intent, s spec) owned.Container {
	return owned.Container{Now: p.c.Now, Image: s.Image, Engine: func(ctx context.Context) (*dockerengine.Engine, error) { return p.engineOf(ctx, in, s) }}
}

// Create makes the session's directory, then its container, which is not started.
func (p *Provider) Create(ctx context.Context, in resource.Intent) resource.Result {
	return p.make(ctx, in, owned.Container.Create)
}

// Resolve completes a Create: the directory is made atomically, and the container is created again under the same name.
func (p *Provider) Resolve(ctx context.Context, in resource.Intent) resource.Result {
	return p.make(ctx, in, owned.Container.Resolve)
}

func (p *Provider) make(ctx context.Context, in resource.Intent, create func(owned.Container, context.Context, resource.Intent, owned.ContainerSpec) resource.Result) resource.Result {
	s, id, err := readSpec(in)
	if err != nil {
		return resource.Result{Outcome: resource.NotDone, Err: err}
	}
	if s.FileOwner == nil && p.c.UID == 0 && s.User != "0:0" {
		return resource.Result{Outcome: resource.NotDone, Err: errors.New("the intent was written by another user")}
	}
	return p.directory(in, s, id).Make(ctx, s.FileOwner, []string{sessiondir.Home, sessiondir.Ops, sessiondir.Tmp}, func(*sessiondir.Folder) resource.Result {
		return create(p.container(in, s), ctx, in, s.containerSpec())
	})
}

// Observe looks for the container and the directory. The session is absent when neither exists.
func (p *Provider) Observe(ctx context.Context, in resource.Intent) resource.Observation {
	s, id, err := readSpec(in)
	if err != nil {
		return resource.Observation{Err: err}
	}
	o := p.container(in, s).Observe(ctx, in)
	if o.Presence != resource.Absent {
		return o
	}
	return p.directory(in, s, id).Observe(o, in.Resource)
}

func (p *Provider) directory(in resource.Intent, s spec, id sessiondir.Identity) sessiondir.Session {
	return sessiondir.Session{Dir: s.Dir, ID: id, Now: p.c.Now, What: "container " + in.Name}
}

// Delete removes the container with everything in it and, once that is absent, the directory.
func (p *Provider) Delete(ctx context.Context, in resource.Intent) resource.Result {
	s, id, err := readSpec(in)
	if err != nil {
		return resource.Result{Err: err}
	}
	c := p.container(in, s)
	r := c.Delete(ctx, in)
	if r.Outcome != resource.Done {
		return r
	}
	o := c.ObserveAfterDelete(ctx, in)
	r.Evidence = append(r.Evidence, o.Evidence...)
	if o.Presence != resource.Absent {
		return resource.Result{Err: errors.Join(o.Err, fmt.Errorf("the container is %s after its removal", o.Presence)), Evidence: r.Evidence}
	}
	return p.directory(in, s, id).Clear(ctx, r)
}

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
