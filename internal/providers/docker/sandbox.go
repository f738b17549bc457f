package docker

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/environment"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/guest"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/providers/guestclient"
	"github.com/laufwerk/laufwerk/internal/providers/sessiondir"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// startLimit bounds the wait for a container's first process.
const startLimit = 30 * time.Second

// sandbox is a session's container. It is started before a command if it does not run.
type sandbox struct {
	p       *Provider
	e       *dockerengine.Engine
	intent  resource.Intent
	spec    spec
	config  config
	vars    []string // variables of the target, resolved
	env     []string // of every command
	arch    string
	guest   *guestclient.Sandbox
	up      sync.Mutex
	running bool // as far as was seen
}

// Enter finds the container by its recorded id. It does not start it.
func (p *Provider) Enter(ctx context.Context, in resource.Intent, def targets.Definition) (providers.Sandbox, error) {
	s, id, err := readSpec(in)
	if err != nil {
		return nil, err
	}
	c, err := decode(def)
	if err != nil {
		return nil, err
	}
	own, err := c.Env.Resolve(p.c.Vars)
	if err != nil {
		return nil, err
	}
	e, err := p.engineOf(ctx, in, s)
	if err != nil {
		return nil, err
	}
	got, err := p.inspect(ctx, e, in)
	if err != nil {
		return nil, err
	}
	at, err := sessiondir.Open(s.Dir, id)
	if err == nil {
		defer at.Close()
		if presence, why := at.Identify(); presence != resource.Present {
			err = fmt.Errorf("%s is %s: %w", s.Dir, presence, errors.Join(why))
		}
	}
	if err != nil {
		return nil, lostError(in, "its directory: %v", err)
	}
	b := &sandbox{p: p, e: e, intent: in, spec: s, config: c, vars: own, arch: e.Facts().Arch, running: got.State.Running}
	b.env = slices.Concat([]string{"PATH=" + standardPath}, imageVariables(got.Config.Env, p.c.Programs.Refused()), []string{"HOME=" + homeDir, "TMPDIR=" + tmpDir}, own, []string{supervise.MarkVariable + "=" + s.Mark})
	b.guest = &guestclient.Sandbox{
		Backend: containerBackend{b}, Dir: s.Dir, Ops: opsDir, FileOwner: s.FileOwner, Name: "the container " + in.Name, Env: crash.Environment(p.c.Vars), Patience: p.patience,
	}
	if s.Serves {
		b.guest.Standby = guestclient.Standby{Socket: filepath.Join(s.Dir, sessiondir.Ops, guest.StandbyName), Taken: &p.takenSockets}
	}
	return b, nil
}

// imageVariables are the variables of an image that commands get: not those that the option env refuses, so that no agent falls
// back to an API key.
func imageVariables(env []string, refused environment.RefusedNames) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return refused.Has(name)
	})
}

// standardPath is the engine's default PATH.
const standardPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func lostError(in resource.Intent, format string, args ...any) error {
	return failure.New(failure.SessionLost, "the session cannot be used any more: %s; after it is closed, another session can use the workspace", fmt.Sprintf(format, args...)).
		WithField("container", in.Resource)
}

// inspect inspects an intent's container by id. Where it is missing, the engine's identity is checked.
func (p *Provider) inspect(ctx context.Context, e *dockerengine.Engine, in resource.Intent) (container.InspectResponse, error) {
	got, presence, err := e.Inspect(ctx, in.Resource)
	switch {
	case presence == resource.Present && got.ID == in.Resource && got.State != nil && got.Config != nil:
		if got.State.Dead || got.State.Status == container.StateRemoving {
			return got, lostError(in, "the container %s is being removed", in.Resource)
		}
		return got, nil
	case presence != resource.Absent && presence != resource.Present:
		return got, failure.Wrap(err, failure.NotReady, "inspect the container %s", in.Name)
	}
	f, err := e.Refresh(ctx)
	switch {
	case err != nil:
		return got, failure.Wrap(err, failure.NotReady, "inspect the container %s", in.Name)
	case f.Identity() != in.Endpoint:
		return got, owned.OtherEngineError(in, e.Endpoint().Host, f.Identity())
	}
	return got, lostError(in, "there is no container %s on the %s", in.Resource, in.Endpoint)
}

func (s *sandbox) Launcher() supervise.Launcher { return s.guest.Launcher() }
func (s *sandbox) Workdir() string              { return workdir }
func (s *sandbox) Home() string                 { return homeDir }
func (s *sandbox) BaseEnv() []string            { return slices.Clone(s.env) }

// Fence kills the container, which start starts again.
func (s *sandbox) Fence(ctx context.Context) supervise.FenceResult { return s.kill(ctx) }

// start makes sure that the container runs, and that its first process has proved, once for each start, that it sees this host's files
// and locks.
func (s *sandbox) start(ctx context.Context) error {
	s.up.Lock()
	defer s.up.Unlock()
	if s.running {
		return nil
	}
	if err := sessiondir.RestorePermissions(s.spec.Dir); err != nil {
		return failure.Wrap(err, failure.NotReady, "open the directories of the session")
	}
	if err := s.p.programs.Restore(ctx, s.spec.Binary); err != nil {
		return err
	}
	crash.Point("docker/before-start")
	_, err := s.e.Start(ctx, s.intent.Resource)
	crash.Point("docker/after-start")
	if err != nil {
		got, ierr := s.p.inspect(ctx, s.e, s.intent)
		if ierr != nil {
			return ierr
		}
		if !got.State.Running {
			return failure.Wrap(err, failure.NotReady, "start the container %s", s.intent.Name)
		}
	}
	if err := s.awaitProof(ctx); err != nil {
		return err
	}
	s.running = true
	return nil
}

func (s *sandbox) awaitProof(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	var over error
	seen, err := guest.AwaitProof(ctx, filepath.Join(s.spec.Dir, sessiondir.Ops, readyFile), s.spec.Nonce, guest.Locked, func(ctx context.Context) error {
		if got, err := s.p.inspect(ctx, s.e, s.intent); err == nil && !got.State.Running {
			over = s.endedError(got.State)
		}
		return over
	})
	switch {
	case over != nil:
		return over
	case err != nil:
		return s.unprovedError(seen, err)
	}
	return nil
}

// endedError says why the container's first process ended.
func (s *sandbox) endedError(state *container.State) error {
	const hint = "choose another image for the target, or build one FROM it without that"
	switch state.ExitCode {
	case guest.ExitLinks:
		return failure.New(failure.NotReady, "the image %s has a link where sessions need a directory: at %s, or above", s.spec.Image, strings.Join(mounts(), ", ")).WithHint(hint)
	case guest.ExitGroups:
		return failure.New(failure.NotReady, "the image %s makes the user %s a member of further groups", s.spec.Image, s.spec.User).WithHint(hint)
	}
	return failure.New(failure.NotReady, "the container %s ended at once with exit code %d%s", s.intent.Name, state.ExitCode, s.earlyEndReason(state.Error))
}

// earlyEndReason says what may have ended a container before it did anything.
func (s *sandbox) earlyEndReason(says string) string {
	switch {
	case says != "":
		return ": " + says
	case s.config.Resources.PIDs > 0 && s.config.Resources.PIDs < lowPIDLimit:
		return fmt.Sprintf(": `resources.pids` is %d, and the threads of laufwerk's own program there count too", s.config.Resources.PIDs)
	}
	return ""
}

// lowPIDLimit may be too low: the first process and each supervisor have about ten threads.
const lowPIDLimit = 32

func (s *sandbox) unprovedError(seen guest.Proof, err error) error {
	switch {
	case seen == guest.Seen:
		return failure.New(failure.NotReady, "the engine at %s shares this host's files, but not their locks: processes in its containers cannot be supervised from here", s.e.Endpoint().Host)
	case err != nil && !errors.Is(err, context.DeadlineExceeded):
		return failure.Wrap(err, failure.NotReady, "check the first process of the container %s", s.intent.Name)
	}
	return failure.New(failure.NotReady, "what the container %s writes into %s is not visible on this host: the engine at %s seems to use another file system",
		s.intent.Name, s.spec.Dir, s.e.Endpoint().Host).WithHint("laufwerk doctor --probe")
}

// kill kills the container, which certainly ends everything in it.
func (s *sandbox) kill(ctx context.Context) supervise.FenceResult {
	s.up.Lock()
	defer s.up.Unlock()
	out := supervise.FenceResult{Sure: true, How: supervise.HowContainer, At: s.p.c.Now().UTC()}
	got, err := s.p.inspect(ctx, s.e, s.intent)
	switch {
	case failure.Is(err, failure.SessionLost):
		return out
	case err != nil:
		return supervise.FenceResult{Why: err.Error(), Later: true, At: out.At}
	}
	s.running = false
	if !got.State.Running {
		return out
	}
	crash.Point("docker/before-kill")
	done, err := s.e.Kill(ctx, s.intent.Resource)
	crash.Point("docker/after-kill")
	if done != resource.Done {
		return supervise.FenceResult{Why: fmt.Sprintf("the container %s could not be ended: %v", s.intent.Name, err), Later: true, At: out.At}
	}
	return out
}

func (s *sandbox) tree() sessiondir.Tree {
	return sessiondir.Tree{Host: s.spec.Workspace, Seen: workdir, User: s.spec.FileOwner, ReadOnly: s.spec.ReadOnly}
}

// ReadFile reads a file of the workspace, from this host's side.
func (s *sandbox) ReadFile(_ context.Context, name string) ([]byte, error) {
	return s.tree().ReadFile(name)
}

// WriteFile puts a file into the workspace, from this host's side.
func (s *sandbox) WriteFile(_ context.Context, name string, data []byte) error {
	return s.tree().WriteFile(name, data)
}
