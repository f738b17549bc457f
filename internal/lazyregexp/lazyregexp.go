// Package lazyregexp has regular expressions that are compiled when they are first used, and once.
package lazyregexp

import (
	"regexp"
	"sync"
)

// Regexp is a package variable that costs nothing at the start of a process: Regexp{Pattern: `…`} is data, and no call. A mistake
// in the pattern panics at the first use, and is found by this package's test before.
type Regexp struct {
	Pattern string
	once    sync.Once
	regexp  *regexp.Regexp
}

func (r *Regexp) compiled() *regexp.Regexp {
	r.once.Do(func() { r.regexp = regexp.MustCompile(r.Pattern) })
	return r.regexp
}

// MatchString is that of regexp.Regexp, as the others are.
func (r *Regexp) MatchString(s string) bool { return r.compiled().MatchString(s) }

// FindStringSubmatch is the first match and its groups.
func (r *Regexp) FindStringSubmatch(s string) []string { return r.compiled().FindStringSubmatch(s) }

// FindAllString are the first n matches; all where n is negative.
func (r *Regexp) FindAllString(s string, n int) []string { return r.compiled().FindAllString(s, n) }

// FindAllStringSubmatch are the first n matches with their groups; all where n is negative.
func (r *Regexp) FindAllStringSubmatch(s string, n int) [][]string {
	return r.compiled().FindAllStringSubmatch(s, n)
}

// ReplaceAllString replaces every match; $1 in the replacement is the first group.
func (r *Regexp) ReplaceAllString(s, replacement string) string {
	return r.compiled().ReplaceAllString(s, replacement)
}

// ReplaceAllStringFunc replaces every match by what replace makes of it.
func (r *Regexp) ReplaceAllStringFunc(s string, replace func(string) string) string {
	return r.compiled().ReplaceAllStringFunc(s, replace)
}

// ReplaceAll is ReplaceAllString for bytes.
func (r *Regexp) ReplaceAll(b, replacement []byte) []byte {
	return r.compiled().ReplaceAll(b, replacement)
}
