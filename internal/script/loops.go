package script

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
	"github.com/tdewolff/parse/v2"
	"github.com/tdewolff/parse/v2/js"
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
	edits := s.mendLoops()
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
	kind     js.TokenType
	match    int // of a bracket, or of the ends of a template with expressions in it: the index of its other half
}

// scannedCode is a program as tokens, without white space and comments.
type scannedCode struct {
	code   string
	tokens []token
}

func (s *scannedCode) text(i int) string {
	if i < 0 || i >= len(s.tokens) {
		return ""
	}
	return s.code[s.tokens[i].from:s.tokens[i].to]
}

func (s *scannedCode) isWord(i int) bool { return js.IsIdentifierName(s.tokens[i].kind) }

func (s *scannedCode) isProperty(i int) bool { return s.text(i-1) == "." || s.text(i-1) == "?." }

// scan splits a program into tokens; nil where it has something that is no token, or its brackets do not match.
func scan(code string) *scannedCode {
	s := &scannedCode{code: code}
	lexer := js.NewLexer(parse.NewInputString(code))
	var open []int
	for from := 0; ; {
		kind, text := lexer.Next()
		if (kind == js.DivToken || kind == js.DivEqToken) && s.regexAllowed(code[from:]) {
			kind, text = lexer.RegExp()
		}
		t := token{from: from, to: from + len(text), kind: kind, match: -1}
		from = t.to
		switch kind {
		case js.ErrorToken:
			if !errors.Is(lexer.Err(), io.EOF) || len(open) > 0 {
				return nil
			}
			return s
		case js.WhitespaceToken, js.LineTerminatorToken, js.CommentToken, js.CommentLineTerminatorToken:
			continue
		case js.OpenParenToken, js.OpenBracketToken, js.OpenBraceToken, js.TemplateStartToken:
			open = append(open, len(s.tokens))
		case js.CloseParenToken, js.CloseBracketToken, js.CloseBraceToken, js.TemplateEndToken:
			if len(open) == 0 {
				return nil
			}
			t.match = open[len(open)-1]
			s.tokens[t.match].match = len(s.tokens)
			open = open[:len(open)-1]
		}
		s.tokens = append(s.tokens, t)
	}
}

// regexAllowed tells a regular expression from a division by what comes before, and where that leaves both open, by the
// space that esbuild prints after every division sign.
func (s *scannedCode) regexAllowed(rest string) bool {
	n := len(s.tokens) - 1
	if n < 0 {
		return true
	}
	switch kind := s.tokens[n].kind; kind {
	case js.StringToken, js.TemplateToken, js.TemplateEndToken, js.RegExpToken, js.PrivateIdentifierToken, js.CloseBracketToken:
		return false
	case js.CloseParenToken, js.CloseBraceToken, js.IncrToken, js.DecrToken:
		return !strings.HasPrefix(rest, "/ ") && !strings.HasPrefix(rest, "/= ")
	default:
		if js.IsIdentifierName(kind) {
			return slices.Contains([]string{"return", "typeof", "case", "in", "of", "delete", "void", "throw", "new", "else", "do", "yield", "await", "instanceof"}, s.text(n))
		}
		return !js.IsNumeric(kind)
	}
}

// loop is a loop statement; indices are of tokens, the body is [body, end).
type loop struct {
	body, end int
	labels    []string
	classic   bool // for (let …; …; …)
	uses      []int
}

func (s *scannedCode) mendLoops() []edit {
	loops := s.loops()
	for i := range s.tokens {
		if s.text(i) != "continue" || s.isProperty(i) {
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

func (s *scannedCode) loops() []*loop {
	var out []*loop
	tails := map[int]bool{} // the `while` at the end of a do loop
	for i := range s.tokens {
		if s.isProperty(i) {
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
		for at := i; s.text(at-1) == ":" && s.isWord(at-2) && slices.Contains([]string{"", ";", "{", "}", ")", ":", "else", "do"}, s.text(at-3)); at -= 2 {
			l.labels = append(l.labels, s.text(at-2))
		}
		if l.body < l.end && l.end <= len(s.tokens) {
			out = append(out, l)
		}
	}
	return out
}

func (s *scannedCode) hasSemicolon(open int) bool {
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
func (s *scannedCode) statementEnd(i int) int {
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
	case s.isWord(i) && s.text(i+1) == ":":
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
