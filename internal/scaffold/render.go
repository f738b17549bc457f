// Package scaffold makes the laufwerk directory of a project: rendered whole, validated by loading it, then put in its place
// at once. It never overwrites.
package scaffold

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/templates"
)

// Directory holds everything of laufwerk's in a project.
const Directory = "laufwerk"

// Example is the workflow that init can write.
const Example = "issue-to-fix"

// File is one file to make. Path is relative to the project's root, slash separated.
type File struct {
	Path    string
	Content []byte
}

// Options say what to make.
type Options struct {
	ProjectID    string   // [A-Za-z0-9._-]{1,63}
	Execution    string   // a provider kind
	Example      bool     // with the example workflow
	AgentCommand []string // of the example's agent
	Declarations []File   // of the SDK's modules; paths relative to laufwerk/types
}

// Executions are the provider kinds that there are templates for.
func Executions() []string {
	found, _ := fs.Glob(templates.Files, "execution/*.ts")
	var kinds []string
	for _, f := range found {
		kinds = append(kinds, strings.TrimSuffix(path.Base(f), ".ts"))
	}
	return kinds
}

// Render makes the files, in the order in which they are best read.
func Render(o Options) ([]File, error) {
	var out []File
	for _, from := range []struct{ template, to string }{
		{"project/laufwerk.config.ts", "laufwerk.config.ts"},
		{"execution/" + o.Execution + ".ts", "execution.ts"},
		{"project/workflows/" + Example + "/workflow.ts", "workflows/" + Example + "/workflow.ts"},
		{"project/tsconfig.json", "tsconfig.json"},
	} {
		if strings.HasPrefix(from.to, "workflows/") && !o.Example {
			continue
		}
		content, err := fs.ReadFile(templates.Files, from.template)
		if err != nil {
			return nil, failure.New(failure.Usage, "there is no template for the execution %q", o.Execution)
		}
		content = bytes.ReplaceAll(content, []byte(templates.Project), literal(o.ProjectID))
		content = bytes.ReplaceAll(content, []byte(templates.Agent), literal(o.AgentCommand))
		out = append(out, File{path.Join(Directory, from.to), content})
	}
	for _, d := range o.Declarations {
		out = append(out, File{path.Join(Directory, "types", d.Path), d.Content})
	}
	return out, nil
}

// literal is a value as TypeScript reads it.
func literal(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // strings always encode
	return bytes.ReplaceAll(bytes.TrimSpace(b.Bytes()), []byte(`","`), []byte(`", "`))
}

var notInID = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// ProjectID makes a project id of a directory's name.
func ProjectID(root string) string {
	id := strings.Trim(notInID.ReplaceAllString(filepath.Base(root), "-"), "-._")
	id = strings.TrimRight(id[:min(len(id), 63)], "-._")
	if id == "" {
		return "project"
	}
	return id
}
