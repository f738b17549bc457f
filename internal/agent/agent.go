// Package agent is what laufwerk asks of an agent program: what it is installed from, with which login of the user's it runs,
// how a turn is started and continued, what its events say, how its end is judged, how it is stopped. Never where it runs:
// that is a provider's.
//
// To add an agent program: a folder below this one, one line in internal/app, its module in sdk/.
package agent

import (
	"encoding/json"
	"errors"
	"io/fs"
	"syscall"
)

// Program is one agent program.
type Program interface {
	// Name is the program's, for options, files, records and the ids of checks: "command", "codex". It is a file's name.
	Name() string
	// Title is what people call it: "Codex".
	Title() string
	// Recipe is what it is installed from; nil for a program that is not installed: the target has it, or brings it.
	Recipe() *Recipe
	// Credential is the login of the user's that it runs with; nil for none.
	Credential() *Credential
	// Executable is the name or the path of the program that the target has to have itself, by normalised options; "" for none.
	Executable(options json.RawMessage) string
	// Validate is the one set of rules for the constructor's options; no I/O. Its own normalised form is valid and stays as it is.
	Validate(options json.RawMessage) (json.RawMessage, error)
	// Accept refuses what the program cannot do or enforce for an agent; the failure's path names the option. No I/O.
	Accept(r Requirements) error
	// Turn says what to run.
	Turn(t Turn) (Command, error)
	// Reader reads the events of one turn.
	Reader(t Turn) Reader
}

// AllowAll is the permission mode that restricts nothing, and the default. The others let an agent edit the workspace's
// files, or only read.
const (
	AllowAll   = "allow-all"
	AllowEdits = "allow-edits"
	AllowReads = "allow-reads"
)

// Requirements are what `.agent()` asks of a program.
type Requirements struct {
	Options        json.RawMessage // normalised
	Instructions   string
	PermissionMode string
	Skills         []Skill
	ActiveTools    []string
}

// Skill is a text that an agent reads when its description fits what it is asked, with files beside it. It is valid: a name
// is a file name of lower-case letters, digits and hyphens, paths are relative and stay below the skill.
type Skill struct {
	Name        string            `json:"name"`
	Description string            `json:"description"` // one line
	Content     string            `json:"content"`
	Files       map[string]string `json:"files,omitempty"` // content by path, with slashes
}

// Turn is one prompt of a conversation.
type Turn struct {
	Options        json.RawMessage // normalised
	Prompt         string
	Conversation   string          // the program's conversation id; "" in the first turn
	Schema         json.RawMessage // of the answer; nil for text
	Instructions   string
	PermissionMode string
	Skills         []Skill
	Continued      bool            // the last turn was cut: the program is asked to go on
	Binary         string          // path of the prepared program, where it has one
	Home           string          // the program's private home, as the program sees it
	Placeholders   bool            // the login in it is one of placeholders, which something on the way replaces
	Workdir        string          // the workspace, likewise
	State          json.RawMessage // what the last Reply of this conversation left; nil at its beginning
}

// Command is a program to run in the workspace.
type Command struct {
	Argv      []string
	Env       []string // in addition to the sandbox's
	Stdin     []byte
	Interrupt syscall.Signal // the program's own graceful stop
	Files     []File         // put into the program's home before it starts
	MaxOutput int64          // bytes of stdout that are kept for the reader; 0 is the session's own bound
}

// File is a file in the program's private home. Secret says that it must not be kept longer than the program needs it.
type File struct {
	Path    string // relative, slashes
	Content []byte
	Mode    fs.FileMode
	Secret  bool
}

// ErrConversationLost is in the chain of a reader's failure when the program knows nothing of the conversation that it was
// to continue, and did nothing.
var ErrConversationLost = errors.New("the program does not know the conversation")

// Event is one thing that an agent program said. All of it is untrusted.
type Event struct {
	Kind    string          `json:"kind"` // "conversation", "message", "reasoning", "action", "usage", "notice"
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

// Reply is how a turn ended well. A failed turn is a failure of kind AgentFailed, or NotReady where the turn can go on once
// something outside was mended: a login, a limit, the network. Conversation, Usage and State count for failed turns too.
type Reply struct {
	Text         string
	Conversation string // "" where the program has none
	Usage        *Usage
	State        json.RawMessage // opaque: for the next turn of this conversation
}
