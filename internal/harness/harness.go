// Package harness is what laufwerk asks of the driver of one agent program: how to start a turn, continue a conversation,
// read its events, judge its end, stop it. Never where: that is the provider's.
//
// To add a harness: a folder below this one, one line in internal/app, its module in sdk/.
package harness

import (
	"encoding/json"
	"syscall"
)

// Harness drives one agent program.
type Harness interface {
	// Program is the harness's name: "command", "codex".
	Program() string
	// Validate is the one set of rules for the constructor's options; no I/O.
	Validate(options json.RawMessage) (json.RawMessage, error)
	// Turn says what to run.
	Turn(t Turn) (Command, error)
	// Reader reads the events of one turn.
	Reader(t Turn) Reader
}

// Turn is one prompt of a conversation.
type Turn struct {
	Options      json.RawMessage // normalised
	Prompt       string
	Conversation string          // the program's conversation id; "" in the first turn
	Schema       json.RawMessage // of the answer; nil for text
	Instructions string
	Continued    bool // the last turn was cut: the program is asked to go on
}

// Command is a program to run in the workspace.
type Command struct {
	Argv      []string
	Env       []string // in addition to the sandbox's
	Stdin     []byte
	Interrupt syscall.Signal // the program's own graceful stop
}

// Event is one thing that an agent program said. All of it is untrusted.
type Event struct {
	Kind    string          `json:"kind"` // "conversation", "message", "usage", "action"
	Text    string          `json:"text,omitempty"`
	Usage   *Usage          `json:"usage,omitempty"`
	Payload json.RawMessage `json:"payload,omitempty"`
}

// Usage counts the tokens of one turn.
type Usage struct {
	Input     int64 `json:"inputTokens,omitempty"`
	Cached    int64 `json:"cachedInputTokens,omitempty"`
	Output    int64 `json:"outputTokens,omitempty"`
	Reasoning int64 `json:"reasoningOutputTokens,omitempty"`
}

// Reader reads a turn's stdout as it comes: chunks of any size, split anywhere.
type Reader interface {
	// Feed takes more of stdout and returns the events that became complete.
	Feed(chunk []byte) []Event
	// End judges the turn after the end of the stream.
	End(exitCode int, stderrTail string) (Reply, error)
}

// Reply is how a turn ended well. A failed turn is a failure of kind AgentFailed.
type Reply struct {
	Text         string
	Conversation string // "" where the program has none
	Usage        *Usage
}
