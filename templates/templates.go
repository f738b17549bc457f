// Package templates is what `laufwerk init` writes: TypeScript that stands for itself and is type-checked as it is. Values
// of the user replace the strings that are named here.
package templates

import "embed"

// Placeholders, as they stand in the files.
const (
	Project = `"PROJECT_ID"` // becomes a string
	// Options of a target: an id where it is not the kind's own, a login where the example's agent takes one.
	Options = `{ id: "TARGET_ID", credentials: "codex-subscription" }`
	// Execution is the module that a workflow's target comes from.
	Execution = `"../../execution"`
	// Codex is the example's agent, which a program can take the place of: see Command.
	CodexImport = `import { createCodex } from "@laufwerk/sdk/harness/codex";`
	Codex       = `// Codex, with the login of your ChatGPT subscription: "laufwerk prepare local" installs it, "laufwerk doctor" checks it.
const agent = execution.agent({
  harness: createCodex(),
});`
)

// Command is an agent that is any program; Agent in it becomes an array of strings.
const (
	CommandImport = `import { createCommand } from "@laufwerk/sdk/harness/command";`
	Agent         = `["AGENT_PROGRAM", "ARGUMENT"]`
	Command       = `// The prompt is the program's standard input, the workspace its working directory, its standard output the reply.
const agent = execution.agent({
  harness: createCommand({ command: ` + Agent + ` }),
});`
)

// Files holds the content of a project's laufwerk directory: "project" for all, and what "execution/<kind>" adds.
//
//go:embed project execution
var Files embed.FS
