package openshell

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/guest"
	"github.com/laufwerk/laufwerk/internal/openshell/policy"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/providers/guestclient"
	"github.com/laufwerk/laufwerk/internal/providers/sessiondir"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/targets"
)

var _ providers.Provider = (*Provider)(nil)

// sandbox is a session's sandbox.
type sandbox struct {
	l     location // by the recorded id
	def   targets.Definition
	guest *guestclient.Sandbox
	env   []string // of every command
	// waiting says that the gateway did not reach the sandbox at the last query.
	waiting atomic.Bool
}

// Enter finds the sandbox by its recorded id, and waits until commands can run in it. With the zero definition, for its end, it does
// not wait.
func (p *Provider) Enter(ctx context.Context, in resource.Intent, def targets.Definition) (providers.Sandbox, error) {
	s, err := readSpec(in)
	if err != nil {
		return nil, err
	}
	l, err := p.locate(ctx, in, s)
	if err != nil {
		return nil, err
	}
	b := &sandbox{l: l, def: def}
	b.guest = &guestclient.Sandbox{
		Backend: gatewayBackend{b}, Dir: s.Dir, Ops: policy.Ops, Name: "the sandbox " + in.Name, Env: crash.Environment(p.c.Vars), Patience: p.w.patience,
		Standby:    guestclient.Standby{Socket: filepath.Join(s.Dir, sessiondir.Ops, guest.StandbyName), Taken: &p.takenSockets, Next: gatewayBackend{b}.startNextStandby},
		Disposable: &guestclient.DisposableSandbox{StartedAt: b.containerStartedAt},
	}
	found, err := b.find(ctx)
	if err != nil && (def.Kind == "" || !failure.Is(err, failure.NotReady)) { // a gateway that went a moment ago may come back
		return nil, err
	}
	if err := b.directory(); err != nil {
		return nil, err
	}
	if def.Kind == "" {
		return b, nil
	}
	if err := b.awaitReachable(ctx, found); err != nil {
		return nil, err
	}
	return b, b.readEnvironment(ctx, false)
}

// lostError is the failure of a session whose sandbox cannot be entered any more.
func lostError(in resource.Intent, format string, args ...any) error {
	return failure.New(failure.SessionLost, "the session cannot be used any more: %s; after it is closed, another session can use the workspace", fmt.Sprintf(format, args...)).
		WithField("sandbox", in.Resource)
}

// find gets the sandbox, which must exist and be usable now or soon.
func (b *sandbox) find(ctx context.Context) (*wire.Sandbox, error) {
	f := b.l.find(ctx)
	switch f.presence {
	case resource.Present:
	case resource.Absent:
		return nil, lostError(b.l.intent, "there is no sandbox %s with the id %s any more at the %s", b.l.intent.Name, b.l.intent.Resource, b.l.intent.Endpoint)
	case resource.Foreign:
		return nil, lostError(b.l.intent, "%v", f.err)
	default:
		return nil, failure.Wrap(f.err, failure.NotReady, "inspect the sandbox %s", b.l.intent.Name)
	}
	switch f.sandbox.GetStatus().GetPhase() {
	case wire.SandboxPhase_SANDBOX_PHASE_ERROR, wire.SandboxPhase_SANDBOX_PHASE_STOPPING, wire.SandboxPhase_SANDBOX_PHASE_STOPPED,
		wire.SandboxPhase_SANDBOX_PHASE_DELETING:
		return nil, lostError(b.l.intent, "the sandbox %s cannot be used any more: %s", b.l.intent.Name, condition(f.sandbox))
	}
	return f.sandbox, nil
}

func (b *sandbox) directory() error {
	at, err := sessiondir.Open(b.l.s.Dir, b.l.p.directory(b.l.intent, b.l.s).ID)
	if err == nil {
		defer at.Close()
		if presence, why := at.Identify(); presence != resource.Present {
			err = fmt.Errorf("%s is %s: %w", b.l.s.Dir, presence, errors.Join(why))
		}
	}
	if err != nil {
		return lostError(b.l.intent, "its directory: %v", err)
	}
	return nil
}

// awaitReachable waits until the gateway reaches the sandbox, which takes seconds after a restart of the gateway, and until its main
// process has proved that it sees this host's files and locks. got is the last answer or nil.
func (b *sandbox) awaitReachable(ctx context.Context, got *wire.Sandbox) error {
	if err := sessiondir.RestorePermissions(b.l.s.Dir); err != nil {
		return failure.Wrap(err, failure.NotReady, "open the directories of the session")
	}
	end := b.l.p.c.Now().Add(b.l.p.w.ready)
	var err error
	for pause := b.l.p.newBackoff(); got.GetStatus().GetPhase() != wire.SandboxPhase_SANDBOX_PHASE_READY; {
		switch late := b.l.p.c.Now().After(end); {
		case late && err != nil:
			return err
		case late:
			return failure.New(failure.NotReady, "the sandbox %s cannot be used yet, since %s: %s", b.l.intent.Name, b.l.p.w.ready, condition(got)).WithHint("laufwerk doctor")
		}
		if got != nil || err != nil {
			if err := pause(ctx); err != nil {
				return err
			}
		}
		if got, err = b.find(ctx); err != nil && !failure.Is(err, failure.NotReady) {
			return err
		}
	}
	if err := b.verifyOnce(ctx, got); err != nil {
		return err
	}
	return b.awaitProof(ctx)
}

// verifyOnce verifies each sandbox once per process.
func (b *sandbox) verifyOnce(ctx context.Context, got *wire.Sandbox) error {
	p := b.l.p
	if _, done := p.compared.Load(b.l.intent.Resource); done {
		return nil
	}
	err := p.verifySandbox(ctx, b.l.g, b.l.e, b.l.intent, b.l.s, got)
	if unfit, ok := errors.AsType[*unusableError](err); ok {
		return lostError(b.l.intent, "%v", unfit.error)
	}
	return err
}

// awaitProof waits for the proof, which counts before anything else runs in the sandbox.
func (b *sandbox) awaitProof(ctx context.Context) error {
	if sessiondir.HasLaunches(b.l.s.Dir) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, b.l.p.w.ready)
	defer cancel()
	seen, err := guest.AwaitProof(ctx, filepath.Join(b.l.s.Dir, sessiondir.Ops, readyFile), b.l.s.Nonce, guest.Locked, func(ctx context.Context) error {
		_, err := b.find(ctx)
		if failure.Is(err, failure.SessionLost) {
			return err
		}
		return nil
	})
	switch {
	case err == nil || failure.Is(err, failure.SessionLost):
		return err
	case seen == guest.Seen:
		return failure.New(failure.NotReady, "the sandbox %s has this host's files, but not their locks, or its main process has ended: processes in it cannot be supervised from here", b.l.intent.Name)
	case !errors.Is(err, context.DeadlineExceeded):
		return failure.Wrap(err, failure.NotReady, "check the main process of the sandbox %s", b.l.intent.Name)
	}
	return failure.New(failure.NotReady, "what the sandbox %s writes into %s is not visible on this host: the gateway %q seems to be on another one", b.l.intent.Name, b.l.s.Dir, b.l.s.Gateway).
		WithHint("laufwerk doctor --probe")
}

// readEnvironment reads the environment of programs in the sandbox: a proxy, certificates, placeholders of logins. anew reads it again,
// since placeholders change with the login.
func (b *sandbox) readEnvironment(ctx context.Context, anew bool) error {
	known := &b.l.p.environments
	got, ok := known.Load(b.l.intent.Resource)
	if !ok || anew {
		env, err := b.environment(ctx, anew)
		if err != nil {
			return err
		}
		got = env
		known.Store(b.l.intent.Resource, env)
	}
	env, _ := got.([]string)
	b.env = append(slices.DeleteFunc(slices.Clone(env), b.isReservedVariable), "HOME="+policy.Home, "TMPDIR=/tmp", supervise.MarkVariable+"="+b.l.s.Mark)
	return nil
}

// environment is what a waiting supervisor prints when it is started, or else a program that only prints it.
func (b *sandbox) environment(ctx context.Context, anew bool) ([]string, error) {
	if !anew {
		env, err := gatewayBackend{b}.standby(ctx)
		if err == nil {
			return env, nil
		}
		if errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return nil, failure.Wrap(err, failure.NotReady, "ask for the environment in %s", b.guest.Name)
		}
	}
	out, _, err := b.guest.RunOwn(ctx, guest.Environment(), nil)
	if err != nil {
		return nil, err
	}
	env, err := guest.ReadEnvironment(out)
	if err != nil {
		return nil, failure.Wrap(err, failure.NotReady, "ask for the environment in %s", b.guest.Name)
	}
	return env, nil
}

// isReservedVariable says whether commands do not get a variable: those of OpenShell, of the login shell and of laufwerk, and API keys.
func (b *sandbox) isReservedVariable(kv string) bool {
	name, _, _ := strings.Cut(kv, "=")
	return strings.HasPrefix(name, "OPENSHELL_") || b.l.p.c.Programs.Refused().Has(name) ||
		slices.Contains([]string{"HOME", "TMPDIR", "PWD", "OLDPWD", "SHLVL", "_"}, name)
}

func (b *sandbox) Launcher() supervise.Launcher { return b.guest.Launcher() }
func (*sandbox) Workdir() string                { return policy.Work }
func (*sandbox) Home() string                   { return policy.Home }
func (b *sandbox) BaseEnv() []string            { return slices.Clone(b.env) }

// Secrets is nil: the gateway has the login, and placeholders are no secrets.
func (*sandbox) Secrets() []string { return nil }

// Fence deletes the sandbox, the only sure end of everything in it. The session can only be closed then.
func (b *sandbox) Fence(ctx context.Context) supervise.FenceResult { return gatewayBackend{b}.End(ctx) }

func (b *sandbox) tree() sessiondir.Tree {
	return sessiondir.Tree{Host: b.l.s.Workspace, Seen: policy.Work, ReadOnly: b.l.s.ReadOnly}
}

// ReadFile reads a file of the workspace, from this host's side.
func (b *sandbox) ReadFile(_ context.Context, name string) ([]byte, error) {
	return b.tree().ReadFile(name)
}

// WriteFile puts a file into the workspace, from this host's side.
func (b *sandbox) WriteFile(_ context.Context, name string, data []byte) error {
	return b.tree().WriteFile(name, data)
}
