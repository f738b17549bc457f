// Package scaffold makes the laufwerk directory of a project, and adds targets to one that is there: rendered whole,
// validated by loading it, then put in its place. It overwrites only what it is told to.
package scaffold

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/lazyregexp"
	"github.com/laufwerk/laufwerk/sdk"
	"github.com/laufwerk/laufwerk/templates"
)

// Directory holds everything of laufwerk's in a project.
const Directory = "laufwerk"

// Example is the workflow that init can write.
const Example = "issue-to-fix"

const policyPath = Directory + "/" + templates.Policy

const examplePath = Directory + "/workflows/" + Example + "/workflow.ts"

// File is one file to make. Path is relative to the project's root, slash separated.
type File struct {
	Path    string
	Content []byte
}

// Options say what to make.
type Options struct {
	ProjectID    string   // [A-Za-z0-9._-]{1,63}
	Execution    string   // a provider kind
	Target       string   // the target's id; "" is templates.Target
	Example      bool     // with the example workflow
	AgentCommand []string // the program that is the example's agent; nil is Codex
	Force        bool     // replaces files that are in the way

	login bool // the target takes the login of a subscription, as others of the project do
}

func (o Options) target() string {
	if o.Target != "" {
		return o.Target
	}
	return templates.Target(o.Execution)
}

// options are what stands in the target's constructor in place of the template's: all on one line, or the id and the login on
// lines of their own.
func (o Options) options() (all, id, login string) {
	var fields []string
	if o.target() != o.Execution || templates.KindOf(o.Execution).Named {
		fields = append(fields, "id: "+literal(o.target()))
		id = "  " + fields[0] + ",\n"
	}
	if o.login || o.Example && o.AgentCommand == nil {
		fields = append(fields, "credentials: "+literal(templates.Login))
		login = templates.Credentials
	}
	if fields != nil {
		all = "{ " + strings.Join(fields, ", ") + " }"
	}
	return all, id, login
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

// Render makes the files of a new project: its own, the target's, the declarations of the SDK.
func Render(o Options) ([]File, error) {
	return render(o, "execution")
}

// render makes them for a target whose module is named.
func render(o Options, module string) ([]File, error) {
	if !slices.Contains(Executions(), o.Execution) {
		return nil, failure.New(failure.Usage, "there is no template for the execution %q", o.Execution)
	}
	swaps := []string{templates.Project, literal(o.ProjectID), templates.Execution, `"../../` + module + `"`}
	sources, comment := []string{"project", "execution/" + o.Execution}, templates.CodexComment(templates.PlainFor)
	if templates.KindOf(o.Execution).ReadOnly {
		sources = []string{"project", templates.Reviewed, "execution/" + o.Execution}
		comment = templates.CodexComment(templates.ReviewedFor)
	}
	if o.AgentCommand != nil {
		command := strings.Replace(templates.Command, templates.Agent, literal(o.AgentCommand), 1)
		swaps = append(swaps, templates.CodexImport, templates.CommandImport, comment+templates.Codex, command)
	}
	swaps = append(swaps, comment, templates.CodexComment(o.Execution))
	options, id, login := o.options()
	swaps = append(swaps, templates.Options, options, templates.ID, id, templates.Credentials, login)
	replacer := strings.NewReplacer(swaps...)
	var out []File
	for _, from := range sources {
		err := fs.WalkDir(templates.Files, from, func(p string, e fs.DirEntry, err error) error {
			rel := strings.TrimPrefix(p, from+"/")
			if err != nil || e.IsDir() || rel == templates.KindFile || strings.HasPrefix(rel, "workflows/") && !o.Example {
				return err
			}
			if rel == "execution.ts" {
				rel = module + ".ts"
			}
			content, err := fs.ReadFile(templates.Files, p)
			f := File{path.Join(Directory, rel), []byte(replacer.Replace(string(content)))}
			if i := slices.IndexFunc(out, func(o File) bool { return o.Path == f.Path }); i >= 0 {
				out[i] = f
			} else {
				out = append(out, f)
			}
			return err
		})
		if err != nil {
			return nil, failure.Wrap(err, failure.Internal, "read the templates")
		}
	}
	return append(out, File{path.Join(Directory, "types/laufwerk.d.ts"), []byte(sdk.Declarations())}), nil
}

func literal(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // strings always encode
	return strings.ReplaceAll(strings.TrimSpace(b.String()), `","`, `", "`)
}

var notInID = lazyregexp.Regexp{Pattern: `[^A-Za-z0-9._-]+`}

// ProjectID makes a project id of a directory's name.
func ProjectID(root string) string {
	id := strings.Trim(notInID.ReplaceAllString(filepath.Base(root), "-"), "-._")
	id = strings.TrimRight(id[:min(len(id), 63)], "-._")
	if id == "" {
		return "project"
	}
	return id
}
