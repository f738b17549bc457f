package session

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/supervise"
)

// ExecArgs are the arguments of session.exec.
type ExecArgs struct {
	Command string         `json:"command"`
	Stdin   *Bytes         `json:"stdin,omitempty"`
	Env     map[string]Var `json:"env,omitempty"`
	Timeout int64          `json:"timeout,omitempty"` // ms
}

// Bytes is text, or bytes in base64.
type Bytes struct {
	Text   string `json:"text,omitempty"`
	Base64 []byte `json:"base64,omitempty"`
}

func (b *Bytes) bytes() []byte {
	switch {
	case b == nil:
		return nil
	case b.Base64 != nil:
		return b.Base64
	default:
		return []byte(b.Text)
	}
}

// Var is an environment value: literal, or the name of a variable of the worker.
type Var struct {
	Value    *string `json:"value,omitempty"`
	FromHost string  `json:"fromHost,omitempty"`
}

// ExecResult is a finished command. Invalid UTF-8 has become U+FFFD.
type ExecResult struct {
	ExitCode int    `json:"exitCode"`
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
}

// Exec runs `bash -c` in the workspace.
func (m *Manager) Exec(ctx context.Context, key string, a ExecArgs, op Operation) (ExecResult, TurnRecord, error) {
	s, leave, err := m.acquire(ctx, key)
	if err != nil {
		return ExecResult{}, TurnRecord{}, err
	}
	defer leave()
	return m.exec(ctx, s, op, func(sb providers.Sandbox) (supervise.Spec, error) {
		env, err := m.environ(sb, a.Env)
		return supervise.Spec{
			Argv: []string{"bash", "-c", a.Command}, Env: env, Dir: sb.Workdir(), Stdin: a.Stdin.bytes(),
			Timeout: time.Duration(a.Timeout) * time.Millisecond,
		}, err
	}, "the command")
}

// exec runs a command to its end and returns what it printed.
func (m *Manager) exec(ctx context.Context, s *state, op Operation, spec func(sb providers.Sandbox) (supervise.Spec, error), what string) (ExecResult, TurnRecord, error) {
	r, err := m.runSupervised(ctx, s, op, command{
		keepStdout: true,
		spec:       func(sb providers.Sandbox, _ bool) (supervise.Spec, error) { return spec(sb) },
		onStdout: func(chunk []byte, fresh int, upto int64) {
			if fresh > 0 {
				op.Event(journal.Event{Kind: "output", Text: string(chunk[len(chunk)-fresh:]), Upto: upto})
			}
		},
	})
	t := TurnRecord{Attempts: r.attempts, Millis: r.millis()}
	if err != nil {
		t.Lost = !s.host && s.lostReason != nil
		return ExecResult{}, t, err
	}
	t.ExitCode = &r.exit.Code
	if err := r.abnormalEnd(what, failure.Failed); err != nil {
		return ExecResult{}, t, err
	}
	if text := lastErrorLines(m.Secrets.String(tail(r.stderr, 64<<10))); r.exit.Code != 0 && text != "" {
		op.Event(journal.Event{Kind: "stderr", Text: text})
	}
	return ExecResult{
		ExitCode: r.exit.Code,
		Stdout:   strings.ToValidUTF8(string(r.stdout), "\uFFFD"),
		Stderr:   strings.ToValidUTF8(string(r.stderr), "\uFFFD"),
	}, t, nil
}

func lastErrorLines(stderr string) string {
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	text := strings.Join(lines[max(0, len(lines)-failingLines):], "\n")
	if len(text) > failingBytes {
		text = "…" + text[len(text)-failingBytes:]
	}
	return strings.ToValidUTF8(text, "")
}

// environ is the sandbox's environment with an operation's own variables.
func (m *Manager) environ(sb providers.Sandbox, own map[string]Var) ([]string, error) {
	env := sb.BaseEnv()
	for name, v := range own {
		value, err := m.resolve(name, v)
		if err != nil {
			return nil, err
		}
		env = append(env, name+"="+value)
	}
	return env, nil
}

func (m *Manager) resolve(name string, v Var) (string, error) {
	if v.FromHost == "" {
		if v.Value == nil {
			return "", nil
		}
		return *v.Value, nil
	}
	value, ok := m.HostEnv(v.FromHost)
	if !ok {
		return "", failure.New(failure.NotReady, "env.%s: the variable %s is not set in the worker's environment", name, v.FromHost).
			WithHint("export %s=…\nlaufwerk resume %s", v.FromHost, m.Run)
	}
	return value, nil
}

// abnormalEnd is the failure of a command that has no exit code of its own, nil where it has one.
func (r commandResult) abnormalEnd(what string, start failure.Kind) error {
	switch {
	case r.exit.Error != "":
		return failure.New(start, "%s: %s", what, r.exit.Error)
	case r.exit.Incomplete != "":
		return failure.New(failure.Failed, "the output of %s could not be stored completely: %s", what, r.exit.Incomplete)
	case r.exit.TimedOut:
		return failure.New(failure.CommandTimeout, "%s took longer than its timeout and was ended", what)
	case r.exit.StdoutBytes > r.attempt.MaxOutput || r.exit.StderrBytes > r.attempt.MaxOutput:
		return failure.New(failure.OutputTooLarge, "%s wrote %d bytes to stdout and %d to stderr; at most %d each are kept",
			what, r.exit.StdoutBytes, r.exit.StderrBytes, r.attempt.MaxOutput).WithField("exitCode", r.exit.Code)
	}
	return nil
}

// ReadFile is a file of the workspace as the session sees it; nil where there is no such file.
func (m *Manager) ReadFile(ctx context.Context, key, path string) ([]byte, error) {
	s, leave, err := m.acquire(ctx, key)
	if err != nil {
		return nil, err
	}
	defer leave()
	sb, err := m.enter(ctx, s)
	if err != nil {
		return nil, err
	}
	b, err := sb.ReadFile(ctx, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, failure.Wrap(err, failure.Failed, "readFile")
	case b == nil:
		return []byte{}, nil
	}
	return b, nil
}

// WriteFile puts a file into the workspace, whole or not at all. Doing it again changes nothing.
func (m *Manager) WriteFile(ctx context.Context, key, path string, data []byte, op Operation) error {
	s, leave, err := m.acquire(ctx, key)
	if err != nil {
		return err
	}
	defer leave()
	sb, err := m.enter(ctx, s)
	if err != nil {
		return err
	}
	if err := op.Start(map[string]int{"bytes": len(data)}); err != nil {
		return err
	}
	return failure.Wrap(sb.WriteFile(ctx, path, data), failure.Failed, "writeFile")
}

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
