package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/laufwerk/laufwerk/internal/lazyregexp"
)

// locate says where in the value the error is. The library names the place in the schema, which the one who typed the value
// does not know.
func locate(raw json.RawMessage, value any, err error) error {
	var root any
	if json.Unmarshal(raw, &root) != nil {
		return err
	}
	l := locator{err: err}
	l.defs, _ = root.(map[string]any)
	l.descend(root, value, "")
	text := words(prefixes.ReplaceAllString(l.err.Error(), ""), l.names)
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	if l.path == "" {
		return fmt.Errorf("%s", text)
	}
	return fmt.Errorf("%s: %s", l.path, text)
}

// maxText bounds a message in bytes: the library prints the value that does not fit.
const maxText = 400

var prefixes = lazyregexp.Regexp{Pattern: `^(validating [^:]*: )+`}

// locator follows a value down to the innermost field that does not fit.
type locator struct {
	defs map[string]any
	path string
	err  error

	names []string // of the properties that the schema has there
}

func (l *locator) descend(schema, value any, path string) {
	object, ok := schema.(map[string]any)
	if !ok {
		return
	}
	if known, _ := object["properties"].(map[string]any); known != nil {
		l.names = slices.Sorted(maps.Keys(known))
	}
	switch v := value.(type) {
	case map[string]any:
		properties, _ := object["properties"].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(v)) {
			at := name
			if path != "" {
				at = path + "." + name
			}
			sub, known := properties[name]
			if !known {
				sub = object["additionalProperties"]
			}
			if _, closed := sub.(bool); closed { // the object itself says what it does not allow
				continue
			}
			if l.fails(l.compileAlone(sub), sub, v[name], at) {
				return
			}
		}
	case []any:
		items := object["items"]
		one := l.compileAlone(items)
		for i, element := range v {
			if l.fails(one, items, element, fmt.Sprintf("%s[%d]", path, i)) {
				return
			}
		}
	}
}

// fails checks a part of the value and, where it does not fit, looks into it.
func (l *locator) fails(one *Schema, schema, value any, path string) bool {
	if one == nil {
		return false
	}
	err := one.resolved.Validate(value)
	if err == nil {
		return false
	}
	l.path, l.err, l.names = path, err, nil
	l.descend(schema, value, path)
	return true
}

// compileAlone is a part of the schema by itself, nil where it cannot stand alone.
func (l *locator) compileAlone(schema any) *Schema {
	if schema == nil {
		return nil
	}
	whole := map[string]any{"allOf": []any{schema}}
	for _, name := range []string{"$schema", "$defs", "definitions"} {
		if d, ok := l.defs[name]; ok {
			whole[name] = d
		}
	}
	raw, err := json.Marshal(whole)
	if err != nil {
		return nil
	}
	one, err := Parse(raw)
	if err != nil {
		return nil
	}
	return one
}
