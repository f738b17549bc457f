// Package command drives any program as an agent.
//
// Protocol "text": the prompt on stdin and end of file; stdout is the reply; exit 0 is success.
//
// Protocol "json": one request line on stdin, {"prompt", "conversation"?, "output"?}, and answer lines on stdout:
//
//	{"type": "conversation", "id": UUID}   the conversation that a later request continues
//	{"type": "message", "text": …}         the last one is the reply
//	{"type": "usage", "inputTokens"?, "cachedInputTokens"?, "outputTokens"?, "reasoningOutputTokens"?}
//	{"type": "done"} or {"type": "failed", "message": …}   exactly one, as the last line; the exit status fits it
package command

import (
	"encoding/json"
	"strings"
	"syscall"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/environment"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/options"
)

// Name is the harness's name.
const Name = "command"

// The protocols.
const (
	Text = "text"
	JSON = "json"
)

// Program drives a program of the user's own.
type Program struct {
	host    map[string]string
	apiKeys []string
}

// New makes the harness; host is the worker's environment, from which variables are taken that say so. The API keys, those of
// other programs, are refused.
func New(host map[string]string, apiKeys ...string) *Program { return &Program{host, apiKeys} }

var _ agent.Program = (*Program)(nil)

// Name is the harness's name.
func (*Program) Name() string { return Name }

// Executable is the program that the target has to have.
func (*Program) Executable(given json.RawMessage) string {
	var c config
	if json.Unmarshal(given, &c) != nil || len(c.Command) == 0 {
		return ""
	}
	return c.Command[0]
}

// Title is what people call it.
func (*Program) Title() string { return "a program of your own" }

// Recipe is none: the target has the program.
func (*Program) Recipe() *agent.Recipe { return nil }

// Credential is none: a program of the user's own brings its own.
func (*Program) Credential() *agent.Credential { return nil }

// Accept refuses what only a program that laufwerk knows could be told.
func (*Program) Accept(a agent.Requirements) error {
	if a.PermissionMode != agent.AllowAll {
		return options.Invalid("permissionMode", "%q is refused: a program of your own has no permissions that laufwerk could set; use a target that isolates it", a.PermissionMode)
	}
	if len(a.Skills) > 0 {
		return options.Invalid("skills", "laufwerk does not know where a program of your own expects skills; put their text into `instructions`")
	}
	if len(a.ActiveTools) > 0 {
		return options.Invalid("activeTools", "a program of your own has no tools that laufwerk could select")
	}
	return nil
}

// config is the normalised form of createCommand's options.
type config struct {
	Command  []string                `json:"command"`
	Env      environment.Environment `json:"env,omitempty"`
	Protocol string                  `json:"protocol"`
}

// Validate holds the rules of createCommand. Its own normalised form is valid and stays as it is.
func (p *Program) Validate(given json.RawMessage) (json.RawMessage, error) {
	fields, err := options.Fields("", given, "command", "env", "protocol")
	if err != nil {
		return nil, err
	}
	c := config{Protocol: Text}
	const expected = "a list of strings, the program and its arguments"
	if c.Command, err = options.Strings("command", fields["command"], expected); err != nil {
		return nil, err
	}
	if len(c.Command) == 0 || c.Command[0] == "" {
		return nil, options.Invalid("command", "expected %s, got no program", expected)
	}
	for i, a := range c.Command {
		if strings.ContainsRune(a, 0) {
			return nil, options.Invalid(options.Index("command", i), "expected no NUL byte")
		}
	}
	if c.Env, err = environment.Parse("env", fields["env"], environment.RefusedNames{APIKeys: p.apiKeys}); err != nil {
		return nil, err
	}
	if raw := fields["protocol"]; !options.Absent(raw) {
		if c.Protocol, err = options.OneOf("protocol", raw, Text, JSON); err != nil {
			return nil, err
		}
	}
	return json.Marshal(c)
}

// request is the line that a program with the JSON protocol reads.
type request struct {
	Prompt       string          `json:"prompt"`
	Conversation string          `json:"conversation,omitempty"`
	Output       json.RawMessage `json:"output,omitempty"`
}

// Turn says what to run. The program's own graceful stop is what a terminal sends it: SIGINT.
func (p *Program) Turn(t agent.Turn) (agent.Command, error) {
	c, err := parse(t.Options)
	if err != nil {
		return agent.Command{}, err
	}
	env, err := c.Env.Resolve(p.host)
	if err != nil {
		return agent.Command{}, failure.Wrap(err, failure.NotReady, "start %s", c.Command[0])
	}
	cmd := agent.Command{Argv: c.Command, Env: env, Interrupt: syscall.SIGINT}
	if c.Protocol == JSON {
		if cmd.Stdin, err = json.Marshal(request{Prompt: prompt(t, false), Conversation: t.Conversation, Output: t.Schema}); err != nil {
			return agent.Command{}, err
		}
		cmd.Stdin = append(cmd.Stdin, '\n')
		return cmd, nil
	}
	cmd.Stdin = []byte(prompt(t, true))
	return cmd, nil
}

func parse(raw json.RawMessage) (config, error) {
	var c config
	if err := json.Unmarshal(raw, &c); err != nil {
		return c, err
	}
	if len(c.Command) == 0 {
		return c, failure.New(failure.Internal, "the options of the command harness are not normalised")
	}
	return c, nil
}

// prompt is what the program is asked, with everything that its protocol has no field for.
func prompt(t agent.Turn, schema bool) string {
	var parts []string
	if t.Instructions != "" {
		parts = append(parts, t.Instructions)
	}
	if t.Continued {
		parts = append(parts, "Your last turn was cut off before it had ended. What you changed in the workspace is still there: look at it and go on.")
	}
	parts = append(parts, t.Prompt)
	if schema && len(t.Schema) > 0 {
		parts = append(parts, "Answer with one JSON value that fits this JSON Schema, and with nothing else:\n"+string(t.Schema))
	}
	return strings.Join(parts, "\n\n")
}

// Reader reads one turn. Options that Validate did not make are reported by the reader's End.
func (*Program) Reader(t agent.Turn) agent.Reader {
	c, err := parse(t.Options)
	switch {
	case err != nil:
		return broken{err}
	case c.Protocol == JSON:
		return newLines(c.Command[0], t.Conversation)
	default:
		return &text{program: c.Command[0]}
	}
}

type broken struct{ err error }

func (broken) Feed([]byte) []agent.Event              { return nil }
func (b broken) End(int, string) (agent.Reply, error) { return agent.Reply{}, b.err }
