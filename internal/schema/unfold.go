package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// maxLocations bounds how many schemas apply to one place of a value.
const maxLocations = 10_000

// unfold refuses schemas that apply to one place of a value without end, or to so many branches that a check takes ages:
// `{"$ref": "#"}` describes nothing, and the library that checks would follow it until the process dies. A schema that refers
// to itself for a part of the value (a tree) is fine: values end.
func unfold(raw json.RawMessage) error {
	var root any
	if err := json.Unmarshal(raw, &root); err != nil {
		return err
	}
	u := &unfolding{root: root, counted: map[string]int{}, named: map[string]any{}}
	u.name(root)
	return u.checkSchema(root, "#")
}

type unfolding struct {
	root    any
	named   map[string]any // anchors and ids
	counted map[string]int // places by the schema's address; -1 while it is being counted
}

// name collects what references may name other than by a pointer.
func (u *unfolding) name(schema any) {
	switch s := schema.(type) {
	case map[string]any:
		for _, k := range []string{"$anchor", "$dynamicAnchor"} {
			if name, ok := s[k].(string); ok {
				u.named["#"+name] = s
			}
		}
		if id, ok := s["$id"].(string); ok {
			u.named[id] = s
		}
		for _, v := range s {
			u.name(v)
		}
	case []any:
		for _, v := range s {
			u.name(v)
		}
	}
}

// checkSchema counts from every schema: a loop may be where nothing leads to from the root but a part of the value.
func (u *unfolding) checkSchema(schema any, at string) error {
	if _, err := u.count(schema, at); err != nil {
		return err
	}
	switch s := schema.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(s)) {
			if err := u.checkSchema(s[k], at+"/"+escape(k)); err != nil {
				return err
			}
		}
	case []any:
		for i, v := range s {
			if err := u.checkSchema(v, at+"/"+strconv.Itoa(i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// count is how many schemas apply to a place of the value where this one does.
func (u *unfolding) count(schema any, at string) (int, error) {
	s, ok := schema.(map[string]any)
	if !ok {
		return 1, nil
	}
	switch n := u.counted[at]; {
	case n < 0:
		return 0, fmt.Errorf("%s refers to itself without looking at a part of the value", at)
	case n > 0:
		return n, nil
	}
	u.counted[at] = -1
	n := 1
	for _, next := range u.applicators(s, at) {
		more, err := u.count(next.schema, next.at)
		if err != nil {
			return 0, err
		}
		if n += more; n > maxLocations {
			return 0, fmt.Errorf("%s has more than %d branches", at, maxLocations)
		}
	}
	u.counted[at] = n
	return n, nil
}

type schemaLocation struct {
	schema any
	at     string
}

// applicators are the schemas that apply to the same value as s.
func (u *unfolding) applicators(s map[string]any, at string) (out []schemaLocation) {
	for _, k := range []string{"$ref", "$dynamicRef"} {
		if ref, ok := s[k].(string); ok {
			if target, found := u.resolve(ref); found {
				out = append(out, target)
			}
		}
	}
	for _, k := range []string{"allOf", "anyOf", "oneOf"} {
		if list, ok := s[k].([]any); ok {
			for i, v := range list {
				out = append(out, schemaLocation{v, at + "/" + k + "/" + strconv.Itoa(i)})
			}
		}
	}
	for _, k := range []string{"not", "if", "then", "else"} {
		if v, ok := s[k]; ok {
			out = append(out, schemaLocation{v, at + "/" + k})
		}
	}
	for _, k := range []string{"dependentSchemas", "dependencies"} {
		if m, ok := s[k].(map[string]any); ok {
			for name, v := range m {
				out = append(out, schemaLocation{v, at + "/" + k + "/" + escape(name)})
			}
		}
	}
	return out
}

func (u *unfolding) resolve(ref string) (schemaLocation, bool) {
	if s, ok := u.named[ref]; ok {
		return schemaLocation{s, "named " + ref}, true
	}
	pointer, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return schemaLocation{}, false
	}
	schema := u.root
	for _, part := range strings.Split(pointer, "/")[1:] {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch s := schema.(type) {
		case map[string]any:
			schema = s[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(s) {
				return schemaLocation{}, false
			}
			schema = s[i]
		default:
			return schemaLocation{}, false
		}
	}
	return schemaLocation{schema, "#" + pointer}, true
}

func escape(name string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(name) }
