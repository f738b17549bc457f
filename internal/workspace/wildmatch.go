package workspace

import (
	"strings"
)

// wildmatch says whether a pattern of a .gitignore file matches a whole path. With slashes, "*", "?" and classes stop at
// "/", and "**" between slashes stands for any number of directories; without, "*" matches everything.
func wildmatch(pattern, text string, slashes bool) bool {
	m := globMatch{slashes: slashes, budget: matchBudget}
	return m.match(pattern, text) == matched
}

type matchResult int

const (
	matched matchResult = iota
	unmatched
	exhausted // the text ended first: a "*" further left need not try a later start
	stopped   // a slash stopped a "*": only a "**" further left may try on
)

// matchBudget bounds the work of one match: patterns come from the source, but paths from an agent, and a pattern with many
// stars takes exponential time on the right path. Past it there is no match, so that the path counts as a change.
const matchBudget = 1 << 16

type globMatch struct {
	slashes bool
	budget  int
}

func (m *globMatch) match(p, t string) matchResult {
	start := p
	for ; p != ""; p, t = p[1:], t[1:] {
		if m.budget--; m.budget < 0 {
			return exhausted
		}
		c := p[0]
		if t == "" && c != '*' {
			return exhausted
		}
		switch c {
		case '\\':
			if p = p[1:]; p == "" || p[0] != t[0] {
				return unmatched
			}
		case '?':
			if m.slashes && t[0] == '/' {
				return unmatched
			}
		case '*':
			return m.matchStar(start, p, t)
		case '[':
			rest, in := parseClass(p[1:], t[0])
			if rest == "" || !in || (m.slashes && t[0] == '/') {
				return unmatched
			}
			p = rest // its last byte, "]", is skipped like any other
		default:
			if c != t[0] {
				return unmatched
			}
		}
	}
	if t != "" {
		return unmatched
	}
	return matched
}

// matchStar matches from a run of stars on; start is the pattern that this round of matching began with.
func (m *globMatch) matchStar(start, p, t string) matchResult {
	first := len(start) == len(p) || start[len(start)-len(p)-1] == '/'
	stars := 0
	for p != "" && p[0] == '*' {
		p, stars = p[1:], stars+1
	}
	cross := !m.slashes
	if m.slashes && stars > 1 {
		slash := p != "" && p[0] == '/'
		if first && (p == "" || slash || (len(p) > 1 && p[0] == '\\' && p[1] == '/')) {
			if slash && m.match(p[1:], t) == matched { // "**/" also stands for no directory at all
				return matched
			}
			cross = true
		}
	}
	if p == "" {
		if !cross && strings.IndexByte(t, '/') >= 0 {
			return stopped
		}
		return matched
	}
	if !cross && p[0] == '/' { // a single star takes exactly what is left of the name
		i := strings.IndexByte(t, '/')
		if i < 0 {
			return unmatched
		}
		return m.match(p[1:], t[i+1:])
	}
	for ; ; t = t[1:] {
		if r := m.match(p, t); r != unmatched {
			if !cross || r != stopped {
				return r
			}
		}
		if t == "" {
			return exhausted
		}
		if !cross && t[0] == '/' {
			return stopped
		}
	}
}

// parseClass reads a bracket expression after its "[" and says whether c is in it. What is left begins with the closing bracket;
// it is empty where the expression is not closed.
func parseClass(p string, c byte) (rest string, in bool) {
	negated := false
	if p != "" && (p[0] == '!' || p[0] == '^') {
		negated, p = true, p[1:]
	}
	var prev byte
	for i := 0; ; i++ {
		if p == "" {
			return "", false
		}
		x := p[0]
		switch {
		case x == ']' && i > 0:
			return p, in != negated
		case x == '\\':
			if p = p[1:]; p == "" {
				return "", false
			}
			prev = p[0]
			in = in || c == prev
		case x == '-' && prev != 0 && len(p) > 1 && p[1] != ']':
			if p = p[1:]; p[0] == '\\' {
				if p = p[1:]; p == "" {
					return "", false
				}
			}
			in = in || (c >= prev && c <= p[0])
			prev = 0
		case x == '[' && len(p) > 1 && p[1] == ':':
			end := strings.IndexByte(p[2:], ']')
			if end < 0 {
				return "", false
			}
			if end == 0 || p[2+end-1] != ':' { // not a named class after all: a plain "["
				in = in || c == '['
				prev = '['
				break
			}
			member, known := classByName(p[2:2+end-1], c)
			if !known {
				return "", false
			}
			in = in || member
			p, prev = p[2+end:], 0
		default:
			in = in || c == x
			prev = x
		}
		p = p[1:]
	}
}

func classByName(name string, c byte) (in, known bool) { //nolint:cyclop // a table: one line for each class
	upper, lower, digit := c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c >= '0' && c <= '9'
	graph := c > 0x20 && c < 0x7f
	switch name {
	case "alnum":
		return upper || lower || digit, true
	case "alpha":
		return upper || lower, true
	case "blank":
		return c == ' ' || c == '\t', true
	case "cntrl":
		return c < 0x20 || c == 0x7f, true
	case "digit":
		return digit, true
	case "graph":
		return graph, true
	case "lower":
		return lower, true
	case "print":
		return graph || c == ' ', true
	case "punct":
		return graph && !upper && !lower && !digit, true
	case "space":
		return c == ' ' || (c >= '\t' && c <= '\r'), true
	case "upper":
		return upper, true
	case "xdigit":
		return digit || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'), true
	}
	return false, false
}
