// Package protocol is what the isolate's child and the engine say to each other: newline-delimited JSON over the child's
// stdin and stdout, one message a line. Versions are major.minor: minor changes are additive, and an engine speaks with the
// children of the versions N and N-1, since a run keeps the bundle it started with.
//
// A conversation over a workflow:
//
//	engine → child   start {version, mode: "workflow", bundle, input, seed, now}
//	child → engine   call {id, op, key, scope, ordinal, args}    any number, then
//	child → engine   idle                                        nothing more will happen without an answer
//	engine → child   result {id, value, now} | error {id, error, now}
//	child → engine   call …, cancel {ids}, idle …
//	child → engine   done {value} | error {error}
//
// After every result or error the child runs until nothing can go on, then says idle (or done, error). The engine sends one
// answer at a time and waits for idle: so the order of answers alone decides what the workflow does.
package protocol

import (
	"encoding/json"
	"time"
)

// Version of this protocol.
const Version = "1.0"

// Message types.
const (
	TypeStart  = "start"  // engine → child
	TypeResult = "result" // engine → child: an operation's value
	TypeError  = "error"  // engine → child: an operation's failure; child → engine: the end of the program by an exception
	TypeFile   = "file"   // child → engine: a file that the bundler asks for; engine → child: its content or refusal
	TypeCall   = "call"   // child → engine
	TypeCancel = "cancel" // child → engine: operations of cancelled branches; each must still be answered
	TypeIdle   = "idle"   // child → engine
	TypeLog    = "log"    // child → engine: console.*
	TypeBundle = "bundle" // child → engine: the bundle it made
	TypeHost   = "host"   // child → engine: what the module asks of the host while it is evaluated; engine → child: the answer
	TypeDone   = "done"   // child → engine
)

// Message is every message; Type says which fields count.
type Message struct {
	Type    string          `json:"type"`
	Version string          `json:"version,omitempty"`
	ID      string          `json:"id,omitempty"`  // of an operation (unique in the run, equal at replay) or of a file request
	IDs     []string        `json:"ids,omitempty"` // cancel
	Call    *Call           `json:"call,omitempty"`
	Value   json.RawMessage `json:"value,omitempty"` // result, done, log
	Error   *Error          `json:"error,omitempty"`
	Now     int64           `json:"now,omitempty"` // ms since 1970: the time that the program sees from here on
	Start   *Start          `json:"start,omitempty"`
	File    *File           `json:"file,omitempty"`
	Bundle  *Bundle         `json:"bundle,omitempty"`
	Host    *HostCall       `json:"host,omitempty"`
}

// Start says what the child is to do.
type Start struct {
	Mode   string          `json:"mode"`             // "evaluate" (a module: its default export or a call) or "workflow"
	Root   string          `json:"root,omitempty"`   // project root, absolute, for file names in errors
	Entry  string          `json:"entry,omitempty"`  // the file to bundle, relative to Root
	Bundle *Bundle         `json:"bundle,omitempty"` // what was bundled before: Entry is not bundled then
	Export string          `json:"export,omitempty"` // the export to use; "" is the default export
	Call   bool            `json:"call,omitempty"`   // call that export with Args and await it
	Args   json.RawMessage `json:"args,omitempty"`
	Input  json.RawMessage `json:"input,omitempty"` // of a workflow
	Seed   string          `json:"seed,omitempty"`  // of every random number: the run's id
	Now    int64           `json:"now,omitempty"`
	Limits Limits          `json:"limits"`
}

// Limits of one evaluation.
type Limits struct {
	MemoryBytes int64 `json:"memoryBytes"`
	StepMillis  int64 `json:"stepMillis"` // computing between two messages; 0 is no limit
}

// Step is the time of computing between two messages.
func (l Limits) Step() time.Duration { return time.Duration(l.StepMillis) * time.Millisecond }

// Bundle is user code in one module with its source map, and the SDK that it was made with, a script that is evaluated
// before it ("" where the SDK is part of the code). Digest is sha256 over SDK and Code, hexadecimal.
type Bundle struct {
	SDK    string          `json:"sdk,omitempty"`
	Code   string          `json:"code"`
	Map    string          `json:"map,omitempty"`
	Digest string          `json:"digest"`
	Output json.RawMessage `json:"output,omitempty"` // JSON Schema of a workflow's result: pinned with its code
	// Answers are what the host said while the module was evaluated. They are pinned with its code: a run, which evaluates the
	// module again with every worker, hears the same each time, and nothing else.
	Answers []HostCall `json:"answers,omitempty"`
}

// HostCall is what a module asks of the host while it is evaluated (Name and Args alone), with the answer: Value or Error.
type HostCall struct {
	Name  string          `json:"name"` // the function of the SDK
	Args  json.RawMessage `json:"args"` // canonical: object keys sorted
	Value json.RawMessage `json:"value,omitempty"`
	Error *Error          `json:"error,omitempty"`
}

// File is a request for a file (Path alone) or its answer.
type File struct {
	Path    string `json:"path"`              // absolute, or relative to the project root
	Kind    string `json:"kind,omitempty"`    // request: "find", "read" or "stat"; answer: "file", "dir", "none" or "refused"
	Real    string `json:"real,omitempty"`    // where the path really leads, relative to the project root
	Content []byte `json:"content,omitempty"` // base64 in JSON
	Reason  string `json:"reason,omitempty"`  // of a refusal, a sentence
}

// Call asks for one operation. Operations are matched at replay by Op, Scope and Key; keyless ones by Branch and Ordinal.
type Call struct {
	Op      string          `json:"op"`                // for example "session.ask"; see the Op constants
	Scope   string          `json:"scope,omitempty"`   // the session's key, for session operations
	Key     string          `json:"key,omitempty"`     // "" for keyless operations
	Branch  string          `json:"branch"`            // "0" is the workflow itself, "0.1.2" a strand of an `all`
	Ordinal int             `json:"ordinal,omitempty"` // of a keyless operation within its branch and Op, from 0
	Args    json.RawMessage `json:"args"`              // canonical: object keys sorted, no secrets
	At      string          `json:"at,omitempty"`      // file:line of the call, for messages; not compared
}

// The operations.
const (
	OpWorkspaceOpen      = "workspace.open"
	OpWorkspaceDiff      = "workspace.diff"
	OpWorkspaceWriteBack = "workspace.writeBack"
	OpSessionOpen        = "session.open"
	OpSessionRun         = "session.run" // a session with one turn
	OpSessionAsk         = "session.ask"
	OpSessionExec        = "session.exec"
	OpSessionReadFile    = "session.readFile"
	OpSessionWriteFile   = "session.writeFile"
	OpSessionClose       = "session.close"
	OpHuman              = "human" // args.type: confirm, text or select: one name space of keys, since `answer` names only the key
	OpHumanNotify        = "human.notify"
	OpHostExec           = "host.exec"
	OpClockNow           = "clock.now"
	OpClockSleep         = "clock.sleep"
)

// Error is a failure on its way over the boundary.
type Error struct {
	Class   string         `json:"class"`            // LaufwerkError, AgentFailed, …; for the child's own: the JavaScript error's name
	Code    string         `json:"code"`             // a failure.Kind
	Message string         `json:"message"`          // complete
	Fields  map[string]any `json:"fields,omitempty"` // paths, holder, exitCode
	Frames  []string       `json:"frames,omitempty"` // "laufwerk/workflows/x/workflow.ts:12:5 in run", user code first
	Option  string         `json:"option,omitempty"` // the option path, of a constructor's refusal
	Hint    string         `json:"hint,omitempty"`
}
