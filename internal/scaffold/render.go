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
	"slices"
	"strings"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/sdk"
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
}

// Executions are the provider kinds that there are templates for.
func Executions() []string {
	entries, _ := fs.ReadDir(templates.Files, "execution")
	var kinds []string
	for _, e := range entries {
		kinds = append(kinds, e.Name())
	}
	return kinds
}

// Render makes the files: the project's own, the target's, the declarations of the SDK.
func Render(o Options) ([]File, error) {
	if !slices.Contains(Executions(), o.Execution) {
		return nil, failure.New(failure.Usage, "there is no template for the execution %q", o.Execution)
	}
	var out []File
	for _, from := range []string{"project", "execution/" + o.Execution} {
		err := fs.WalkDir(templates.Files, from, func(p string, e fs.DirEntry, err error) error {
			rel := strings.TrimPrefix(p, from+"/")
			if err != nil || e.IsDir() || strings.HasPrefix(rel, "workflows/") && !o.Example {
				return err
			}
			content, err := fs.ReadFile(templates.Files, p)
			content = bytes.ReplaceAll(content, []byte(templates.Project), literal(o.ProjectID))
			content = bytes.ReplaceAll(content, []byte(templates.Agent), literal(o.AgentCommand))
			out = append(out, File{path.Join(Directory, rel), content})
			return err
		})
		if err != nil {
			return nil, failure.Wrap(err, failure.Internal, "read the templates")
		}
	}
	return append(out, File{path.Join(Directory, "types/laufwerk.d.ts"), []byte(sdk.Declarations())}), nil
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
