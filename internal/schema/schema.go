// Package schema checks JSON values against the JSON Schemas of workflows: their input, their output, and the answers of
// agents. References to URLs and files are never resolved.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"

	"github.com/google/jsonschema-go/jsonschema"
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
