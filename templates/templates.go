// Package templates is what `laufwerk init` writes: TypeScript that stands for itself and is type-checked as it is. Values
// of the user replace the strings that are named here.
package templates

import (
	"embed"
	"fmt"
)

// Placeholders, as they stand in the files.
const (
	Project = `"PROJECT_ID"` // becomes a string
	// Options of a target: an id where it is not the kind's own, a login where the example's agent takes one.
	Options = `{ id: "TARGET_ID", credentials: "codex-subscription" }`
	// ID and Credentials are these two where each has a line of its own.
	ID          = "  id: \"TARGET_ID\",\n"
	Credentials = "  credentials: \"codex-subscription\",\n"
	// Login is the one that the example's agent takes from its target.
	Login = "codex-subscription"
	// Execution is the module that a workflow's target comes from.
	Execution = `"../../execution"`
	// Codex is the example's agent, which a program can take the place of: see Command.
	CodexImport = `import { createCodex } from "@laufwerk/sdk/harness/codex";`
	Codex       = `const agent = execution.agent({
  harness: createCodex(),
});`
)

// Reviewed holds the example of the kinds that enforce read-only access: it has a reviewer more. It stands there as for Docker.
const Reviewed = "reviewed"

// OpenShell is the kind whose targets bring a policy.
const OpenShell = "openshell"

// Policy is the file of it, as seen from a project's laufwerk directory.
const Policy = "openshell/policy.ts"

// Target is the id of a kind's targets that are given none.
func Target(kind string) string {
	if kind == OpenShell {
		return "secure-coding"
	}
	return kind
}

// CodexComment is the line above Codex for the targets of a kind.
func CodexComment(kind string) string {
	does := "installs it"
	if kind != "local" {
		does = "puts it into an image"
	}
	return fmt.Sprintf("// Codex, with the login of your ChatGPT subscription: \"laufwerk prepare %s\" %s, \"laufwerk doctor\" checks it.\n", kind, does)
}

// Command is an agent that is any program; Agent in it becomes an array of strings.
const (
	CommandImport = `import { createCommand } from "@laufwerk/sdk/harness/command";`
	Agent         = `["AGENT_PROGRAM", "ARGUMENT"]`
	Command       = `// The prompt is the program's standard input, the workspace its working directory, its standard output the reply.
const agent = execution.agent({
  harness: createCommand({ command: ` + Agent + ` }),
});`
)

// Files holds the content of a project's laufwerk directory: "project" for all, and what Reviewed and "execution/<kind>" add or have
// in its place.
//
//go:embed project reviewed execution
var Files embed.FS
