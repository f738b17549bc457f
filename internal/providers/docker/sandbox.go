package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/environment"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/inside"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/providers/sessiondir"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/system/crash"
)

// upLimit bounds the wait for a container's first process.
const upLimit = 30 * time.Second

// sandbox is a session's container. It is started when something is to run in it, and started again if it has stopped.
type sandbox struct {
	p       *Provider
	e       *dockerengine.Engine
	in      providers.Intent
	spec    spec
	config  config
	vars    []string // variables of the target, resolved
	env     []string // of every command
	arch    string
	up      sync.Mutex
	running bool         // as far as was seen
	refused atomic.Int32 // launches in a row that came to nothing
}

// Enter finds the container by its recorded id. It does not start it.
func (p *Provider) Enter(ctx context.Context, in providers.Intent, def providers.Definition) (providers.Sandbox, error) {
	s, id, err := read(in)
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
	e, err := p.known(ctx, in, s)
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
		if presence, why := at.Whose(); presence != providers.Present {
			err = fmt.Errorf("%s is %s: %w", s.Dir, presence, errors.Join(why))
		}
	}
	if err != nil {
		return nil, lost(in, "its directory: %v", err)
	}
	b := &sandbox{p: p, e: e, in: in, spec: s, config: c, vars: own, arch: e.Facts().Arch, running: got.State.Running}
	b.env = slices.Concat([]string{"PATH=" + standardPath}, ofImage(got.Config.Env), []string{"HOME=" + homeDir, "TMPDIR=" + tmpDir}, own, []string{supervise.MarkVariable + "=" + s.Mark})
	return b, nil
}

// ofImage are the variables of an image as commands get them: what `env` refuses is refused from there, too, so that no agent
// falls back to billing by use.
func ofImage(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return environment.Refused(name)
	})
}

// standardPath is what the engine gives to programs where an image does not say.
const standardPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func lost(in providers.Intent, format string, args ...any) error {
	return failure.New(failure.SessionLost, "the session cannot be entered: %s; once it is closed, another session can go on with the workspace", fmt.Sprintf(format, args...)).
		WithField("container", in.Resource)
}

// inspect looks at the container of an intent, whose id decides. Where it is not there, the engine is asked who it is.
func (p *Provider) inspect(ctx context.Context, e *dockerengine.Engine, in providers.Intent) (container.InspectResponse, error) {
	got, presence, err := e.Inspect(ctx, in.Resource)
	switch {
	case presence == providers.Present && got.ID == in.Resource && got.State != nil && got.Config != nil:
		if got.State.Dead || got.State.Status == container.StateRemoving {
			return got, lost(in, "the container %s is being removed", in.Resource)
		}
		return got, nil
	case presence != providers.Absent && presence != providers.Present:
		return got, failure.Wrap(err, failure.NotReady, "look at the container %s", in.Name)
	}
	f, err := e.Refresh(ctx)
	switch {
	case err != nil:
		return got, failure.Wrap(err, failure.NotReady, "look at the container %s", in.Name)
	case f.Identity() != in.Endpoint:
		return got, owned.AnotherEngine(in, e.Endpoint().Host, f.Identity())
	}
	return got, lost(in, "there is no container %s on the %s", in.Resource, in.Endpoint)
}

func (s *sandbox) Launcher() supervise.Launcher { return launcher{s} }
func (s *sandbox) Workdir() string              { return workdir }
func (s *sandbox) Home() string                 { return homeDir }
func (s *sandbox) BaseEnv() []string            { return slices.Clone(s.env) }

// Fence ends everything that runs in the session by ending its container, which is started again if more is to run.
func (s *sandbox) Fence(ctx context.Context) supervise.Fenced { return s.end(ctx) }

// start makes sure that the container runs, and that its first process has proved, once for every start, that it has this
// host's files and that locks reach across.
func (s *sandbox) start(ctx context.Context) error {
	s.up.Lock()
	defer s.up.Unlock()
	if s.running {
		return nil
	}
	if err := sessiondir.OpenUp(s.spec.Dir); err != nil {
		return failure.Wrap(err, failure.NotReady, "open the directories of the session")
	}
	if err := s.p.programs.Restore(ctx, s.spec.Binary); err != nil {
		return err
	}
	crash.Point("docker/before-start")
	_, err := s.e.Start(ctx, s.in.Resource)
	crash.Point("docker/after-start")
	if err != nil {
		got, ierr := s.p.inspect(ctx, s.e, s.in)
		if ierr != nil {
			return ierr
		}
		if !got.State.Running {
			return failure.Wrap(err, failure.NotReady, "start the container %s", s.in.Name)
		}
	}
	if err := s.proved(ctx); err != nil {
		return err
	}
	s.running = true
	return nil
}

func (s *sandbox) proved(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, upLimit)
	defer cancel()
	file := filepath.Join(s.spec.Dir, sessiondir.Ops, ready)
	looked := s.p.c.Now()
	// Pauses grow by an eighth, so that no more than an eighth of what the first process took, some 5 to 50 ms, is waited too long.
	for wait := time.Millisecond; ; wait = min(wait+wait/8, 100*time.Millisecond) {
		seen, err := inside.Look(file, s.spec.Nonce)
		if seen == inside.Locked {
			return nil
		}
		if s.p.c.Now().Sub(looked) > time.Second {
			looked = s.p.c.Now()
			got, ierr := s.p.inspect(ctx, s.e, s.in)
			if ierr == nil && !got.State.Running {
				return s.ended(got.State)
			}
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return s.unproved(seen, err)
		}
	}
}

// ended says why the container's first process did not live.
func (s *sandbox) ended(state *container.State) error {
	const hint = "choose another image for the target, or build one FROM it that is otherwise"
	switch state.ExitCode {
	case inside.ExitLinks:
		return failure.New(failure.NotReady, "the image %s has a link where sessions need a directory: at %s, or above", s.spec.Image, strings.Join(mounts(), ", ")).WithHint(hint)
	case inside.ExitGroups:
		return failure.New(failure.NotReady, "the image %s puts the user %s into groups besides its own", s.spec.Image, s.spec.User).WithHint(hint)
	}
	return failure.New(failure.NotReady, "the container %s ended at once with exit code %d%s", s.in.Name, state.ExitCode, s.early(state.Error))
}

// early says what may have ended a container before it did anything.
func (s *sandbox) early(says string) string {
	switch {
	case says != "":
		return ": " + says
	case s.config.Resources.PIDs > 0 && s.config.Resources.PIDs < fewPIDs:
		return fmt.Sprintf(": `resources.pids` is %d, and the threads of laufwerk's own program there count too", s.config.Resources.PIDs)
	}
	return ""
}

// fewPIDs may be too few for our own program and a command: the first process and each supervisor have about ten threads.
const fewPIDs = 32

func (s *sandbox) unproved(seen inside.Sight, err error) error {
	switch {
	case seen == inside.Seen:
		return failure.New(failure.NotReady, "the engine at %s shares this host's files, but not their locks: what runs in its containers cannot be followed from here", s.e.Endpoint().Host)
	case err != nil:
		return failure.Wrap(err, failure.NotReady, "look for the first process of the container %s", s.in.Name)
	}
	return failure.New(failure.NotReady, "what the container %s writes into %s is not seen on this host: the engine at %s seems to have other files",
		s.in.Name, s.spec.Dir, s.e.Endpoint().Host).WithHint("laufwerk doctor --probe")
}

// end kills the container, which certainly ends everything in it.
func (s *sandbox) end(ctx context.Context) supervise.Fenced {
	s.up.Lock()
	defer s.up.Unlock()
	out := supervise.Fenced{Sure: true, How: supervise.HowContainer, At: s.p.c.Now().UTC()}
	got, err := s.p.inspect(ctx, s.e, s.in)
	switch {
	case failure.Is(err, failure.SessionLost):
		return out
	case err != nil:
		return supervise.Fenced{Why: err.Error(), Later: true, At: out.At}
	}
	s.running = false
	if !got.State.Running {
		return out
	}
	crash.Point("docker/before-kill")
	done, err := s.e.Kill(ctx, s.in.Resource)
	crash.Point("docker/after-kill")
	if done != providers.Yes {
		return supervise.Fenced{Why: fmt.Sprintf("the container %s could not be ended: %v", s.in.Name, err), Later: true, At: out.At}
	}
	return out
}

// patience bounds what our own commands take inside, where anything else that runs can stop them. It is more than a fence
// gives itself.
const patience = time.Minute

// own runs one of our own commands inside and returns what it printed. stuck says that it did not end in time.
func (s *sandbox) own(ctx context.Context, argv []string, stdin []byte) (out []byte, stuck bool, err error) {
	cmd := s.command(argv)
	cmd.Stdin = bytes.NewReader(stdin)
	within, cancel := context.WithTimeout(ctx, s.p.patience)
	defer cancel()
	out, err = s.exec(within, cmd, argv[2])
	return out, err != nil && within.Err() != nil && ctx.Err() == nil, err
}

// kept is the most that is kept of what our own commands print, in bytes: others inside can write to their outputs too.
const kept = 64 << 10

// beginning keeps the first bytes that are written to it.
type beginning struct{ bytes.Buffer }

func (b *beginning) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:max(0, min(len(p), kept-b.Len()))])
	return len(p), nil
}

// ending keeps the last ones.
type ending struct{ bytes.Buffer }

func (e *ending) Write(p []byte) (int, error) {
	e.Buffer.Write(p)
	e.Next(max(0, e.Len()-kept))
	return len(p), nil
}

// exec runs a command inside to its end, which has to be a good one, and returns what it printed.
func (s *sandbox) exec(ctx context.Context, cmd dockerengine.Command, what string) ([]byte, error) {
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	for again := true; ; again = false {
		var out beginning
		var talk ending
		code, done, err := s.e.Exec(ctx, s.in.Resource, cmd, &out, &talk)
		switch {
		case done == providers.No && again && s.stopped(ctx): // since it was looked at
			if err := s.start(ctx); err != nil {
				return nil, err
			}
			continue
		case err != nil:
			return nil, failure.Wrap(s.whether(ctx, err), failure.NotReady, "run %s in the container %s", what, s.in.Name)
		case code != 0:
			return nil, failure.New(failure.Failed, "%s in the container %s ended with %d: %s", what, s.in.Name, code, tail(talk.String()))
		}
		return out.Bytes(), nil
	}
}

// tail is the end of what a command said.
func tail(s string) string {
	s = strings.TrimSpace(s)
	if len(s) > 2000 {
		s = "…" + strings.ToValidUTF8(s[len(s)-2000:], "")
	}
	return s
}

// command is one of our own, which brings all that it needs.
func (s *sandbox) command(argv []string) dockerengine.Command {
	return dockerengine.Command{Argv: argv, Env: crash.Environment(s.p.c.Vars), User: s.spec.User, Dir: "/"}
}

// whether makes SessionLost of a command's error where the container is gone.
func (s *sandbox) whether(ctx context.Context, err error) error {
	if errors.Is(err, dockerengine.ErrNoContainer) || errors.Is(err, dockerengine.ErrNotRunning) {
		if _, why := s.p.inspect(ctx, s.e, s.in); failure.Is(why, failure.SessionLost) {
			return why
		}
	}
	return err
}

// stopped looks whether the container has ended.
func (s *sandbox) stopped(ctx context.Context) bool {
	got, err := s.p.inspect(ctx, s.e, s.in)
	if err != nil || got.State.Running {
		return false
	}
	s.up.Lock()
	defer s.up.Unlock()
	s.running = false
	return true
}

func (s *sandbox) tree() sessiondir.Tree {
	return sessiondir.Tree{Host: s.spec.Workspace, Seen: workdir, User: s.spec.Gives, ReadOnly: s.spec.ReadOnly}
}

// ReadFile reads a file of the workspace, from this host's side.
func (s *sandbox) ReadFile(_ context.Context, name string) ([]byte, error) {
	return s.tree().ReadFile(name)
}

// WriteFile puts a file into the workspace, from this host's side.
func (s *sandbox) WriteFile(_ context.Context, name string, data []byte) error {
	return s.tree().WriteFile(name, data)
}

// seen is a directory of the session as the container sees it.
func (s *sandbox) seen(dir string) (string, error) {
	rel, err := filepath.Rel(filepath.Join(s.spec.Dir, sessiondir.Ops), dir)
	if err != nil || rel == "." || strings.HasPrefix(rel, "..") {
		return "", failure.New(failure.Internal, "%s is not among the records of the session", dir)
	}
	return path.Join(opsDir, filepath.ToSlash(rel)), nil
}
