// Package schema checks JSON values against the JSON Schemas of workflows: their input, their output, and the answers of
// agents. References to URLs and files are never resolved.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/laufwerk/laufwerk/internal/suggest"
)

// Schema is a resolved schema.
type Schema struct {
	raw      json.RawMessage
	resolved *jsonschema.Resolved
}

// Parse reads a schema. It fails for schemas that refer to anything outside themselves.
func Parse(raw json.RawMessage) (*Schema, error) {
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fmt.Errorf("not a JSON Schema: %w", err)
	}
	r, err := s.Resolve(&jsonschema.ResolveOptions{Loader: func(uri *url.URL) (*jsonschema.Schema, error) {
		return nil, fmt.Errorf("references outside the schema are not resolved (%s)", uri)
	}})
	if err == nil {
		err = errors.Join(kinds(raw), unfold(raw))
	}
	if err != nil {
		return nil, fmt.Errorf("not a usable JSON Schema: %w", err)
	}
	return &Schema{raw: raw, resolved: r}, nil
}

// Check fails if the value, JSON text, does not fit; the message names the path of the wrong field.
func (s *Schema) Check(value json.RawMessage) error {
	d := json.NewDecoder(bytes.NewReader(value))
	var v any
	if err := d.Decode(&v); err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	if err := s.resolved.Validate(v); err != nil {
		return locate(s.raw, v, err)
	}
	return nil
}

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
