// Package templates is what `laufwerk init` writes: TypeScript that stands for itself and is type-checked as it is. Values
// of the user replace the strings that are named here.
package templates

import (
	"cmp"
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

// Reviewed holds the example of the kinds that enforce read-only access: it has a reviewer more. It stands there as for the
// kind ReviewedFor.
const (
	Reviewed    = "reviewed"
	ReviewedFor = "docker"
)

// Policy is the file of the policies of a gateway's targets, as seen from a project's laufwerk directory.
const Policy = "openshell/policy.ts"

// Kind is what `laufwerk init` says of the targets of a kind, and does for them.
type Kind struct {
	Target  string // the id of those that are given none; "" is the kind's name
	Named   bool   // the id is written also where it is the kind's name
	Host    bool   // agents run on this machine: nothing keeps them from writing, and there is no image
	Gateway bool   // a gateway makes the sandboxes: it has to be given the login first, and Policy says where they connect to
	Prepare bool   // `laufwerk prepare` makes something ready for them
	Sandbox string // where one of their agents runs: "container"
	Runs    string // completes "Agents run …"
}

// KindOf is what there is to say of a kind of targets.
func KindOf(name string) Kind {
	switch name {
	case "local":
		return Kind{Host: true, Prepare: true, Sandbox: "machine", Runs: "on this machine, with your permissions: copies of the files, no sandbox"}
	case "docker":
		return Kind{Prepare: true, Sandbox: "container", Runs: "in containers of this machine, on copies of the files"}
	case "openshell":
		return Kind{
			Target: "secure-coding", Named: true, Gateway: true, Prepare: true, Sandbox: "sandbox",
			Runs: "in sandboxes of an OpenShell gateway of this machine, on copies of the files",
		}
	}
	return Kind{Sandbox: "sandbox", Runs: "in sandboxes, on copies of the files"}
}

// Target is the id of a kind's targets that are given none.
func Target(kind string) string { return cmp.Or(KindOf(kind).Target, kind) }

// CodexComment is the line above Codex for the targets of a kind.
func CodexComment(kind string) string {
	does := "puts it into an image"
	if KindOf(kind).Host {
		does = "installs it"
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
