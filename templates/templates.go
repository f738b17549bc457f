// Package templates is what `laufwerk init` writes: TypeScript that stands for itself and is type-checked as it is. Values
// of the user replace the strings that are named here.
package templates

import (
	"cmp"
	"embed"
	"encoding/json"
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

// Reviewed holds the example of the kinds that enforce read-only access: it has a reviewer more.
const Reviewed = "reviewed"

// The kinds for which the examples stand in the files: "project" has the first one's, Reviewed the other's.
const (
	PlainFor    = "local"
	ReviewedFor = "docker"
)

// Policy is the file of the policies of a gateway's targets, as seen from a project's laufwerk directory.
const Policy = "openshell/policy.ts"

// KindFile describes a kind of targets, beside its templates: a Kind.
const KindFile = "kind.json"

// Kind is what `laufwerk init` says of the targets of a kind, and does for them.
type Kind struct {
	Target   string `json:"target"`   // the id of those that are given none; "" is the kind's name
	Named    bool   `json:"named"`    // the id is written also where it is the kind's name
	Host     bool   `json:"host"`     // agents run on this machine
	ReadOnly bool   `json:"readOnly"` // read-only access is enforced: the example has a reviewer
	Gateway  bool   `json:"gateway"`  // a gateway makes the sandboxes: it has to be given the login first, and Policy says where they connect to
	Prepares string `json:"prepares"` // what `laufwerk prepare KIND` does with an agent program: "installs it"; "" where there is nothing to prepare
	Sandbox  string `json:"sandbox"`  // where one of their agents runs: "container"
	Runs     string `json:"runs"`     // completes "Agents run …"
}

// KindOf is what there is to say of a kind of targets.
func KindOf(name string) Kind {
	k := Kind{Sandbox: "sandbox", Runs: "in sandboxes, on copies of the files"}
	if b, err := Files.ReadFile("execution/" + name + "/" + KindFile); err == nil {
		if err := json.Unmarshal(b, &k); err != nil {
			panic(err) // it is embedded
		}
	}
	return k
}

// Target is the id of a kind's targets that are given none.
func Target(kind string) string { return cmp.Or(KindOf(kind).Target, kind) }

// CodexComment is the line above Codex for the targets of a kind.
func CodexComment(kind string) string {
	prepare := ""
	if does := KindOf(kind).Prepares; does != "" {
		prepare = fmt.Sprintf("\"laufwerk prepare %s\" %s, ", kind, does)
	}
	return fmt.Sprintf("// Codex, with the login of your ChatGPT subscription: %s\"laufwerk doctor\" checks it.\n", prepare)
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
