package writeback

import (
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/laufwerk/laufwerk/internal/system/safefs"
)

// stagingPrefix begins the name of the private directory that a write-back makes in the source's root.
const stagingPrefix = ".laufwerk-writeback-"

// refusedSpelling says why no component may be spelled so on any file system, "" where it may.
func refusedSpelling(s string) string {
	switch {
	case isDotGit(s):
		return "it names a git directory"
	case s == ".harness-bootstrap", s == ".agent-runs":
		return "it belongs to the program that starts agents"
	case strings.HasPrefix(s, stagingPrefix):
		return "it is a name of laufwerk's own write-back"
	default:
		return ""
	}
}

// isDotGit knows the short names that a file system with 8.3 names gives `.git`, too.
func isDotGit(s string) bool {
	if s == ".git" {
		return true
	}
	n, ok := strings.CutPrefix(s, "git~")
	return ok && n != "" && strings.Trim(n, "0123456789") == ""
}

// refusedName says why a path may never be written, "" where its names are harmless.
func refusedName(path string) string {
	if strings.HasPrefix(path, "/") {
		return "it is absolute"
	}
	if !safefs.Valid(path) {
		return "it is not a clean path below the root"
	}
	return refusedComponents(path)
}

// refusedComponents asks about every component, whatever the path is relative to.
func refusedComponents(path string) string {
	for _, c := range strings.Split(path, "/") {
		for _, s := range spellings(c) {
			if why := refusedSpelling(s); why != "" {
				return why
			}
		}
	}
	return ""
}

// spellings are the names that some file system takes a component for, folded: HFS+ and APFS ignore case, composition and
// invisible code points, NTFS ignores case, trailing dots and spaces, cuts a stream's name off after a colon and takes a
// backslash for a slash.
func spellings(component string) []string {
	var out []string
	for _, part := range strings.Split(component, `\`) {
		name, _, _ := strings.Cut(part, ":")
		out = append(out, strings.TrimRight(fold(name), ". "))
	}
	return out
}

// hasSpelling says whether some file system takes a component for name, which is lower case.
func hasSpelling(component, name string) bool { return slices.Contains(spellings(component), name) }

// fold gives names that some file system cannot tell apart the same form: compatibility decomposition, simple case folding,
// invisible code points dropped. Names that are not UTF-8 are the same only if their bytes are.
func fold(name string) string {
	if !utf8.ValidString(name) {
		return name
	}
	return norm.NFKC.String(strings.Map(foldRune, norm.NFKD.String(name)))
}

func foldRune(r rune) rune {
	if unicode.In(r, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) {
		return -1
	}
	least := r
	for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
		least = min(least, next)
	}
	return unicode.ToLower(least) // 'A' comes before 'a'; people write names small
}

// within says whether path is dir or lies below it.
func within(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || rest[0] == '/')
}

// parent is the directory that holds path, "." for the root.
func parent(p string) string { return path.Dir(p) }

// base is the last component of path.
func base(p string) string { return path.Base(p) }

// join is the path of a name in dir, which may be ".".
func join(dir, name string) string { return path.Join(dir, name) }

// ancestors are the directories above path, topmost first, without the root.
func ancestors(path string) []string {
	var out []string
	for i := range len(path) {
		if path[i] == '/' {
			out = append(out, path[:i])
		}
	}
	return out
}
