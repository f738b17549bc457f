package openshell

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"sync"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/guest"
	client "github.com/laufwerk/laufwerk/internal/openshell"
	"github.com/laufwerk/laufwerk/internal/openshell/policy"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/providers/guestclient"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/sha256hex"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/system/crash"
)

// memoryDir is on a tmpfs of the sandbox.
const memoryDir = "/dev/shm/laufwerk"

// largest bounds a supervisor's input in one request, in bytes: a gateway takes requests below 1 MiB.
const largest = 768 << 10

// gatewayBackend runs commands in a session's sandbox.
type gatewayBackend struct{ b *sandbox }

// Start waits until the gateway reaches the sandbox.
func (x gatewayBackend) Start(ctx context.Context) error {
	if x.b.waiting.CompareAndSwap(true, false) {
		if err := x.b.awaitReachable(ctx, nil); err != nil {
			x.b.waiting.Store(true)
			return err
		}
	}
	return nil
}

// Stopped says whether the gateway cannot reach the sandbox or is down, which a restart of the gateway repairs.
func (x gatewayBackend) Stopped(ctx context.Context) bool {
	got, err := x.b.find(ctx)
	again := err == nil && got.GetStatus().GetPhase() != wire.SandboxPhase_SANDBOX_PHASE_READY || failure.Is(err, failure.NotReady)
	if again {
		x.b.waiting.Store(true)
	}
	return again
}

func (x gatewayBackend) command(argv, env []string, stdin []byte) client.Command {
	return client.Command{Argv: argv, Env: env, Dir: policy.Root, Stdin: stdin}
}

func (x gatewayBackend) Exec(ctx context.Context, c guestclient.Command, stdout, stderr io.Writer) (int, resource.Outcome, error) {
	code, done, err := x.b.l.g.Exec(ctx, x.b.l.intent.Resource, x.command(c.Argv, c.Env, c.Stdin), stdout, stderr)
	crash.Point("openshell/after-exec")
	return code, done, err
}

// Open starts a supervisor.
func (x gatewayBackend) Open(ctx context.Context, argv []string, spec []byte) (supervise.Pipe, resource.Outcome, error) {
	if len(spec) > largest {
		var err error
		if argv, err = x.upload(ctx, argv, spec); err != nil {
			return supervise.Pipe{}, resource.NotDone, err
		}
		spec = nil
	}
	crash.Point("openshell/before-supervisor")
	p, done, err := x.begin(ctx, argv, spec)
	crash.Point("openshell/after-supervisor")
	return p, done, err
}

// begin starts a program that outlives the connection, and returns when it has printed something or has ended.
func (x gatewayBackend) begin(ctx context.Context, argv []string, stdin []byte) (supervise.Pipe, resource.Outcome, error) {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r, w := io.Pipe()
	out := &writeTimer{w: w, first: make(chan struct{})}
	exited, over := make(chan struct{}), make(chan struct{})
	var done resource.Outcome
	var err error
	go func() {
		defer close(over)
		_, done, err = x.b.l.g.Exec(life, x.b.l.intent.Resource, x.command(argv, x.b.guest.Env, stdin), out, io.Discard)
		if done == resource.Done {
			close(exited)
		}
		_ = w.CloseWithError(err) // nil is the end of the output
	}()
	closing := func() { cancel(); _ = r.Close() }
	select {
	case <-over:
		if done == resource.NotDone {
			closing()
			return supervise.Pipe{}, done, err
		}
	case <-out.first:
	case <-ctx.Done():
	}
	return supervise.Pipe{Out: r, Exited: exited, Close: closing}, resource.Done, nil
}

// standby starts a waiting supervisor unless there is one, and returns the environment that it prints.
func (x gatewayBackend) standby(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, x.b.guest.Patience)
	defer cancel()
	p, _, err := x.begin(ctx, guest.Standby(policy.Ops+"/"+guest.StandbyName), nil)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, p.Close)()
	defer p.Close()
	line, err := bufio.NewReader(io.LimitReader(p.Out, 64<<10)).ReadBytes('\n')
	if err != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	return guest.ReadEnvironment(line)
}

// startNextStandby starts another waiting supervisor in the background, after one was taken.
func (x gatewayBackend) startNextStandby(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	go func() { _, _ = x.standby(ctx) }()
}

// writeTimer closes first at the first write.
type writeTimer struct {
	w     io.Writer
	first chan struct{}
	once  sync.Once
}

func (s *writeTimer) Write(b []byte) (int, error) {
	s.once.Do(func() { close(s.first) })
	return s.w.Write(b)
}

// upload puts a supervisor's input into the sandbox's memory in parts, and returns the command line of the supervisor that reads them.
func (x gatewayBackend) upload(ctx context.Context, argv []string, spec []byte) ([]string, error) {
	dir := argv[len(argv)-1] // of the operation
	var parts []string
	for at := 0; at < len(spec); at += largest {
		part := spec[at:min(len(spec), at+largest)]
		name := path.Join(memoryDir, "input", path.Base(dir), strconv.Itoa(len(parts)))
		if _, _, err := x.b.guest.RunOwn(ctx, guest.PutFile(name, 0o600, len(part)), part); err != nil {
			return nil, fmt.Errorf("put the input of the command into the sandbox: %w", err)
		}
		parts = append(parts, name)
	}
	return guest.SuperviseFrom(dir, sha256hex.Of(spec), parts...), nil
}

// Explain turns a command's error into SessionLost where the sandbox is gone or cannot be used any more.
func (x gatewayBackend) Explain(ctx context.Context, err error) error {
	if _, why := x.b.find(ctx); failure.Is(why, failure.SessionLost) {
		return why
	}
	return err
}

// End deletes the sandbox. Nothing of it runs once neither gateway nor engine lists it.
func (x gatewayBackend) End(ctx context.Context) supervise.FenceResult {
	x.b.l.p.environments.Delete(x.b.l.intent.Resource)
	crash.Point("openshell/before-end")
	r := x.b.l.deleteAndWait(ctx)
	crash.Point("openshell/after-end")
	out := supervise.FenceResult{Sure: r.Outcome == resource.Done, How: supervise.HowSandbox, At: x.b.l.p.c.Now().UTC()}
	if !out.Sure {
		out.How, out.Later, out.Why = "", true, fmt.Sprintf("the sandbox %s could not be deleted: %v", x.b.l.intent.Name, r.Err)
	}
	return out
}

// containerStartedAt is when the engine last started the sandbox's container.
func (b *sandbox) containerStartedAt(ctx context.Context) (time.Time, error) {
	own, others, err := b.l.containers(ctx)
	if err != nil {
		return time.Time{}, err
	}
	if len(own) != 1 || len(others) > 0 {
		return time.Time{}, fmt.Errorf("the engine has %d containers of the sandbox", len(own)+len(others))
	}
	got, presence, err := b.l.e.Inspect(ctx, own[0].ID)
	if presence != resource.Present || got.State == nil {
		return time.Time{}, failure.Wrap(err, failure.NotReady, "inspect the container of the sandbox")
	}
	return time.Parse(time.RFC3339Nano, got.State.StartedAt)
}
