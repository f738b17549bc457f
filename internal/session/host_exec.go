package session

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/supervise"
)

// HostProvider runs what Host.exec asks for: this host, with the worker's permissions.
const HostProvider = "local"

const hostKey = "(host)"

// HostArgs are the arguments of host.exec.
type HostArgs struct {
	Command []string       `json:"command"`
	Cwd     string         `json:"cwd,omitempty"` // relative to the project's root
	Env     map[string]Var `json:"env,omitempty"`
	Stdin   *Bytes         `json:"stdin,omitempty"`
	Timeout int64          `json:"timeout,omitempty"` // ms
}

// newHost is the session of all programs of Host.exec, without agent and workspace. With it they are claimed, supervised, joined
// after a kill and fenced as those of other sessions are. It ends with the run.
func newHost(run string) *state {
	return &state{key: hostKey, claim: claims.ID(run, "host"), host: true}
}

// HostExec runs a program on the host, in the project. At most one attempt of an operation runs at a time, even if the worker was
// killed in between; one that was cut is repeated.
func (m *Manager) HostExec(ctx context.Context, a HostArgs, op Operation) (ExecResult, TurnRecord, error) {
	if len(a.Command) == 0 {
		return ExecResult{}, TurnRecord{}, failure.New(failure.Usage, "Host.exec: command: expected the program and its arguments")
	}
	dir := a.Cwd
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(m.Root, dir)
	}
	return m.exec(ctx, m.host, op, func(sb providers.Sandbox) (supervise.Spec, error) {
		env, err := m.environ(sb, a.Env)
		return supervise.Spec{
			Argv: a.Command, Env: env, Dir: dir, Stdin: a.Stdin.bytes(), Timeout: time.Duration(a.Timeout) * time.Millisecond,
		}, err
	}, "the program "+strings.Join(a.Command[:1], ""))
}

// closeHost ends what Host.exec left running, under this worker or an earlier one.
func (m *Manager) closeHost(ctx context.Context) error {
	c, err := m.Driver.Get(ctx, m.host.claim)
	if failure.Is(err, failure.NotFound) {
		return nil
	}
	if err != nil || !c.Outstanding() {
		return err
	}
	_, err = m.Driver.Release(ctx, c.ID)
	return err
}
