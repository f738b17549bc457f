package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/schema"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/system/crash"
)

// AskArgs are the arguments of session.ask.
type AskArgs struct {
	Prompt  string          `json:"prompt"`
	Output  json.RawMessage `json:"output,omitempty"`  // a JSON Schema
	Timeout int64           `json:"timeout,omitempty"` // ms
}

// TurnRecord is what the journal keeps of a turn.
type TurnRecord struct {
	Conversation string          `json:"conversation,omitempty"`
	State        json.RawMessage `json:"state,omitempty"` // the harness's own, for the next turn of this conversation
	Usage        *agent.Usage    `json:"usage,omitempty"`
	Attempts     int             `json:"attempts,omitempty"`
	Millis       int64           `json:"millis,omitempty"`
	ExitCode     *int            `json:"exitCode,omitempty"`
	Lost         bool            `json:"lost,omitempty"` // the session can only be closed
}

// Ask runs one turn. The value is a string, or with a schema the JSON value that fits it.
func (m *Manager) Ask(ctx context.Context, key string, a AskArgs, op Operation) (any, TurnRecord, error) {
	s, leave, err := m.acquire(ctx, key)
	if err != nil {
		return nil, TurnRecord{}, err
	}
	defer leave()
	var want *schema.Schema
	if len(a.Output) > 0 {
		if want, err = schema.Parse(a.Output); err != nil {
			return nil, TurnRecord{}, failure.New(failure.Usage, "ask: output: %v", err)
		}
	}
	program, ok := m.Programs.Find(s.agent.Harness.Program)
	if !ok {
		return nil, TurnRecord{}, failure.New(failure.Unsupported, "the agent program %q is not part of this build", s.agent.Harness.Program)
	}
	t := &turn{m: m, s: s, program: program, op: op, conversation: s.conversation, Turn: agent.Turn{
		Options: s.agent.Harness.Options, Prompt: a.Prompt, Schema: a.Output, Instructions: s.agent.Instructions,
		PermissionMode: s.agent.PermissionMode, Skills: s.agent.Skills, State: s.state,
	}}
	reply, err := t.run(ctx, time.Duration(a.Timeout)*time.Millisecond)
	if err != nil {
		return nil, t.turned, err
	}
	if want == nil {
		return reply, t.turned, nil
	}
	value := json.RawMessage(bytes.TrimSpace([]byte(reply)))
	if err := want.Check(value); err != nil {
		return nil, t.turned, failure.New(failure.OutputInvalid, "the agent's answer does not match the schema: %v", err)
	}
	return value, t.turned, nil
}

type turn struct {
	agent.Turn
	m            *Manager
	s            *state
	program      agent.Program
	op           Operation
	conversation string // its id, once the program has said it
	usage        *agent.Usage
	reader       agent.Reader
	replied      bool // the reply is among the events already
	turned       TurnRecord
}

// run makes as few attempts as can be. An attempt that failed for a reason outside of the turn, as a network failure is, is spent:
// the next one, perhaps of a later worker, continues its conversation.
func (t *turn) run(ctx context.Context, timeout time.Duration) (string, error) {
	for {
		r, err := t.m.runSupervised(ctx, t.s, t.op, command{
			spec: func(sb providers.Sandbox, continued bool) (supervise.Spec, error) {
				return t.spec(ctx, sb, continued, timeout)
			},
			begin:    func() { t.reader, t.replied = t.program.Reader(t.Turn), false },
			onStdout: t.feed,
			annotate: func(at *attempt) { at.Conversation, at.Continued = t.conversation, t.Continued },
			restore:  t.restore,
		})
		t.turned = TurnRecord{Conversation: t.conversation, Usage: t.usage, State: t.State, Attempts: r.attempts, Millis: r.millis()}
		if err != nil {
			t.turned.Lost = t.s.lostReason != nil
			return "", err
		}
		t.turned.ExitCode = &r.exit.Code
		t.s.conversation = t.conversation
		if err := r.abnormalEnd("the agent program", failure.AgentFailed); err != nil {
			return "", err
		}
		reply, err := t.reader.End(r.exit.Code, r.stderrTail)
		t.acceptReply(reply)
		switch {
		case errors.Is(err, agent.ErrConversationLost) && t.s.lastConversation == "":
			t.conversation, t.s.conversation = "", ""
			if err := t.recordSpent(r.attempt, "the program had no record of its conversation"); err != nil {
				return "", err
			}
			continue
		case errors.Is(err, agent.ErrConversationLost):
			t.s.lostReason = failure.New(failure.SessionLost, "the session %q cannot continue: %v; after it is closed, another session can use the workspace", t.s.key, err)
			t.turned.Lost = true
			return "", t.s.lostReason
		case failure.Is(err, failure.NotReady):
			if err := t.recordSpent(r.attempt, err.Error()); err != nil {
				return "", err
			}
			return "", err
		}
		t.s.lastConversation = t.s.conversation
		if err != nil {
			return "", failure.Wrap(err, failure.AgentFailed, "ask")
		}
		if !t.replied {
			t.op.Event(journal.Event{Kind: "agent", Text: reply.Text})
		}
		return reply.Text, nil
	}
}

// spec is the command of a new attempt. The program's login and files are put into its home first.
func (t *turn) spec(ctx context.Context, sb providers.Sandbox, continued bool, timeout time.Duration) (supervise.Spec, error) {
	telling := providers.WithProgress(ctx, func(text string) { t.op.Event(journal.Event{Kind: "progress", Text: text}) })
	prog, err := sb.Program(telling, t.program.Name())
	if err != nil {
		return supervise.Spec{}, err
	}
	t.m.Secrets.Add(sb.Secrets()...) // the login may have been renewed
	t.Binary, t.Home, t.Placeholders, t.Workdir = prog.Path, prog.Home, prog.Placeholders, sb.Workdir()
	t.Continued, t.Conversation = continued, t.conversation
	cmd, err := t.program.Turn(t.Turn)
	if err != nil {
		return supervise.Spec{}, err
	}
	for _, f := range cmd.Files {
		if err := sb.PutFile(ctx, t.program.Name(), f); err != nil {
			return supervise.Spec{}, failure.Wrap(err, failure.Failed, "put %s into the home of %s", f.Path, t.program.Name())
		}
	}
	return supervise.Spec{
		Argv: cmd.Argv, Env: slices.Concat(sb.BaseEnv(), prog.Env, cmd.Env), Dir: sb.Workdir(), Stdin: cmd.Stdin,
		Timeout: timeout, Interrupt: cmd.Interrupt, MaxOutput: cmd.MaxOutput,
	}, nil
}

// feed reads what the program prints. Only what the event log does not have yet becomes an event.
func (t *turn) feed(chunk []byte, fresh int, upto int64) {
	for _, ev := range t.reader.Feed(chunk) {
		if ev.Kind == "conversation" {
			t.conversation = ev.Text
		}
		if ev.Usage != nil {
			t.usage = ev.Usage
		}
		t.replied = t.replied || ev.Kind == "message"
		if fresh > 0 {
			data, _ := json.Marshal(ev)
			text := ev.Text
			if ev.Kind == "conversation" {
				text = "" // an id is for programs
			}
			t.op.Event(journal.Event{Kind: "agent", Text: text, Data: data, Upto: upto})
		}
	}
}

// restore takes up the attempt that an earlier worker started.
func (t *turn) restore(at attempt) {
	t.Continued = at.Continued
	if at.Conversation != "" {
		t.conversation = at.Conversation
	}
	t.Conversation = t.conversation
}

func (t *turn) acceptReply(r agent.Reply) {
	if r.Conversation != "" {
		t.conversation, t.s.conversation, t.turned.Conversation = r.Conversation, r.Conversation, r.Conversation
	}
	if r.Usage != nil {
		t.usage, t.turned.Usage = r.Usage, r.Usage
	}
	if len(r.State) > 0 {
		t.State, t.s.state, t.turned.State = r.State, r.State, r.State
	}
}

// recordSpent makes durable that an attempt has ended without ending the turn.
func (t *turn) recordSpent(at attempt, why string) error {
	at.Spent, at.Continued, at.Conversation = true, true, t.conversation
	if err := t.op.RecordCut(why); err != nil {
		return err
	}
	crash.Point("session/before-spent")
	return t.op.Advance(at)
}

// How much of the stderr of a failed command becomes an event: its last lines, where programs say why they fail. All of it is in
// the operation's value.
const (
	failingLines = 10
	failingBytes = 2000
)

func attemptDir(dir, name string, attempt int) string {
	return filepath.Join(dir, "ops", fmt.Sprintf("%s-%d", name, attempt))
}
