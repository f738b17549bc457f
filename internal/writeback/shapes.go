package writeback

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/laufwerk/laufwerk/internal/system/safefs"
	"github.com/laufwerk/laufwerk/internal/workspace"
)

// maxHops is how many links a path may lead through; Linux follows 40.
const maxHops = 40

// projectFile makes the directory `laufwerk` that holds it a project's.
const projectFile = "laufwerk.config.ts"

// resultingType is what would be at a path if everything were written back: its type and, of a link, its target; "" is nothing.
func (c *checker) resultingType(path string) (workspace.Type, string) {
	if ch := c.byPath[path]; ch != nil {
		if ch.after == nil {
			return "", ""
		}
		return ch.after.Type, string(ch.after.Link)
	}
	for _, dir := range ancestors(path) {
		if d := c.byPath[dir]; d != nil && !(d.after.isDir() && (d.before == nil || d.before.isDir())) {
			return "", "" // gone with its directory, or a new directory in the place of something else
		}
	}
	info, err := c.root.Lstat(path)
	if err != nil {
		return "", ""
	}
	switch info.Type {
	case safefs.Symlink:
		target, err := c.root.Readlink(path)
		if err != nil {
			return "", ""
		}
		return workspace.Symlink, string(target)
	case safefs.Dir:
		return workspace.Dir, ""
	case safefs.File:
		return workspace.File, ""
	default:
		return workspace.Other, ""
	}
}

// resultingNames lists what a directory would hold.
func (c *checker) resultingNames(dir string) []string {
	names, err := c.listNames(dir)
	if err != nil {
		names = nil
	}
	var out []string
	for _, n := range names {
		if t, _ := c.resultingType(join(dir, n)); t != "" {
			out = append(out, n)
		}
	}
	for _, ch := range c.byDirectory[dir] {
		if ch.after != nil {
			out = append(out, base(ch.path))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// checkLinks refuses links that lead out of the root or into a git directory, also by way of other links.
func (c *checker) checkLinks() {
	for _, ch := range c.changes {
		if ch.barred || ch.after == nil || ch.after.Type != workspace.Symlink {
			continue
		}
		if why := c.refusedTarget(ch.path, string(ch.after.Link)); why != "" {
			c.refuse(ch, "it is a link to %q: %s", string(ch.after.Link), why)
		}
	}
}

func (c *checker) refusedTarget(path, target string) string {
	if target == "" || strings.HasPrefix(target, "/") {
		return "that is absolute"
	}
	at := ancestorsAndSelf(parent(path))
	todo := strings.Split(target, "/")
	for hops := 0; len(todo) > 0; {
		name := todo[0]
		todo = todo[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			if len(at) == 0 {
				return "that leads out of the source"
			}
			at = at[:len(at)-1]
			continue
		}
		if why := refusedComponents(name); why != "" {
			return why
		}
		here := name
		if len(at) > 0 {
			here = at[len(at)-1] + "/" + name
		}
		t, link := c.resultingType(here)
		if t != workspace.Symlink {
			at = append(at, here)
			continue
		}
		if hops++; hops > maxHops {
			return "that leads through too many links"
		}
		if link == "" || strings.HasPrefix(link, "/") {
			return "that leads through the absolute link " + here
		}
		todo = append(strings.Split(link, "/"), todo...)
	}
	return ""
}

func ancestorsAndSelf(dir string) []string {
	if dir == "." {
		return nil
	}
	return append(ancestors(dir), dir)
}

// repositories refuses changes in directories that git would take for a repository without a `.git`: HEAD beside objects
// and refs, or beside a commondir that names where these are. Git runs what such a directory's own configuration says.
func (c *checker) repositories() {
	shaped := map[string]bool{}
	for _, ch := range c.changes {
		if ch.barred {
			continue
		}
		for _, dir := range append(ancestors(ch.path), ".") {
			shape, known := shaped[dir]
			if !known {
				shape = repositoryShape(c.resultingNames(dir))
				shaped[dir] = shape
			}
			if shape {
				c.refuse(ch, "its directory %q would be a bare git repository", dir)
				break
			}
		}
	}
}

func repositoryShape(names []string) bool {
	has := map[string]bool{}
	for _, n := range names {
		for _, s := range spellings(n) {
			has[s] = true
		}
	}
	return has["head"] && (has["objects"] && has["refs"] || has["commondir"])
}

// checkHooks refuses what lies where git takes hooks from, in the source's repository or in one inside it, and links and files in
// the place of a directory that leads there.
func (c *checker) checkHooks() {
	seen := map[string]bool{}
	for _, repo := range c.repositoriesAround() {
		for _, dir := range hookDirs(c.req.Source, filepath.Join(c.req.Source, filepath.FromSlash(repo)), c.req.Vars) {
			if !seen[dir] {
				seen[dir] = true
				c.hooksIn(dir)
			}
		}
	}
}

func (c *checker) hooksIn(dir string) {
	hooks := fold(filepath.ToSlash(dir))
	for _, ch := range c.changes {
		path := fold(ch.path)
		switch {
		case ch.barred:
		case hooks == "." || within(path, hooks), within(hooks, path) && ch.after != nil && !ch.after.isDir():
			c.refuse(ch, "git's core.hooksPath takes hooks from %q", dir)
		}
	}
}

// repositoriesAround are the root and every directory above a change that holds a `.git` of its own.
func (c *checker) repositoriesAround() []string {
	out := []string{"."}
	seen := map[string]bool{}
	for _, ch := range c.changes {
		if ch.barred {
			continue
		}
		for _, dir := range ancestors(ch.path) {
			if seen[dir] {
				continue
			}
			seen[dir] = true
			if _, err := c.root.Lstat(dir + "/.git"); err == nil {
				out = append(out, dir)
			}
		}
	}
	return out
}

// checkProjects refuses changes to laufwerk's own configuration: below `laufwerk` in the root, and below any `laufwerk` that
// holds a project's configuration.
func (c *checker) checkProjects() {
	for _, ch := range c.changes {
		if ch.barred || c.isAllowed(ch) {
			continue
		}
		at := ""
		for _, dir := range append(ancestors(ch.path), ch.path) {
			if hasSpelling(base(dir), "laufwerk") && (parent(dir) == "." || c.isProject(dir)) {
				at = dir
				break
			}
		}
		if at != "" {
			c.refuse(ch, "it belongs to the laufwerk project in %q and is not named in writeBack({ allow })", at)
		}
	}
}

func (c *checker) isProject(dir string) bool {
	if ch := c.byPath[dir]; ch != nil && ch.after != nil && ch.after.Type == workspace.Symlink {
		return true // whatever it leads to
	}
	names, err := c.listNames(dir)
	if err != nil {
		return true
	}
	return slices.ContainsFunc(slices.Concat(names, c.resultingNames(dir)), func(n string) bool { return hasSpelling(n, projectFile) })
}

// isAllowed also permits a new directory on the way to a path that is named.
func (c *checker) isAllowed(ch *pathChange) bool {
	for _, a := range c.req.Allow {
		a = strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(a, "./"), "/**"), "/")
		if a == "" {
			continue
		}
		if within(ch.path, a) || ch.before == nil && ch.after.isDir() && within(a, ch.path) {
			return true
		}
	}
	return false
}

// collisions finds new names that the source's file system cannot tell from others.
func (c *checker) collisions() {
	seen := map[string]bool{}
	for _, ch := range c.changes {
		dir := parent(ch.path)
		if ch.barred || ch.do != Create || seen[dir] {
			continue
		}
		seen[dir] = true
		c.collisionsIn(dir)
	}
}

func (c *checker) collisionsIn(dir string) {
	same := map[string][]string{}
	for _, n := range c.resultingNames(dir) {
		f := fold(n)
		same[f] = append(same[f], n)
	}
	for _, names := range same {
		if len(names) < 2 || !c.ignoresCase(dir) {
			continue
		}
		for _, n := range names {
			if ch := c.byPath[join(dir, n)]; ch != nil && ch.do == Create {
				c.conflict(ch, "the source's file system cannot distinguish it from %q", otherNames(names, n))
			}
		}
	}
	listed, err := c.listNames(dir)
	if err != nil {
		return
	}
	for _, ch := range c.byDirectory[dir] { // a file system that folds more than we know
		if ch.source != nil && !ch.barred && !slices.Contains(listed, base(ch.path)) {
			c.conflict(ch, "the source's file system treats it as the same name as an existing one")
		}
	}
}

func otherNames(names []string, but string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == but })
}

// ignoresCase says whether the file system finds a directory's names whatever their case, without writing: a name that is
// there is asked for in the other case. What has no letters to ask with is as its parent is; the root asks for its own name.
func (c *checker) ignoresCase(dir string) bool {
	if f, ok := c.folds[dir]; ok {
		return f
	}
	f := c.isCaseInsensitive(dir)
	c.folds[dir] = f
	return f
}

func (c *checker) isCaseInsensitive(dir string) bool {
	names, err := c.listNames(dir)
	if err == nil {
		for _, n := range names {
			other := otherCase(n)
			if other == n {
				continue
			}
			if slices.Contains(names, other) {
				return false
			}
			_, err := c.root.Lstat(join(dir, other))
			return !errors.Is(err, fs.ErrNotExist)
		}
	}
	if dir != "." {
		return c.ignoresCase(parent(dir))
	}
	twin, err := safefs.OpenRoot(filepath.Join(filepath.Dir(c.req.Source), otherCase(filepath.Base(c.req.Source))))
	if err != nil {
		return false
	}
	defer func() { _ = twin.Close() }()
	dev, ino := twin.ID()
	return otherCase(filepath.Base(c.req.Source)) != filepath.Base(c.req.Source) && dev == c.req.Freeze.Root.Dev && ino == c.req.Freeze.Root.Ino
}

func otherCase(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r < unicode.MaxASCII && unicode.IsUpper(r):
			return unicode.ToLower(r)
		case r < unicode.MaxASCII && unicode.IsLower(r):
			return unicode.ToUpper(r)
		}
		return r
	}, name)
}
