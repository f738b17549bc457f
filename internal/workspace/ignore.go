package workspace

import (
	"path"
	"strings"
)

// Rules decide which paths are ignored, as they were when the workspace was opened: what an agent does to a .gitignore
// later changes nothing. They follow gitignore(5); git itself is never asked.
type Rules struct {
	Prefix  []byte       `json:"prefix,omitempty"`  // of the source within its repository, where it is not the top: "sub/dir"
	Files   []IgnoreFile `json:"files,omitempty"`   // the .gitignore files, in any order
	Exclude []byte       `json:"exclude,omitempty"` // the text of the repository's info/exclude
	Include []string     `json:"include,omitempty"` // patterns in the same language that add ignored paths again
	// Repository: the workspace has a repository of its own, a directory .git at its top that is no part of the content.
	Repository bool `json:"repository,omitempty"`
}

// IgnoreFile is one .gitignore.
type IgnoreFile struct {
	Dir  []byte `json:"dir"` // relative to the top of the repository, "" for the top itself
	Text []byte `json:"text"`
}

type ignorePattern struct {
	text     string
	negated  bool
	dirOnly  bool
	baseName bool   // matches the last name wherever it is
	literal  string // what precedes the first special character of a pattern with slashes
}

func parseIgnore(text []byte) []ignorePattern {
	var out []ignorePattern
	for line := range strings.SplitSeq(strings.TrimPrefix(string(text), "\ufeff"), "\n") {
		line = strings.TrimSuffix(line, "\r")
		if strings.HasPrefix(line, "#") {
			continue
		}
		if p, ok := parsePattern(trimSpaces(line)); ok {
			out = append(out, p)
		}
	}
	return out
}

func parsePattern(s string) (ignorePattern, bool) {
	var p ignorePattern
	if strings.HasPrefix(s, "!") {
		p.negated, s = true, s[1:]
	}
	if strings.HasSuffix(s, "/") {
		p.dirOnly, s = true, s[:len(s)-1]
	}
	p.baseName = !strings.Contains(s, "/")
	if s = strings.TrimPrefix(s, "/"); s == "" {
		return p, false
	}
	p.text = s
	if !p.baseName {
		n := strings.IndexAny(s, `*?[\`)
		if n < 0 {
			n = len(s)
		}
		p.literal = s[:n]
	}
	return p, true
}

// trimSpaces removes trailing spaces that no backslash protects.
func trimSpaces(s string) string {
	end := len(s)
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case ' ':
			if end == len(s) {
				end = i
			}
			continue
		case '\\':
			if i++; i >= len(s) {
				return s
			}
		}
		end = len(s)
	}
	return s[:end]
}

// match says whether the pattern matches a path that is relative to the directory of its file.
func (p ignorePattern) match(rel string, isDir bool) bool {
	switch {
	case p.dirOnly && !isDir:
		return false
	case p.baseName:
		return wildmatch(p.text, path.Base(rel), false)
	case !strings.HasPrefix(rel, p.literal):
		return false
	default: // git compares the literal beginning by itself, so that a "**" after it counts as the first element
		return wildmatch(p.text[len(p.literal):], rel[len(p.literal):], true)
	}
}

// lastMatch is the last pattern that matches; nil where none does.
func lastMatch(ps []ignorePattern, rel string, isDir bool) *ignorePattern {
	for i := len(ps) - 1; i >= 0; i-- {
		if ps[i].match(rel, isDir) {
			return &ps[i]
		}
	}
	return nil
}

// ignorer answers for paths relative to the source. It remembers what it decided of directories, and serves one goroutine.
type ignorer struct {
	prefix  string // "" or ending in "/"
	files   map[string][]ignorePattern
	exclude []ignorePattern
	include []ignorePattern
	dirs    map[string]bool
}

func newIgnorer(r Rules) *ignorer {
	g := &ignorer{files: map[string][]ignorePattern{}, exclude: parseIgnore(r.Exclude), dirs: map[string]bool{}}
	if len(r.Prefix) > 0 {
		g.prefix = string(r.Prefix) + "/"
	}
	for _, f := range r.Files {
		g.add(string(f.Dir), f.Text)
	}
	for _, s := range r.Include {
		if p, ok := parsePattern(s); ok {
			g.include = append(g.include, p)
		}
	}
	return g
}

func (g *ignorer) add(dir string, text []byte) {
	if ps := parseIgnore(text); len(ps) > 0 {
		g.files[dir] = ps
	}
}

func (g *ignorer) ignored(rel string, isDir bool) bool { return g.decide(g.prefix+rel, isDir) }

func (g *ignorer) decide(full string, isDir bool) bool {
	if isDir {
		if v, ok := g.dirs[full]; ok {
			return v
		}
	}
	v := false
	if up := path.Dir(full); up != "." && g.decide(up, true) {
		v = true
	} else if p := g.pattern(full, isDir); p != nil {
		v = !p.negated
	}
	if isDir {
		g.dirs[full] = v
	}
	return v
}

// pattern is the one that decides: of the nearest .gitignore that says anything, else of info/exclude.
func (g *ignorer) pattern(full string, isDir bool) *ignorePattern {
	for dir := path.Dir(full); ; dir = path.Dir(dir) {
		rel := full
		if dir == "." {
			dir = ""
		} else {
			rel = full[len(dir)+1:]
		}
		if p := lastMatch(g.files[dir], rel, isDir); p != nil {
			return p
		}
		if dir == "" {
			return lastMatch(g.exclude, full, isDir)
		}
	}
}

// included says whether an include pattern names a path or a directory above it.
func (g *ignorer) included(rel string, isDir bool) bool {
	if len(g.include) == 0 {
		return false
	}
	for i := range len(rel) {
		if rel[i] == '/' {
			if p := lastMatch(g.include, rel[:i], true); p != nil && !p.negated {
				return true
			}
		}
	}
	p := lastMatch(g.include, rel, isDir)
	return p != nil && !p.negated
}
