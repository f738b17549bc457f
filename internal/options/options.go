// Package options reads the options of a constructor. Every failure names the option's path, what was expected and what
// came; adapters and the isolate share these rules.
package options

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/suggest"
)

// Invalid is a refused option.
func Invalid(path, format string, args ...any) error {
	return failure.New(failure.ProjectInvalid, format, args...).WithPaths(path)
}

// Fields are the members of an object whose members are all known; nothing at all is an object without members.
func Fields(path string, raw json.RawMessage, known ...string) (map[string]json.RawMessage, error) {
	if Absent(raw) {
		return nil, nil
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return nil, Invalid(path, "expected an object, got %s", Show(raw))
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(known, name) {
			return nil, Invalid(Join(path, name), "there is no such option%s", suggest.Alternatives(name, known))
		}
	}
	return fields, nil
}

// Join is the path of a member.
func Join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// Index is the path of an element.
func Index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// Absent says whether an option was not given.
func Absent(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) == 0 || string(raw) == "null"
}

// String is a string; expected completes "expected …".
func String(path string, raw json.RawMessage, expected string) (string, error) {
	var s string
	if Kind(raw) != "a string" || json.Unmarshal(raw, &s) != nil {
		return "", Invalid(path, "expected %s, got %s", expected, Show(raw))
	}
	return s, nil
}

// Strings is a list of strings.
func Strings(path string, raw json.RawMessage, expected string) ([]string, error) {
	var list []json.RawMessage
	if Kind(raw) != "an array" || json.Unmarshal(raw, &list) != nil {
		return nil, Invalid(path, "expected %s, got %s", expected, Show(raw))
	}
	out := make([]string, 0, len(list))
	for i, e := range list {
		s, err := String(Index(path, i), e, "a string")
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// OneOf is one of some strings.
func OneOf(path string, raw json.RawMessage, allowed ...string) (string, error) {
	expected := `"` + strings.Join(allowed, `" or "`) + `"`
	s, err := String(path, raw, expected)
	if err == nil && !slices.Contains(allowed, s) {
		err = Invalid(path, "expected %s, got %q", expected, s)
	}
	return s, err
}

// Kind names what a JSON value is, without showing it.
func Kind(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	default:
		return "a number"
	}
}

// shown bounds what of a value is repeated in a message, in bytes.
const shown = 80

// Show is a value for a message: short ones as they are, others by their kind.
func Show(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || len(raw) > shown || raw[0] == '{' || raw[0] == '[' {
		return Kind(raw)
	}
	return string(raw)
}

// MaxInteger is the largest whole number that TypeScript writes exactly.
const MaxInteger = 1<<53 - 1

// Integer is a whole number from least to MaxInteger; expected completes "expected …".
func Integer(path string, raw json.RawMessage, least int64, expected string) (int64, error) {
	var n int64
	if Kind(raw) != "a number" || json.Unmarshal(raw, &n) != nil || n < least || n > MaxInteger {
		return 0, Invalid(path, "expected %s, got %s", expected, Show(raw))
	}
	return n, nil
}

// Location is the path of what ("a directory"): relative to the project's root, absolute, or below ~/ for the home directory.
// What it leads to is not looked at.
func Location(path string, raw json.RawMessage, what string) (string, error) {
	expected := what + ": relative to the project, absolute, or below ~/"
	s, err := String(path, raw, expected)
	if err == nil && (s == "" || strings.ContainsRune(s, 0) || strings.HasPrefix(s, "~") && !strings.HasPrefix(s, "~/")) {
		err = Invalid(path, "expected %s, got %s", expected, Show(raw))
	}
	return s, err
}
