// Package providers is what laufwerk asks of a place that runs commands and agents. A provider is a pure adapter: it knows
// neither claims nor store. It describes itself, validates options, says whether it is ready, and makes, finds, observes and
// deletes resources, each with one of three outcomes and the evidence for it. Refusals come before any mutation.
//
// To add a provider: a folder below this one, one line in internal/app, its module in sdk/, its template.
package providers

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/checks"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// Info is what a provider can do. What it cannot enforce is refused by name, before anything is allocated.
type Info struct {
	Kind           string   // "local"
	Isolation      string   // one sentence, shown to people
	Direct         bool     // direct workspaces
	ReadOnly       bool     // enforced read-only access
	ReadOnlyReason string   // why not
	Skills         bool     // injected skills
	SkillsReason   string   // why not
	SandboxReason  string   // why agent programs cannot make a sandbox of their own inside, which permission modes are; "" where they can
	Limits         []string // the resource options that it enforces
	Programs       []string // the agent programs that it can run, by name; nil is all
}

// Need is what a target must be ready for.
type Need struct {
	Workspace  bool   // engine and image
	Program    string // an agent program and its login, by the program's name
	Executable string // a program that the target has to have itself: a name to find, or a path
}

// Provider is a place that runs commands and agents.
type Provider interface {
	resource.Manager
	Info() Info
	// Validate is the one set of rules for a constructor's options, called by the constructor in the isolate and again by the
	// engine. It does no I/O. The failure's Paths hold the option's path, its message what was expected and what came.
	Validate(options json.RawMessage) (targets.Definition, error)
	// Endpoint is the identity that is recorded in intents. It may look, it must not change anything.
	Endpoint(ctx context.Context, def targets.Definition) (string, error)
	// Name is that of a claim's sandbox: always the same.
	Name(claim string) string
	// Owner is to whom a workspace's files must belong that sessions of this target work on, where sandboxes run as another
	// user than the worker that has the same ids on this host; not ok means to the worker.
	Owner(ctx context.Context, def targets.Definition) (uid, gid int, ok bool, err error)
	// Ready says what is missing, nil if nothing is: the same for doctor and run. It changes nothing.
	Ready(ctx context.Context, def targets.Definition, need Need) []failure.Condition
	// Plan asks what Ready asks, once, and is what a session's intent has to say; where something is missing there is no plan.
	// It changes nothing.
	Plan(ctx context.Context, def targets.Definition, need Need, s SessionSpec) (Plan, []failure.Condition, error)
	// Examine says of everything that a target needs, one by one, whether it is there: by the rules of Ready, and it changes
	// nothing. The ids are below the target's own: "engine", "codex.login"; "" is the target as a whole.
	Examine(ctx context.Context, def targets.Definition) []checks.Check
	// Probe is a command that can run in the sandbox of an intent, whatever its image lacks.
	Probe(in resource.Intent, def targets.Definition) Probe
	// Enter gives the means to run commands in an existing resource. It fails with failure.SessionLost if it is not there,
	// and never makes a new one. The definition brings the values of variables, which no intent holds; one of the worker's
	// that is not set is a failure of kind NotReady. The zero definition brings none: enough to fence.
	Enter(ctx context.Context, in resource.Intent, def targets.Definition) (Sandbox, error)
}

// Probe is a command that is run to see whether commands can be run.
type Probe struct {
	Argv []string
	// Read says what its output, which came with exit code 0, tells. The ids are below the probe's.
	Read func(stdout []byte) []checks.Check
}

// SessionSpec is what a session asks of its sandbox.
type SessionSpec struct {
	Key       string
	Dir       string // the session's private directory on the host, in the run's folder: program home, records of its operations
	Workspace string // the workspace's directory on the host
	ReadOnly  bool
	Mark      string // the session's mark: every process carries it in its environment
}

// Plan is what a provider makes of a SessionSpec.
type Plan struct {
	Spec  json.RawMessage // of the Intent
	Image string          // the id of the image that the sandbox must be made from, "" where there are none
}

// MaxFile bounds the transfer of one file, in bytes.
const MaxFile = 16 << 20

// Sandbox is an entered resource.
type Sandbox interface {
	// Launcher starts and signals supervisors inside.
	Launcher() supervise.Launcher
	// Workdir and Home are the workspace's and the session's private home directory as commands inside see them.
	Workdir() string
	Home() string
	// BaseEnv is the environment of every command: an allow-list, never the worker's whole environment.
	BaseEnv() []string
	// Secrets are values that must not get into any record: logins, and variables whose names say so.
	Secrets() []string
	// Program is the way to an agent program, whose login is put into its private home anew: it is asked for before every
	// turn. The zero value for programs that need nothing. What is missing is a failure of kind NotReady.
	Program(ctx context.Context, name string) (Program, error)
	// PutFile puts a file into a program's private home, in place of whatever has its name.
	PutFile(ctx context.Context, program string, f agent.File) error
	// ReadFile reads a file of the workspace, of at most MaxFile bytes; fs.ErrNotExist where there is none.
	ReadFile(ctx context.Context, path string) ([]byte, error)
	// WriteFile puts a file of at most MaxFile bytes into the workspace, whole or not at all, with the directories above it.
	WriteFile(ctx context.Context, path string, data []byte) error
	// Fence ends everything that any operation of this session may still be running.
	Fence(ctx context.Context) supervise.FenceResult
}

// Program is a prepared agent program, as it is seen inside a sandbox.
type Program struct {
	Path string // of the executable
	Home string // private to the session
	// Placeholders says that the login in there is one of placeholders, which something on the way out of the sandbox replaces:
	// what the program is answered about its login does not look like what it has.
	Placeholders bool
	Env          []string // in addition to the sandbox's
}

type progressKey struct{}

// WithProgress is a context in which a provider can report what takes its time, for whoever follows the operation.
func WithProgress(ctx context.Context, report func(line string)) context.Context {
	return context.WithValue(ctx, progressKey{}, report)
}

// Progress reports a line where somebody follows.
func Progress(ctx context.Context, format string, args ...any) {
	if report, ok := ctx.Value(progressKey{}).(func(string)); ok {
		report(fmt.Sprintf(format, args...))
	}
}
