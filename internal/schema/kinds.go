package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/laufwerk/laufwerk/internal/suggest"
)

// kinds fails for a `type` that JSON has none of: nothing fits it, which would be said of every value instead of the schema.
func kinds(raw json.RawMessage) error {
	var root any
	if err := json.Unmarshal(raw, &root); err != nil {
		return err
	}
	return kindsOf(root, "")
}

func kindsOf(schema any, at string) error {
	s, ok := schema.(map[string]any)
	if !ok {
		return nil // true, false
	}
	list, isList := s["type"].([]any)
	if !isList {
		list = []any{s["type"]}
	}
	known := []string{"array", "boolean", "integer", "null", "number", "object", "string"}
	for _, v := range list {
		name, isName := v.(string)
		if !isName || slices.Contains(known, name) {
			continue
		}
		why := fmt.Sprintf("%s: there is no type %q", at+"/type", name)
		if near := suggest.Closest(name, known); near != "" {
			why += fmt.Sprintf("; did you mean %q?", near)
		}
		return errors.New(why)
	}
	for _, k := range slices.Sorted(maps.Keys(s)) {
		if err := kindsBelow(k, s[k], at+"/"+escape(k)); err != nil {
			return err
		}
	}
	return nil
}

// kindsBelow looks at what a keyword has of schemas. What others have is data.
func kindsBelow(keyword string, v any, at string) error {
	switch keyword {
	case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas":
		named, _ := v.(map[string]any)
		for _, k := range slices.Sorted(maps.Keys(named)) {
			if err := kindsOf(named[k], at+"/"+escape(k)); err != nil {
				return err
			}
		}
	case "allOf", "anyOf", "oneOf", "prefixItems":
		list, _ := v.([]any)
		for i, one := range list {
			if err := kindsOf(one, at+"/"+strconv.Itoa(i)); err != nil {
				return err
			}
		}
	case "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedItems", "unevaluatedProperties":
		return kindsOf(v, at)
	}
	return nil
}
