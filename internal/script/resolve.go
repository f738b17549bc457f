package script

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/laufwerk/laufwerk/sdk"
)

// entryImport is how the joining module names the user's.
const entryImport = "project-entry"

// resolver says what an import means: a module of the SDK, a file of the project, a package in a node_modules of the
// project. Everything else is refused in a sentence; esbuild adds the importing file and line.
type resolver struct{ from sources }

func isAlphanumeric(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

// hasScheme says whether a text begins like a URL.
func hasScheme(what string) bool {
	scheme, _, ok := strings.Cut(what, ":")
	return ok && scheme != "" && (scheme[0] < '0' || scheme[0] > '9') && isAlphanumeric(rune(scheme[0])) &&
		strings.IndexFunc(scheme, func(r rune) bool { return !isAlphanumeric(r) && !strings.ContainsRune("+.-", r) }) < 0
}

// isPackageName says whether a text begins with the name of a package, "name" or "@scope/name".
func isPackageName(what string) bool {
	isName := func(s string) bool {
		return s != "" && strings.IndexFunc(s, func(r rune) bool { return !isAlphanumeric(r) && !strings.ContainsRune("._~-", r) }) < 0
	}
	if scoped, ok := strings.CutPrefix(what, "@"); ok {
		scope, name, ok := strings.Cut(scoped, "/")
		if !ok || !isName(scope) {
			return false
		}
		what = name
	}
	name, _, _ := strings.Cut(what, "/")
	return isName(name) && name[0] != '.'
}

func (r *resolver) resolve(a api.OnResolveArgs, entry string) (api.OnResolveResult, error) {
	ok := func(ns, p string) (api.OnResolveResult, error) {
		return api.OnResolveResult{Namespace: ns, Path: p}, nil
	}
	refuse := func(format string, args ...any) (api.OnResolveResult, error) {
		return api.OnResolveResult{Errors: []api.Message{{Text: fmt.Sprintf(format, args...)}}}, nil
	}
	what := a.Path
	switch {
	case a.Kind == api.ResolveEntryPoint:
		return ok(nsSDK, entryName)
	case a.Namespace == nsSDK && a.Importer == entryName && what == entryImport:
		return r.file(entry, what)
	case strings.HasPrefix(what, "@laufwerk/"):
		if _, there := sdk.Source(what); !there || !sdk.Public(what) && a.Namespace != nsSDK {
			return refuse("%s is not a module of this build: there are %s", what, strings.Join(sdk.Modules(), ", "))
		}
		return ok(nsSDK, what)
	case isBuiltin(what):
		return refuse("%q cannot be imported: config and workflows run in an isolate without files, network and processes; a workflow runs programs with Host.exec or a session's exec", what)
	case what == "." || what == ".." || strings.HasPrefix(what, "./") || strings.HasPrefix(what, "../"):
		to := path.Join(path.Dir(a.Importer), what)
		if to == ".." || strings.HasPrefix(to, "../") {
			return refuse("%q cannot be imported: it is outside the project root", what)
		}
		return r.file(to, what)
	case strings.HasPrefix(what, "/"):
		return refuse("%q cannot be imported: an import is a relative path, a module of @laufwerk or an installed package", what)
	case hasScheme(what):
		return refuse("%q cannot be imported: URLs are never fetched; an import is a relative path, a module of @laufwerk or an installed package", what)
	case !isPackageName(what):
		return refuse("%q cannot be imported: it is neither a relative path nor the name of a package", what)
	default:
		return r.pkg(path.Dir(a.Importer), what, a.Kind == api.ResolveJSRequireCall || a.Kind == api.ResolveJSRequireResolve)
	}
}

func isBuiltin(what string) bool {
	if strings.HasPrefix(what, "node:") || strings.HasPrefix(what, "bun:") {
		return true
	}
	switch head, _, _ := strings.Cut(what, "/"); head {
	// Node's, which are imported without "node:" too, and Bun's.
	case "assert", "async_hooks", "buffer", "child_process", "cluster", "console", "constants", "crypto", "dgram", "diagnostics_channel",
		"dns", "domain", "events", "fs", "http", "http2", "https", "inspector", "module", "net", "os", "path", "perf_hooks", "process",
		"punycode", "querystring", "readline", "repl", "stream", "string_decoder", "sys", "timers", "tls", "trace_events", "tty", "url",
		"util", "v8", "vm", "wasi", "worker_threads", "zlib", "bun":
		return true
	}
	return false
}

// file finds the module that a path without, or with another, extension means.
func (r *resolver) file(p, what string) (api.OnResolveResult, error) {
	found, err := r.from.find(p)
	if err != nil {
		return api.OnResolveResult{}, err
	}
	switch {
	case found.Kind == "file":
		return api.OnResolveResult{Namespace: nsProject, Path: found.Real}, nil
	case found.Reason != "" && what == entryImport:
		return api.OnResolveResult{Errors: []api.Message{{Text: "it cannot be read: " + found.Reason}}}, nil
	case found.Reason != "":
		return api.OnResolveResult{Errors: []api.Message{{Text: fmt.Sprintf("%q cannot be imported: %s", what, found.Reason)}}}, nil
	default:
		if what == entryImport {
			what = p
		}
		return api.OnResolveResult{Errors: []api.Message{{Text: fmt.Sprintf("%q was not found", what)}}}, nil
	}
}

// pkg finds a module of a package, from the directory of the importer upwards, never above the project root.
func (r *resolver) pkg(dir, what string, require bool) (api.OnResolveResult, error) {
	refuse := func(format string, args ...any) (api.OnResolveResult, error) {
		return api.OnResolveResult{Errors: []api.Message{{Text: fmt.Sprintf(format, args...)}}}, nil
	}
	parts := strings.SplitN(what, "/", 3)
	name, sub := parts[0], strings.Join(parts[1:], "/")
	if strings.HasPrefix(what, "@") && len(parts) > 1 {
		name, sub = parts[0]+"/"+parts[1], strings.Join(parts[2:], "/")
	}
	for d := dir; ; d = path.Dir(d) {
		at := path.Join(d, "node_modules", name)
		f, err := r.from.stat(at)
		if err != nil {
			return api.OnResolveResult{}, err
		}
		switch f.Kind {
		case "dir":
			return r.inPackage(f.Real, name, sub, require)
		case "refused":
			return refuse("%q cannot be imported: %s", what, f.Reason)
		}
		if d == "." || d == "/" {
			break
		}
	}
	return refuse("%q was not found: it is not a relative path, and no package of this name is installed in a node_modules of the project", what)
}

type packageJSON struct {
	Main        string          `json:"main"`
	Module      string          `json:"module"`
	Exports     json.RawMessage `json:"exports"`
	SideEffects json.RawMessage `json:"sideEffects"`
}

func (r *resolver) inPackage(root, name, sub string, require bool) (api.OnResolveResult, error) {
	refuse := func(format string, args ...any) (api.OnResolveResult, error) {
		return api.OnResolveResult{Errors: []api.Message{{Text: fmt.Sprintf(format, args...)}}}, nil
	}
	var p packageJSON
	f, err := r.from.read(path.Join(root, "package.json"))
	if err != nil {
		return api.OnResolveResult{}, err
	}
	if f.Kind == "file" {
		if err := json.Unmarshal(f.Content, &p); err != nil {
			return refuse("the package.json of %s is not valid JSON", name)
		}
	}
	var targets []string
	switch {
	case len(p.Exports) > 0 && string(p.Exports) != "null":
		t := exportTarget(p.Exports, sub, require)
		if t == "" {
			return refuse("the package %s does not export %q", name, strings.TrimSuffix("./"+sub, "/"))
		}
		targets = []string{t}
	case sub != "":
		targets = []string{sub}
	case require:
		targets = []string{p.Main, p.Module, "index"}
	default:
		targets = []string{p.Module, p.Main, "index"}
	}
	for _, t := range targets {
		if t == "" {
			continue
		}
		to := path.Join(root, t)
		if !strings.HasPrefix(to, root+"/") {
			return refuse("the package %s names a file outside itself", name)
		}
		found, err := r.from.find(to)
		if err != nil {
			return api.OnResolveResult{}, err
		}
		switch found.Kind {
		case "file":
			out := api.OnResolveResult{Namespace: nsProject, Path: found.Real}
			if string(p.SideEffects) == "false" {
				out.SideEffects = api.SideEffectsFalse
			}
			return out, nil
		case "refused":
			return refuse("%q cannot be imported: %s", name, found.Reason)
		}
	}
	return refuse("the package %s has no module %q", name, strings.TrimSuffix("./"+sub, "/"))
}

// exportTarget is the path that a package's `exports` gives for a subpath, "" where it gives none.
// Source: Node's "Package entry points"; the conditions are import or require, module, default.
func exportTarget(raw json.RawMessage, sub string, require bool) string {
	conditions := []string{"module", "import", "default"}
	if require {
		conditions = []string{"require", "default"}
	}
	subpath := "."
	if sub != "" {
		subpath = "./" + sub
	}
	keys, values := orderedObject(raw)
	if keys == nil || len(keys) > 0 && !strings.HasPrefix(keys[0], ".") {
		if subpath != "." {
			return ""
		}
		return conditionTarget(raw, conditions, "")
	}
	for i, k := range keys {
		if k == subpath && !strings.Contains(k, "*") {
			return conditionTarget(values[i], conditions, "")
		}
	}
	best, star, at := "", "", -1
	for i, k := range keys {
		prefix, suffix, ok := strings.Cut(k, "*")
		if ok && strings.HasPrefix(subpath, prefix) && strings.HasSuffix(subpath, suffix) && len(subpath) >= len(prefix)+len(suffix) && len(prefix) > len(best) {
			best, star, at = prefix, subpath[len(prefix):len(subpath)-len(suffix)], i
		}
	}
	if at < 0 {
		return ""
	}
	return conditionTarget(values[at], conditions, star)
}

func conditionTarget(raw json.RawMessage, conditions []string, star string) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return strings.ReplaceAll(s, "*", star)
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil {
		for _, item := range list {
			if t := conditionTarget(item, conditions, star); t != "" {
				return t
			}
		}
		return ""
	}
	keys, values := orderedObject(raw)
	for i, k := range keys {
		if slices.Contains(conditions, k) {
			if t := conditionTarget(values[i], conditions, star); t != "" {
				return t
			}
		}
	}
	return ""
}

// orderedObject is a JSON object in the order of its keys, which counts in `exports`; nil where raw is none.
func orderedObject(raw json.RawMessage) (keys []string, values []json.RawMessage) {
	d := json.NewDecoder(strings.NewReader(string(raw)))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, nil
	}
	keys = []string{}
	for d.More() {
		k, err := d.Token()
		if err != nil {
			return nil, nil
		}
		var v json.RawMessage
		if d.Decode(&v) != nil {
			return nil, nil
		}
		keys, values = append(keys, k.(string)), append(values, v)
	}
	return keys, values
}
