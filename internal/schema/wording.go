package schema

import (
	"slices"
	"strconv"
	"strings"

	"github.com/laufwerk/laufwerk/internal/lazyregexp"
	"github.com/laufwerk/laufwerk/internal/suggest"
)

// words says a failure of the library for the one who typed the value. It speaks of keywords and of Go's values; what is not known
// here is left as it is. The names are those that the schema has where the value is wrong.
func words(text string, names []string) string {
	for i := range wordings {
		w := &wordings[i]
		if m := w.of.FindStringSubmatch(text); m != nil {
			return w.say(m[1:], names)
		}
	}
	return text
}

type wording struct {
	of  lazyregexp.Regexp
	say func(found, names []string) string
}

// wordings are the failures of github.com/google/jsonschema-go that people meet. A value in them may be long, and hold anything.
var wordings = [...]wording{
	{lazyregexp.Regexp{Pattern: `(?s)^type: .*has type "(\w+)", want (?:one of )?"(.+)"$`}, func(m, _ []string) string {
		return "expected " + strings.ReplaceAll(m[1], ", ", " or ") + ", got " + m[0]
	}},
	{lazyregexp.Regexp{Pattern: `(?s)^required: missing properties: \[(.*)\]$`}, func(m, _ []string) string {
		return "missing: " + strings.Join(quoted(m[0]), ", ")
	}},
	{lazyregexp.Regexp{Pattern: `(?s)^unexpected additional properties \[(.*)\]$`}, func(m, names []string) string {
		strange := quoted(m[0])
		slices.Sort(strange) // the library goes through them in any order
		out := "unknown property " + strings.Join(strange, " and ")
		if name, err := strconv.Unquote(strange[0]); err == nil && len(strange) == 1 {
			if near := suggest.Closest(name, names); near != "" {
				out += "; did you mean " + strconv.Quote(near) + "?"
			}
		}
		return out
	}},
	{lazyregexp.Regexp{Pattern: `(?s)^minLength: "" contains 0 Unicode code points.*$`}, func(_, _ []string) string { return "it is empty" }},
	{lazyregexp.Regexp{Pattern: `(?s)^(?:minLength: .*contains|minItems: array length) (\d+) (?:Unicode code points, fewer|is less) than (\d+)$`}, func(m, _ []string) string {
		return "expected a length of at least " + m[1] + ", got " + m[0]
	}},
	{lazyregexp.Regexp{Pattern: `(?s)^(?:maxLength: .*contains|maxItems: array length) (\d+) (?:Unicode code points, more|is greater) than (\d+)$`}, func(m, _ []string) string {
		return "expected a length of at most " + m[1] + ", got " + m[0]
	}},
	{lazyregexp.Regexp{Pattern: `(?s)^(?:minimum|maximum|exclusiveMinimum|exclusiveMaximum): (\S+) is ([a-z ]+) (\S+)$`}, func(m, _ []string) string {
		return strings.TrimSuffix(m[0], "/1") + " is " + m[1] + " " + number(m[2])
	}},
}

// number is what Go's %f printed, as people write it.
func number(s string) string {
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return s
}

// quoted are the strings in what Go's %q printed of several.
func quoted(list string) (out []string) {
	for list != "" {
		one, err := strconv.QuotedPrefix(list)
		if err != nil {
			return append(out, list)
		}
		out, list = append(out, one), strings.TrimPrefix(list[len(one):], " ")
	}
	return out
}
