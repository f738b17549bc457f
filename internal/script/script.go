// Package script evaluates the TypeScript of a project: its config, its scripts, its workflows.
//
// User code is bundled (esbuild) and run (QuickJS) in a child process, a re-exec of this binary with an empty environment
// and no descriptors but its pipes. The child has no files, network, processes or clock: the files that it asks for are
// served by the parent, only from inside the project root, and time and randomness follow from the start message. Memory and
// time are bounded by the engine inside the child, and once more from outside, since one native call of the engine can
// starve its own interrupt: the parent kills what does not answer.
//
//	Runner  the parent's side: Evaluate a module, Start a workflow
//	Child   one running workflow: answers go in, calls come out
//	Main    the child's side
package script

import (
	"encoding/json"

	"github.com/laufwerk/laufwerk/internal/protocol"
)

// Validator is the host's one set of rules, called synchronously by the constructors of the SDK inside the child.
// It does no I/O. A failure's first path is the path of the option.
//
//	subject "target/<kind>"      options → targets.Definition
//	        "harness/<program>"  options → normalised options
//	        "agent"              {target, harness: {program, options}, id?, instructions?, permissionMode?, skills?, activeTools?} → the normalised agent, with its id
//	        "project"            {projectId, executions: [{kind, sandbox}], concurrency?} → any
type Validator interface {
	Validate(subject string, value json.RawMessage) (json.RawMessage, error)
}

// Limits of an evaluation: memory of the engine in bytes, computing between two messages in milliseconds.
type Limits = protocol.Limits

// The default limits: reading a config (or describing a workflow), and running a workflow.
func DefaultLimits() (config, workflow Limits) {
	return Limits{MemoryBytes: 64 << 20, StepMillis: 2000}, Limits{MemoryBytes: 128 << 20, StepMillis: 5000}
}

// LeastMemory is the smallest memory limit in bytes: the engine's parser has crashed under smaller ones.
const LeastMemory = 32 << 20

// Argument is the hidden subcommand that the child is started with.
const Argument = "__isolate"

// What a child is started for.
const (
	evaluate = "evaluate"
	workflow = "workflow"
)

// Bounds of what a project may import.
const (
	maxFile    = 4 << 20  // bytes of one module
	maxSources = 32 << 20 // bytes of all modules of a bundle
	maxFiles   = 5000     // modules of a bundle

	maxHostCalls = 100 // of what a module asks of the host
)
