package script

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/evanw/esbuild/pkg/api"
)

// mendLoops works around wrong code of every QuickJS (seen in 2026-06-04): after a `continue` in a `for (let …; …; …)` the
// next turn does not get bindings of its own, so that closures of earlier turns see later values. The rewrite keeps the
// meaning and the lines: the loop's body becomes a labelled block, and `continue` leaves that block.
//
//	for (let i = 0; i < 3; i++) { f.push(() => i); if (i < 5) continue; }
//	for (let i = 0; i < 3; i++) {__next0: { f.push(() => i); if (i < 5) break __next0; }}
//
// The code is esbuild's output: its regular form (semicolons everywhere, spaces round binary operators) is relied on.
func mendLoops(code string) string {
	if !strings.Contains(code, "continue") {
		return code
	}
	s := scan(code)
	if s == nil {
		return code
	}
	edits := s.mend()
	if len(edits) == 0 {
		return code
	}
	slices.SortStableFunc(edits, func(a, b edit) int { return a.from - b.from })
	var out strings.Builder
	at := 0
	for _, e := range edits {
		out.WriteString(code[at:e.from])
		out.WriteString(e.text)
		at = e.to
	}
	out.WriteString(code[at:])
	mended := out.String()
	// Should the scan have misread something, the code is better left as it was than broken.
	if r := api.Transform(mended, api.TransformOptions{LogLevel: api.LogLevelSilent, Format: api.FormatESModule, Target: api.ESNext}); len(r.Errors) > 0 {
		return code
	}
	return mended
}

type edit struct {
	from, to int
	text     string
}

type token struct {
	from, to int
	kind     tokenKind
	match    int // of a bracket: the index of its other half
}

type tokenKind byte

const (
	word tokenKind = iota
	literal
	mark // one character of punctuation
)

// scanned is a program as tokens.
type scanned struct {
	code   string
	tokens []token
	open   []bracket
}

// bracket is an open one; one of a template goes back into the template's text.
type bracket struct {
	token    int
	template bool
}

func (s *scanned) text(i int) string {
	if i < 0 || i >= len(s.tokens) {
		return ""
	}
	return s.code[s.tokens[i].from:s.tokens[i].to]
}

func isWordByte(c byte) bool {
	return c == '_' || c == '$' || c == '#' || c == '\\' || c >= utf8.RuneSelf || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// scan splits a program into tokens; nil where its brackets do not match.
func scan(code string) *scanned {
	s := &scanned{code: code}
	for i := 0; i < len(code); {
		c := code[i]
		switch {
		case c == ' ' || c == '\n' || c == '\t' || c == '\r':
			i++
		case strings.HasPrefix(code[i:], "//"):
			i = endOr(code, i, "\n")
		case strings.HasPrefix(code[i:], "/*"):
			i = endOr(code, i, "*/")
		case c == '"' || c == '\'':
			i = s.add(i, quotedEnd(code, i), literal)
		case c == '`':
			i = s.template(i, i+1)
		case c == '/' && s.regexAllowed(code[i:]):
			i = s.add(i, regexEnd(code, i), literal)
		case isWordByte(c):
			i = s.word(i)
		case strings.IndexByte("([{", c) >= 0:
			s.open = append(s.open, bracket{token: len(s.tokens)})
			i = s.add(i, i+1, mark)
		case strings.IndexByte(")]}", c) >= 0:
			if len(s.open) == 0 {
				return nil
			}
			opened := s.open[len(s.open)-1]
			s.open = s.open[:len(s.open)-1]
			s.tokens[opened.token].match = len(s.tokens)
			i = s.add(i, i+1, mark)
			s.tokens[len(s.tokens)-1].match = opened.token
			if opened.template {
				i = s.template(i, i)
			}
		default:
			i = s.add(i, i+1, mark)
		}
	}
	if len(s.open) > 0 {
		return nil
	}
	return s
}

// add appends a token and returns its end.
func (s *scanned) add(from, to int, kind tokenKind) int {
	s.tokens = append(s.tokens, token{from: from, to: to, kind: kind, match: -1})
	return to
}

func (s *scanned) word(from int) int {
	c, end := s.code[from], from
	number := c >= '0' && c <= '9'
	for end < len(s.code) && (isWordByte(s.code[end]) || s.code[end] == '.' && number) {
		end++
	}
	if number {
		return s.add(from, end, literal)
	}
	return s.add(from, end, word)
}

// template adds a part of a template literal, up to its end or into an expression in it.
func (s *scanned) template(from, after int) int {
	end, into := templateEnd(s.code, after)
	s.add(from, end, literal)
	if into {
		s.open = append(s.open, bracket{token: len(s.tokens), template: true})
		s.add(end-1, end, mark)
	}
	return end
}

func endOr(code string, from int, end string) int {
	if n := strings.Index(code[from:], end); n >= 0 {
		return from + n + len(end)
	}
	return len(code)
}

func quotedEnd(code string, from int) int {
	for i := from + 1; i < len(code); i++ {
		switch code[i] {
		case '\\':
			i++
		case code[from]:
			return i + 1
		}
	}
	return len(code)
}

// templateEnd is the end of the part of a template that begins at from; into says that an expression follows.
func templateEnd(code string, from int) (end int, into bool) {
	for i := from; i < len(code); i++ {
		switch {
		case code[i] == '\\':
			i++
		case code[i] == '`':
			return i + 1, false
		case strings.HasPrefix(code[i:], "${"):
			return i + 2, true
		}
	}
	return len(code), false
}

func regexEnd(code string, from int) int {
	class := false
	for i := from + 1; i < len(code); i++ {
		switch c := code[i]; {
		case c == '\\':
			i++
		case c == '[':
			class = true
		case c == ']':
			class = false
		case c == '/' && !class:
			for i++; i < len(code) && isWordByte(code[i]); i++ {
			}
			return i
		}
	}
	return len(code)
}

// regexAllowed tells a regular expression from a division by what comes before, and where that leaves both open, by the
// space that esbuild prints after every division sign.
func (s *scanned) regexAllowed(rest string) bool {
	n := len(s.tokens) - 1
	if n < 0 {
		return true
	}
	division := strings.HasPrefix(rest, "/ ") || strings.HasPrefix(rest, "/= ")
	switch t := s.tokens[n]; t.kind {
	case literal:
		return false
	case word:
		return slices.Contains([]string{"return", "typeof", "case", "in", "of", "delete", "void", "throw", "new", "else", "do", "yield", "await", "instanceof"}, s.text(n))
	default:
		switch s.text(n) {
		case "]":
			return false
		case ")", "}", "+", "-":
			return !division
		}
		return true
	}
}

// loop is a loop statement; indices are of tokens, the body is [body, end).
type loop struct {
	body, end int
	labels    []string
	classic   bool // for (let …; …; …)
	uses      []int
}

func (s *scanned) mend() []edit {
	loops := s.loops()
	for i := range s.tokens {
		if s.text(i) != "continue" || s.tokens[i].kind != word || s.text(i-1) == "." {
			continue
		}
		label := ""
		if s.text(i+1) != ";" {
			if label = s.text(i + 1); s.text(i+2) != ";" {
				continue
			}
		}
		// Loops are in the order of their beginnings, so the last one round this place is the innermost.
		for k := len(loops) - 1; k >= 0; k-- {
			l := loops[k]
			if l.body <= i && i < l.end && (label == "" || slices.Contains(l.labels, label)) {
				if l.classic {
					l.uses = append(l.uses, i)
				}
				break
			}
		}
	}
	var edits []edit
	for n, l := range loops {
		if len(l.uses) == 0 {
			continue
		}
		label := fmt.Sprintf("__next%d", n)
		first, last := s.tokens[l.body], s.tokens[l.end-1]
		if s.text(l.body) == "{" && first.match == l.end-1 {
			edits = append(edits, edit{first.to, first.to, label + ": {"}, edit{last.from, last.from, "}"})
		} else {
			edits = append(edits, edit{first.from, first.from, label + ": {"}, edit{last.to, last.to, "}"})
		}
		for _, i := range l.uses {
			to := s.tokens[i].to
			if s.text(i+1) != ";" {
				to = s.tokens[i+1].to
			}
			edits = append(edits, edit{s.tokens[i].from, to, "break " + label})
		}
	}
	return edits
}

func (s *scanned) loops() []*loop {
	var out []*loop
	tails := map[int]bool{} // the `while` at the end of a do loop
	for i, t := range s.tokens {
		if t.kind != word || s.text(i-1) == "." {
			continue
		}
		l := &loop{}
		switch s.text(i) {
		case "for":
			head := i + 1
			if s.text(head) == "await" {
				head++
			}
			if s.text(head) != "(" {
				continue
			}
			l.body = s.tokens[head].match + 1
			l.classic = s.text(head+1) == "let" && s.hasSemicolon(head)
		case "while":
			if s.text(i+1) != "(" || tails[i] {
				continue
			}
			l.body = s.tokens[i+1].match + 1
		case "do":
			if next := s.text(i + 1); next == ":" || next == "(" || next == "," || next == "=" {
				continue
			}
			l.body = i + 1
		default:
			continue
		}
		l.end = s.statementEnd(l.body)
		if s.text(i) == "do" {
			tails[l.end] = true
		}
		for at := i; s.text(at-1) == ":" && s.tokens[at-2].kind == word && slices.Contains([]string{"", ";", "{", "}", ")", ":", "else", "do"}, s.text(at-3)); at -= 2 {
			l.labels = append(l.labels, s.text(at-2))
		}
		if l.body < l.end && l.end <= len(s.tokens) {
			out = append(out, l)
		}
	}
	return out
}

func (s *scanned) hasSemicolon(open int) bool {
	for i := open + 1; i < s.tokens[open].match; i++ {
		if s.text(i) == ";" {
			return true
		}
		if m := s.tokens[i].match; m > i {
			i = m
		}
	}
	return false
}

// statementEnd is the index after the statement that begins at token i.
func (s *scanned) statementEnd(i int) int {
	if i >= len(s.tokens) {
		return i
	}
	afterParens := func(i int) int {
		if s.text(i) == "(" {
			return s.tokens[i].match + 1
		}
		return i
	}
	switch w := s.text(i); {
	case w == "{":
		return s.tokens[i].match + 1
	case w == "if":
		end := s.statementEnd(afterParens(i + 1))
		if s.text(end) == "else" {
			end = s.statementEnd(end + 1)
		}
		return end
	case w == "for" && s.text(i+1) == "await":
		return s.statementEnd(afterParens(i + 2))
	case w == "for" || w == "while" || w == "with":
		return s.statementEnd(afterParens(i + 1))
	case w == "do":
		end := afterParens(s.statementEnd(i+1) + 1)
		if s.text(end) == ";" {
			end++
		}
		return end
	case w == "try":
		end := s.statementEnd(i + 1)
		if s.text(end) == "catch" {
			end = s.statementEnd(afterParens(end + 1))
		}
		if s.text(end) == "finally" {
			end = s.statementEnd(end + 1)
		}
		return end
	case w == "switch":
		return s.statementEnd(afterParens(i + 1))
	case w == "function" || w == "class" || w == "async" && s.text(i+1) == "function":
		for ; i < len(s.tokens) && s.text(i) != "{"; i++ {
			if m := s.tokens[i].match; m > i {
				i = m
			}
		}
		return s.statementEnd(i)
	case s.tokens[i].kind == word && s.text(i+1) == ":":
		return s.statementEnd(i + 2)
	}
	for ; i < len(s.tokens); i++ {
		switch m := s.tokens[i].match; {
		case s.text(i) == ";":
			return i + 1
		case m > i:
			i = m
		case m >= 0:
			return i
		}
	}
	return i
}
