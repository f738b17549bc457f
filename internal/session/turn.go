package session

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/harness"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/schema"
	"github.com/laufwerk/laufwerk/internal/supervise"
)

// AskArgs are the arguments of session.ask.
type AskArgs struct {
	Prompt  string          `json:"prompt"`
	Output  json.RawMessage `json:"output,omitempty"`  // a JSON Schema
	Timeout int64           `json:"timeout,omitempty"` // ms
}

// Turned is what the engine remembers of a turn.
type Turned struct {
	Conversation string         `json:"conversation,omitempty"`
	Usage        *harness.Usage `json:"usage,omitempty"`
	Attempts     int            `json:"attempts,omitempty"`
	Millis       int64          `json:"millis,omitempty"`
	ExitCode     *int           `json:"exitCode,omitempty"`
	Lost         bool           `json:"lost,omitempty"` // the session can only be closed
}

// Ask runs one turn. The value is a string, or with a schema the JSON value that fits it.
func (m *Manager) Ask(ctx context.Context, key string, a AskArgs, op Operation) (any, Turned, error) {
	s, err := m.usable(key)
	if err != nil {
		return nil, Turned{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var want *schema.Schema
	if len(a.Output) > 0 {
		if want, err = schema.Parse(a.Output); err != nil {
			return nil, Turned{}, failure.New(failure.Usage, "ask: output: %v", err)
		}
	}
	h, _ := m.Harness(s.agent.Harness.Program)
	turn := harness.Turn{
		Options: s.agent.Harness.Options, Prompt: a.Prompt, Conversation: s.conversation, Schema: a.Output, Instructions: s.agent.Instructions,
	}
	var reader harness.Reader
	conversation := s.conversation
	var usage *harness.Usage
	told := false // the reply is among the events already
	r, err := m.supervised(ctx, s, op, work{
		spec: func(sb providers.Sandbox, continued bool) (supervise.Spec, error) {
			turn.Continued, turn.Conversation = continued, conversation
			cmd, err := h.Turn(turn)
			if err != nil {
				return supervise.Spec{}, err
			}
			return supervise.Spec{
				Argv: cmd.Argv, Env: append(sb.BaseEnv(), cmd.Env...), Dir: sb.Workdir(), Stdin: cmd.Stdin,
				Timeout: time.Duration(a.Timeout) * time.Millisecond, Interrupt: cmd.Interrupt,
			}, nil
		},
		begin: func() { reader = h.Reader(turn) },
		stdout: func(chunk []byte, untold int, upto int64) {
			for _, ev := range reader.Feed(chunk) {
				if ev.Kind == "conversation" {
					conversation = ev.Text
				}
				if ev.Usage != nil {
					usage = ev.Usage
				}
				told = told || ev.Kind == "message"
				if untold > 0 {
					data, _ := json.Marshal(ev)
					op.Event(journal.Event{Kind: "agent", Text: ev.Text, Data: data, Upto: upto})
				}
			}
		},
	})
	t := Turned{Conversation: conversation, Usage: usage, Attempts: r.attempts, Millis: r.millis()}
	if err != nil {
		t.Lost = s.lost != nil
		return nil, t, err
	}
	t.ExitCode = &r.exit.Code
	s.conversation = conversation
	if err := r.trouble("the agent program"); err != nil {
		return nil, t, err
	}
	reply, err := reader.End(r.exit.Code, r.stderrTail)
	if reply.Conversation != "" {
		t.Conversation, s.conversation = reply.Conversation, reply.Conversation
	}
	if reply.Usage != nil {
		t.Usage = reply.Usage
	}
	if err != nil {
		return nil, t, failure.Wrap(err, failure.AgentFailed, "ask")
	}
	if !told {
		op.Event(journal.Event{Kind: "agent", Text: reply.Text})
	}
	if want == nil {
		return reply.Text, t, nil
	}
	value := json.RawMessage(bytes.TrimSpace([]byte(reply.Text)))
	if err := want.Check(value); err != nil {
		return nil, t, failure.New(failure.OutputInvalid, "the agent's answer does not fit the schema: %v", err)
	}
	return value, t, nil
}

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
func (m *Manager) Exec(ctx context.Context, key string, a ExecArgs, op Operation) (ExecResult, Turned, error) {
	s, err := m.usable(key)
	if err != nil {
		return ExecResult{}, Turned{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := m.supervised(ctx, s, op, work{
		spec: func(sb providers.Sandbox, _ bool) (supervise.Spec, error) {
			env := sb.BaseEnv()
			for name, v := range a.Env {
				value, err := m.resolve(name, v)
				if err != nil {
					return supervise.Spec{}, err
				}
				env = append(env, name+"="+value)
			}
			return supervise.Spec{
				Argv: []string{"bash", "-c", a.Command}, Env: env, Dir: sb.Workdir(), Stdin: a.Stdin.bytes(),
				Timeout: time.Duration(a.Timeout) * time.Millisecond,
			}, nil
		},
		stdout: func(chunk []byte, untold int, upto int64) {
			if untold > 0 {
				op.Event(journal.Event{Kind: "output", Text: string(chunk[len(chunk)-untold:]), Upto: upto})
			}
		},
	})
	t := Turned{Attempts: r.attempts, Millis: r.millis()}
	if err != nil {
		t.Lost = s.lost != nil
		return ExecResult{}, t, err
	}
	t.ExitCode = &r.exit.Code
	if err := r.trouble("the command"); err != nil {
		return ExecResult{}, t, err
	}
	return ExecResult{
		ExitCode: r.exit.Code,
		Stdout:   strings.ToValidUTF8(string(r.stdout), "\uFFFD"),
		Stderr:   strings.ToValidUTF8(string(r.stderr), "\uFFFD"),
	}, t, nil
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
			WithHint("set %s and type `laufwerk resume %s`", v.FromHost, m.Run)
	}
	return value, nil
}

// trouble tells the ends that are nobody's exit code.
func (r result) trouble(what string) error {
	switch {
	case r.exit.Error != "":
		return failure.New(failure.AgentFailed, "%s could not be started: %s", what, r.exit.Error)
	case r.exit.TimedOut:
		return failure.New(failure.CommandTimeout, "%s took longer than its timeout and was ended", what)
	case r.exit.StdoutBytes > MaxOutput || r.exit.StderrBytes > MaxOutput:
		return failure.New(failure.OutputTooLarge, "%s wrote %d bytes to stdout and %d to stderr; at most %d each are kept",
			what, r.exit.StdoutBytes, r.exit.StderrBytes, MaxOutput).WithField("exitCode", r.exit.Code)
	}
	return nil
}

func opDir(dir, name string, attempt int) string {
	return filepath.Join(dir, "ops", fmt.Sprintf("%s-%d", name, attempt))
}
