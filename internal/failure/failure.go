// Package failure is the one table of what can go wrong: the kind of a failure, the exit code it ends the command with,
// the word that scripts match in `error.code`, and the class that a workflow catches.
//
// An error that reaches the user says what failed, why, and the next command to type. The kind nearest the cause wins:
// wrapping never replaces a kind that is already there.
package failure

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Exit codes. They are never renumbered; `laufwerk help exit-codes` is generated from Table.
const (
	ExitDone        = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitInvalid     = 3
	ExitNotReady    = 4
	ExitConflict    = 5
	ExitRetained    = 6
	ExitWorkflow    = 7
	ExitWaiting     = 8
	ExitUnknown     = 9
	ExitInterrupted = 130 // SIGINT
	ExitTerminated  = 143 // SIGTERM
	ExitHungUp      = 129 // SIGHUP
)

// Kind is the `error.code` of a failure: lower case words joined by underscores, stable once released.
type Kind string

// The kinds, grouped by exit code.
const (
	Failed   Kind = "failed"   // anything without a better name
	Internal Kind = "internal" // a fault of laufwerk itself

	Usage Kind = "usage"

	ProjectNotFound Kind = "project_not_found"
	ProjectInvalid  Kind = "project_invalid"
	SettingsInvalid Kind = "settings_invalid"
	HomeInvalid     Kind = "home_invalid"  // $LAUFWERK_HOME: owner, mode, not writable
	StoreInvalid    Kind = "store_invalid" // damaged or foreign
	StoreNewer      Kind = "store_newer"
	JournalInvalid  Kind = "journal_invalid"
	InputInvalid    Kind = "input_invalid"
	NotFound        Kind = "not_found" // a run, claim, workflow or question that is not there

	NotReady Kind = "not_ready"

	WriteBackConflict    Kind = "write_back_conflict"
	WriteBackRefused     Kind = "write_back_refused"
	ChangedSinceApproval Kind = "changed_since_approval"
	NotApproved          Kind = "not_approved"
	WorkspaceBusy        Kind = "workspace_busy"
	LeaseBusy            Kind = "lease_held"
	LockBusy             Kind = "lock_held"
	AdmissionFull        Kind = "admission_full"
	DefinitionChanged    Kind = "definition_changed"
	WorkflowChanged      Kind = "workflow_changed"
	AlreadyExists        Kind = "already_exists"
	RunState             Kind = "run_state" // the command does not fit the state the run is in
	HalfApplied          Kind = "half_applied"
	InsideSession        Kind = "inside_session" // called from within one of our sessions

	Retained    Kind = "resources_retained"
	CloseFailed Kind = "close_failed"

	WorkflowFailed Kind = "workflow_failed"
	AgentFailed    Kind = "agent_failed"
	CommandTimeout Kind = "command_timeout"
	OutputTooLarge Kind = "output_too_large"
	OutputInvalid  Kind = "output_invalid"
	SessionLost    Kind = "session_lost"
	WorkspaceLost  Kind = "workspace_lost"
	Cancelled      Kind = "cancelled"
	Unsupported    Kind = "unsupported"
	LimitExceeded  Kind = "limit_exceeded" // memory or time of the isolate

	Waiting        Kind = "waiting"
	OutcomeUnknown Kind = "outcome_unknown"

	Interrupted Kind = "interrupted"
	Terminated  Kind = "terminated"
	HungUp      Kind = "hung_up"
)

// Row is one line of the table.
type Row struct {
	Kind  Kind
	Exit  int
	Class string // the class a workflow catches; "" where workflows never see it
}

// Table holds every kind once.
func Table() []Row {
	return []Row{
		{Failed, ExitFailed, ""}, {Internal, ExitFailed, ""},
		{Usage, ExitUsage, ""},
		{ProjectNotFound, ExitInvalid, ""}, {ProjectInvalid, ExitInvalid, ""}, {SettingsInvalid, ExitInvalid, ""},
		{HomeInvalid, ExitInvalid, ""}, {StoreInvalid, ExitInvalid, ""}, {StoreNewer, ExitInvalid, ""}, {JournalInvalid, ExitInvalid, ""},
		{InputInvalid, ExitUsage, ""}, {NotFound, ExitUsage, ""},
		{NotReady, ExitNotReady, ""},
		{WriteBackConflict, ExitConflict, "WriteBackConflict"}, {WriteBackRefused, ExitConflict, "WriteBackRefused"},
		{ChangedSinceApproval, ExitConflict, "ChangedSinceApproval"}, {NotApproved, ExitConflict, "NotApproved"},
		{WorkspaceBusy, ExitConflict, "WorkspaceBusy"}, {LeaseBusy, ExitConflict, ""}, {LockBusy, ExitConflict, ""},
		{AdmissionFull, ExitConflict, ""}, {DefinitionChanged, ExitConflict, ""}, {WorkflowChanged, ExitConflict, ""},
		{AlreadyExists, ExitConflict, ""}, {RunState, ExitConflict, ""}, {HalfApplied, ExitConflict, ""}, {InsideSession, ExitConflict, ""},
		{Retained, ExitRetained, ""}, {CloseFailed, ExitRetained, "CloseFailed"},
		{WorkflowFailed, ExitWorkflow, "LaufwerkError"}, {AgentFailed, ExitWorkflow, "AgentFailed"}, {CommandTimeout, ExitWorkflow, "CommandTimeout"},
		{OutputTooLarge, ExitWorkflow, "OutputTooLarge"}, {OutputInvalid, ExitWorkflow, "OutputInvalid"},
		{SessionLost, ExitWorkflow, "SessionLost"}, {WorkspaceLost, ExitWorkflow, "WorkspaceLost"},
		{Cancelled, ExitWorkflow, "Cancelled"}, {Unsupported, ExitWorkflow, "Unsupported"}, {LimitExceeded, ExitWorkflow, ""},
		{Waiting, ExitWaiting, ""}, {OutcomeUnknown, ExitUnknown, "OutcomeUnknown"},
		{Interrupted, ExitInterrupted, ""}, {Terminated, ExitTerminated, ""}, {HungUp, ExitHungUp, ""},
	}
}

// Exit is the exit code of a kind; unknown kinds are 1.
func (k Kind) Exit() int {
	for _, r := range Table() {
		if r.Kind == k {
			return r.Exit
		}
	}
	return ExitFailed
}

// Class is the name of the TypeScript class of a kind, "LaufwerkError" where it has none of its own.
func (k Kind) Class() string {
	for _, r := range Table() {
		if r.Kind == k && r.Class != "" {
			return r.Class
		}
	}
	return "LaufwerkError"
}

// Error is a failure with everything its reader needs. The zero value of every optional field means "nothing to say".
type Error struct {
	Kind       Kind
	Message    string         // what failed and why, one or more sentences, no trailing newline
	Hint       string         // the next command to type, ready to paste; several ways out are a line each
	Paths      []string       // the files or option paths concerned
	Fields     map[string]any // further data of the typed class (holder, exitCode), JSON values
	Conditions []Condition    // single observations behind the failure
	Err        error          // the cause
}

// Condition is one observation that a failure rests on.
type Condition struct {
	ID      string // a path's is the path itself
	Message string
	Hint    string // the next command to type for it, where there is one of its own
}

func (e *Error) Error() string {
	switch {
	case e.Message == "" && e.Err != nil:
		return e.Err.Error()
	case e.Err != nil:
		return e.Message + ": " + e.Err.Error()
	default:
		return e.Message
	}
}

func (e *Error) Unwrap() error { return e.Err }

// New makes a failure of a kind.
func New(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// Wrap says what was being done when err happened. A kind already in err's chain wins over kind; nil stays nil.
func Wrap(err error, kind Kind, format string, args ...any) error {
	if err == nil {
		return nil
	}
	out := &Error{Kind: kind, Message: fmt.Sprintf(format, args...), Err: err}
	if inner := As(err); inner != nil {
		out.Kind, out.Hint, out.Paths, out.Fields, out.Conditions = inner.Kind, inner.Hint, inner.Paths, inner.Fields, inner.Conditions
	}
	return out
}

// WithHint sets the next command to type and returns e.
func (e *Error) WithHint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

// Quote is a word as a POSIX shell reads it back, for hints: they can be pasted, whatever the names in them are.
func Quote(word string) string {
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool {
		return !strings.ContainsRune("/._-+,:@%=", r) && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// WithCause sets the cause, which may be nil, and returns e. Unlike Wrap, it takes nothing else over from it.
func (e *Error) WithCause(err error) *Error {
	e.Err = err
	return e
}

// WithPaths names the paths concerned and returns e.
func (e *Error) WithPaths(paths ...string) *Error {
	e.Paths = paths
	return e
}

// WithField adds one value for scripts and for the typed class, and returns e.
func (e *Error) WithField(name string, value any) *Error {
	if e.Fields == nil {
		e.Fields = map[string]any{}
	}
	e.Fields[name] = value
	return e
}

// As finds the failure nearest the top of err's chain, nil where there is none.
func As(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return nil
}

// KindOf is the kind of err, Failed for foreign errors, "" for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	if e := As(err); e != nil {
		return e.Kind
	}
	return Failed
}

// Is reports whether err is of a kind.
func Is(err error, kind Kind) bool { return err != nil && KindOf(err) == kind }

// PathBase64 has the bytes of each path that is not UTF-8, which a string of JSON cannot hold, and "" for the others. It is nil
// where all are.
func PathBase64(paths []string) []string {
	var out []string
	for i, p := range paths {
		if utf8.ValidString(p) {
			continue
		}
		if out == nil {
			out = make([]string, len(paths))
		}
		out[i] = base64.StdEncoding.EncodeToString([]byte(p))
	}
	return out
}

// RestorePaths puts back what PathBase64 has taken out of paths that went through JSON since.
func RestorePaths(paths, pathBase64 []string) {
	for i := range paths {
		if i >= len(pathBase64) || pathBase64[i] == "" {
			continue
		}
		if raw, err := base64.StdEncoding.DecodeString(pathBase64[i]); err == nil {
			paths[i] = string(raw)
		}
	}
}

type condition struct {
	ID         string `json:"id"`
	PathBase64 string `json:"pathBase64,omitempty"` // the bytes of an id that is a path and not UTF-8
	Message    string `json:"message"`
	Hint       string `json:"hint,omitempty"`
}

// MarshalJSON keeps the bytes of an id.
func (c Condition) MarshalJSON() ([]byte, error) {
	out := condition{ID: c.ID, Message: c.Message, Hint: c.Hint}
	if raw := PathBase64([]string{c.ID}); raw != nil {
		out.PathBase64 = raw[0]
	}
	return json.Marshal(out)
}

// UnmarshalJSON is the way back.
func (c *Condition) UnmarshalJSON(b []byte) error {
	var in condition
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	id := []string{in.ID}
	RestorePaths(id, []string{in.PathBase64})
	*c = Condition{ID: id[0], Message: in.Message, Hint: in.Hint}
	return nil
}
