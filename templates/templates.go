// Package templates is what `laufwerk init` writes: TypeScript that stands for itself and is type-checked as it is. Values
// of the user replace the strings Project and Agent.
package templates

import "embed"

// Placeholders, as they stand in the files.
const (
	Project = `"PROJECT_ID"`                  // becomes a string
	Agent   = `["AGENT_PROGRAM", "ARGUMENT"]` // becomes an array of strings
)

// Files holds the content of a project's laufwerk directory: "project" for all, and what "execution/<kind>" adds.
//
//go:embed project execution
var Files embed.FS
