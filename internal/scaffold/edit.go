package scaffold

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// token is a word, a string or a sign of TypeScript, at [start, end) of the text.
type token struct {
	text       string
	start, end int
	depth      int // of brackets around it
}

// tokens splits a module. It is false for text in which strings, comments and code cannot be told apart without a parser:
// regular expressions, divisions, templates with expressions.
func tokens(src string) ([]token, bool) {
	var out []token
	var open []string // what the open brackets wait for
	for i := 0; i < len(src); {
		r, size := utf8.DecodeRuneInString(src[i:])
		start := i
		switch {
		case unicode.IsSpace(r) || r == '\ufeff':
			i += size
			continue
		case strings.HasPrefix(src[i:], "//"):
			if n := strings.IndexByte(src[i:], '\n'); n >= 0 {
				i += n
			} else {
				i = len(src)
			}
			continue
		case strings.HasPrefix(src[i:], "/*"):
			n := strings.Index(src[i+2:], "*/")
			if n < 0 {
				return nil, false
			}
			i += n + 4
			continue
		case r == '/':
			return nil, false
		case r == '"' || r == '\'' || r == '`':
			for i++; ; i++ {
				if i >= len(src) || src[i] == '\n' && r != '`' || r == '`' && strings.HasPrefix(src[i:], "${") {
					return nil, false
				}
				if src[i] == '\\' {
					i++
				} else if src[i] == byte(r) {
					break
				}
			}
			i++
		case word(r):
			for i < len(src) && word(r) {
				i += size
				r, size = utf8.DecodeRuneInString(src[i:])
			}
		default:
			i += size
		}
		t := token{src[start:i], start, i, len(open)}
		switch t.text {
		case "(":
			open = append(open, ")")
		case "[":
			open = append(open, "]")
		case "{":
			open = append(open, "}")
		case ")", "]", "}":
			if len(open) == 0 || open[len(open)-1] != t.text {
				return nil, false
			}
			open = open[:len(open)-1]
			t.depth = len(open)
		}
		out = append(out, t)
	}
	return out, len(open) == 0
}

func word(r rune) bool { return r == '_' || r == '$' || unicode.IsLetter(r) || unicode.IsDigit(r) }

type configEdit struct {
	text          []byte
	line, element string // what was added
}

// addTarget adds the target of a module to a config's `executions`: one line after the last import, one element after the
// last. Not one other byte changes. It is false where the text is not as plain as a config usually is. Whether the result
// means what it should is for the caller to see, by loading it.
func addTarget(config []byte, module, id string) (configEdit, bool) {
	src := string(config)
	list, ok := tokens(src)
	name := identifier(id, list)
	e := configEdit{line: fmt.Sprintf("import { execution as %s } from %q;", name, "./"+module), element: name}
	if !ok {
		return e, false
	}
	newline := "\n"
	if strings.Contains(src, "\r\n") {
		newline = "\r\n"
	}
	after, ok := lastImport(src, list)
	if !ok {
		return e, false
	}
	at, element, ok := nextElement(src, list, name, newline)
	if !ok || at < after {
		return e, false
	}
	var out bytes.Buffer
	out.WriteString(src[:after])
	out.WriteString(e.line + newline)
	out.WriteString(src[after:at])
	out.WriteString(element)
	out.WriteString(src[at:])
	e.text = out.Bytes()
	return e, true
}

// lastImport is the place after the line of the last import.
func lastImport(src string, list []token) (int, bool) {
	end := -1
	for i, t := range list {
		if t.depth != 0 || t.text != "import" || i+1 < len(list) && (list[i+1].text == "(" || list[i+1].text == ".") {
			continue
		}
		last := i + 1
		for last < len(list) && !strings.ContainsAny(list[last].text[:1], `"'`) {
			last++
		}
		if last >= len(list) {
			return 0, false
		}
		if last+1 < len(list) && list[last+1].text == ";" {
			last++
		}
		n := strings.IndexByte(src[list[last].end:], '\n')
		if n < 0 {
			return 0, false
		}
		end = list[last].end + n + 1
		if last+1 < len(list) && list[last+1].start < end { // more code on that line
			return 0, false
		}
	}
	return end, end >= 0
}

// nextElement is the place, and the text, of one more element of the only `executions: […]` of the module.
func nextElement(src string, list []token, name, newline string) (at int, text string, ok bool) {
	open := -1
	for i, t := range list {
		if strings.Trim(t.text, `"'`) != "executions" {
			continue
		}
		if open >= 0 || i+2 >= len(list) || list[i+1].text != ":" || list[i+2].text != "[" {
			return 0, "", false
		}
		open = i + 2
	}
	if open < 0 {
		return 0, "", false
	}
	end := open + 1
	for list[end].text != "]" || list[end].depth != list[open].depth {
		end++ // brackets are balanced
	}
	last := list[end-1]
	indent := src[strings.LastIndexByte(src[:last.start], '\n')+1 : last.start]
	indent = indent[:len(indent)-len(strings.TrimLeft(indent, " \t"))]
	rest, _, _ := strings.Cut(src[last.end:list[end].start], "\n")
	ownLine := end > open+1 && strings.Contains(src[list[open].end:last.start], "\n") && strings.TrimSpace(rest) == ""
	switch {
	case end == open+1:
		return last.end, name, true
	case last.text == "," && strings.Contains(src[last.end:list[end].start], "\n"):
		return last.end + len(strings.TrimRight(rest, "\r")), newline + indent + name + ",", true
	case last.text == ",":
		return last.end, " " + name + ",", true
	case ownLine:
		return last.end, "," + newline + indent + name, true
	default:
		return last.end, ", " + name, true
	}
}

// identifier makes a name of a target's id that the module does not use yet.
func identifier(id string, list []token) string {
	var camel strings.Builder
	upper := false
	for _, r := range id {
		if !word(r) {
			upper = camel.Len() > 0
			continue
		}
		if upper {
			r = unicode.ToUpper(r)
		}
		upper = false
		camel.WriteRune(r)
	}
	name := camel.String()
	free := func(name string) bool {
		return !slices.Contains(reservedWords(), name) && !slices.ContainsFunc(list, func(t token) bool { return t.text == name })
	}
	if name != "" && !unicode.IsDigit(rune(name[0])) && free(name) {
		return name
	}
	if name != "" {
		name = strings.ToUpper(name[:1]) + name[1:]
	}
	for n := 1; ; n++ {
		candidate := "execution" + name
		if n > 1 {
			candidate = fmt.Sprintf("%s_%d", candidate, n)
		}
		if free(candidate) {
			return candidate
		}
	}
}

func reservedWords() []string {
	return strings.Fields(`arguments await break case catch class const continue debugger default delete do else enum eval export extends false finally for
		function if implements import in instanceof interface let new null package private protected public return static super switch this throw true try
		typeof undefined var void while with yield`)
}
