package scaffold

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/project"
	"github.com/laufwerk/laufwerk/internal/redact"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/templates"
)

// Load loads the project at root as it would be with the files of overlay, by their paths relative to root, in front of its
// own; with a nil overlay also each of its workflows, else the workflows in the overlay.
type Load func(ctx context.Context, root string, overlay map[string][]byte) (*project.Project, error)

// Result is what Init did.
type Result struct {
	ProjectID string
	Target    string
	Files     []string // that were written, relative to the root, slash separated; none where everything was there
	New       bool     // the project was not there
	Advice    []string // sentences on what is left to the user
}

// Init makes the directory root a project, or adds a target, or the example, to the one that it is. Where everything that is
// asked for is there already, nothing is written.
func Init(ctx context.Context, root string, o Options, load Load) (Result, error) {
	removeLeftovers(root)
	config, err := files.Read(filepath.Join(root, project.Config))
	if errors.Is(err, fs.ErrNotExist) || !isDirectory(filepath.Join(root, Directory)) || isDirectory(filepath.Join(root, project.Config)) {
		return begin(ctx, root, o, load)
	}
	if err != nil {
		return Result{}, failure.Wrap(err, failure.Failed, "read %s", project.Config)
	}
	p, err := load(ctx, root, map[string][]byte{})
	if err != nil && o.Force && ctx.Err() == nil {
		return begin(ctx, root, o, load)
	}
	if err != nil {
		return Result{}, failure.Wrap(err, failure.ProjectInvalid, "the existing project cannot be loaded; nothing was written")
	}
	return extend(ctx, root, config, p, o, load)
}

func isDirectory(path string) bool { info, err := files.Lstat(path); return err == nil && info.IsDir() }

func begin(ctx context.Context, root string, o Options, load Load) (Result, error) {
	if o.ProjectID == "" {
		o.ProjectID = ProjectID(root)
	}
	list, err := Render(o)
	if err != nil {
		return Result{}, err
	}
	made := Result{ProjectID: o.ProjectID, Target: o.target(), New: true}
	made.Files, err = create(ctx, root, list, o.Force, func(ctx context.Context, stage string) error {
		_, err := load(ctx, stage, nil)
		return err
	})
	made.Advice = append(ignored(root), noteOuterProject(root, o.Execution)...)
	return made, err
}

func extend(ctx context.Context, root string, config []byte, p *project.Project, o Options, load Load) (Result, error) {
	made := Result{ProjectID: p.ID, Target: o.target()}
	if o.ProjectID != "" && o.ProjectID != p.ID {
		return made, failure.New(failure.AlreadyExists, "the project has the id %q, not %q; nothing was written", p.ID, o.ProjectID).
			WithPaths(project.Config).WithHint("edit projectId in %s", project.Config)
	}
	o.ProjectID = p.ID
	module := "execution." + o.target()
	there := false
	for _, t := range p.Targets {
		o.login = o.login || slices.Contains(t.Credentials(), templates.Login)
		if t.ID != o.target() {
			continue
		}
		if t.Kind != o.Execution {
			return made, failure.New(failure.AlreadyExists, "the project has a target %q already, of the kind %s; nothing was written", t.ID, t.Kind).
				WithPaths(project.Config).WithHint("laufwerk init --execution %s --target OTHER", o.Execution)
		}
		there = true
	}
	if there && !files.Exists(filepath.Join(root, Directory, module+".ts")) {
		module = "execution"
	}
	list, err := render(o, module)
	if err != nil {
		return made, err
	}
	change := &stagedChange{root: root, force: o.Force}
	var overlay map[string][]byte
	change.list, overlay = missingFiles(root, list, o.Force, module, there)
	if !there {
		e, ok := addTarget(config, module, o.target())
		if info, err := files.Lstat(filepath.Join(root, project.Config)); err != nil || !info.Mode().IsRegular() {
			ok = false
		}
		if !ok {
			return made, manualEditError(e, overlay, nil)
		}
		overlay[project.Config] = e.text
		then, err := load(ctx, root, overlay)
		if err != nil {
			// The example may be what does not load: then the config is not to blame.
			delete(overlay, examplePath)
			if _, alone := load(ctx, root, overlay); alone == nil {
				return made, failure.Wrap(err, failure.ProjectInvalid, "the new files cannot be loaded; nothing was written")
			}
			return made, manualEditError(e, overlay, err)
		}
		if !addsTargetOnly(p, then, o) {
			return made, manualEditError(e, overlay, nil)
		}
		change.list = append(change.list, File{project.Config, e.text})
		change.config = config
	} else if len(overlay) > 0 {
		if _, err := load(ctx, root, overlay); err != nil {
			err = failure.Wrap(err, failure.ProjectInvalid, "the new files cannot be loaded; nothing was written")
			if f := failure.As(err); f.Hint == "" && o.Example && o.AgentCommand == nil { // the target may have no login for Codex
				f.Hint = "${EDITOR:-vi} " + failure.Quote(filepath.Join(root, Directory, module+".ts")) +
					"\nlaufwerk init --execution " + o.Execution + " --target " + failure.Quote(o.target()) + " --example " + Example + " --agent-command COMMAND"
			}
			return made, err
		}
	}
	if made.Files, err = change.make(ctx); err != nil {
		return made, err
	}
	if !there {
		made.Advice = append(made.Advice, exampleLine(root, module)...)
	} else {
		made.Advice = append(made.Advice, noteKeptExample(root, list, made.Files)...)
	}
	if len(made.Files) > 0 {
		made.Advice = append(made.Advice, ignored(root)...)
	}
	return made, nil
}

// missingFiles are the files that a project lacks, and of these the code, as it would be loaded. Where the target is there, its
// module stays as it is.
func missingFiles(root string, list []File, force bool, module string, there bool) (lacks []File, code map[string][]byte) {
	code = map[string][]byte{}
	for _, f := range list {
		have := files.Exists(filepath.Join(root, filepath.FromSlash(f.Path)))
		switch {
		case f.Path == project.Config, f.Path == Directory+"/"+module+".ts" && there:
			continue
		case f.Path == policyPath && have && (there || !force): // targets share it
			continue
		case f.Path == examplePath && have && !force:
			continue
		case strings.HasPrefix(f.Path, Directory+"/types/"), f.Path == Directory+"/tsconfig.json":
			if have && !force {
				continue
			}
		default:
			code[f.Path] = f.Content
		}
		lacks = append(lacks, f)
	}
	return lacks, code
}

// addsTargetOnly says whether a project differs from what it was by the new target alone.
func addsTargetOnly(was, is *project.Project, o Options) bool {
	n := len(was.Targets)
	return was.ID == is.ID && was.Concurrency == is.Concurrency && len(is.Targets) == n+1 &&
		reflect.DeepEqual(was.Targets, is.Targets[:n]) && is.Targets[n].ID == o.target() && is.Targets[n].Kind == o.Execution
}

// manualEditError says what to add to a config that is not edited, and what the modules that the target needs are.
func manualEditError(e configEdit, modules map[string][]byte, cause error) error {
	why := ""
	if cause != nil {
		why = " (" + cause.Error() + ")"
	}
	var made []string
	for _, file := range slices.Sorted(maps.Keys(modules)) {
		if file == project.Config || file == examplePath {
			continue
		}
		var code []string
		for line := range strings.Lines(string(modules[file])) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
				code = append(code, line)
			}
		}
		made = append(made, fmt.Sprintf("make %s: `%s`", file, strings.Join(code, " ")))
	}
	return failure.New(failure.AlreadyExists, "%s cannot be edited safely%s; nothing was written. Add two lines to it: `%s` and, in executions, `%s,`; and %s",
		project.Config, why, e.line, e.element, strings.Join(made, "; and ")).
		WithPaths(project.Config).WithField("lines", []string{e.line, e.element + ","}).WithHint("edit %s", project.Config)
}

// noteKeptExample says that an example that is there was left as it is, where it is not the requested one.
func noteKeptExample(root string, list []File, written []string) []string {
	for _, f := range list {
		have, err := files.Read(filepath.Join(root, filepath.FromSlash(f.Path)))
		if f.Path == examplePath && err == nil && !bytes.Equal(have, f.Content) && !slices.Contains(written, f.Path) {
			return []string{examplePath + " differs from what this command writes, and was not changed; --force replaces it."}
		}
	}
	return nil
}

// noteOuterProject names a project that root lies in: who meant to add a target to that one has made another one.
func noteOuterProject(root, execution string) []string {
	for at := filepath.Dir(root); ; at = filepath.Dir(at) {
		if info, err := files.Lstat(filepath.Join(at, filepath.FromSlash(project.Config))); err == nil && info.Mode().IsRegular() {
			return []string{fmt.Sprintf("It is inside the project %s. Commands in this directory now use the new project; to add a target to the other one: laufwerk init --project %s --execution %s",
				redact.Line(at), failure.Quote(at), execution)}
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

// exampleLine says which line of an example that is there would use the new target.
func exampleLine(root, module string) []string {
	text, err := files.Read(filepath.Join(root, filepath.FromSlash(examplePath)))
	if err != nil {
		return nil
	}
	want := fmt.Sprintf(`import { execution } from "../../%s";`, module)
	if bytes.Contains(text, []byte(want)) {
		return nil
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		if n++; strings.HasPrefix(line, "import") && strings.Contains(line, "../../execution") {
			return []string{fmt.Sprintf("%s was not changed. To run it on the new target, change line %d to: %s", examplePath, n, want)}
		}
	}
	return []string{fmt.Sprintf("%s was not changed. To run it on the new target, import the target with: %s", examplePath, want)}
}

// ignored says what a .gitignore could name.
func ignored(root string) []string {
	text, _ := files.Read(filepath.Join(root, ".gitignore"))
	names := []string{"laufwerk/types/", "/laufwerk/types/", "laufwerk/types", "/laufwerk/types", "types/", "types"}
	for line := range strings.Lines(string(text)) {
		if slices.Contains(names, strings.TrimSpace(line)) {
			return nil
		}
	}
	return []string{"Add laufwerk/types/ to .gitignore: `laufwerk types` creates it again."}
}

// Words splits a command as a shell would: at white space, with quotes and backslashes. There is no shell, so what only a
// shell understands is refused rather than handed to the program.
func Words(command string) ([]string, error) {
	var words []string
	var word strings.Builder
	begun := false
	var quote rune
	escaped := false
	for _, r := range command {
		switch {
		case escaped:
			if quote == '"' && !strings.ContainsRune(`"\$`+"`", r) {
				word.WriteByte('\\')
			}
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped, begun = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, begun = r, true
		case strings.ContainsRune(" \t\n", r):
			if begun {
				words = append(words, word.String())
				word.Reset()
				begun = false
			}
		case strings.ContainsRune("|&;<>()$`*?~#", r):
			return nil, failure.New(failure.Usage, "the agent command is started without a shell: %q has no meaning there", string(r)).
				WithHint("quote it, or name the shell: --agent-command \"bash -c '…'\"")
		case r == 0:
			return nil, failure.New(failure.Usage, "the agent command contains a zero byte")
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if quote != 0 || escaped {
		return nil, failure.New(failure.Usage, "the agent command has an unclosed quote: %s", command)
	}
	if begun {
		words = append(words, word.String())
	}
	if len(words) == 0 || words[0] == "" {
		return nil, failure.New(failure.Usage, "the agent command names no program")
	}
	return words, nil
}
