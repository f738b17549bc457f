// Package targets holds the rules for what the constructors of several targets have in common: their ids, the logins that
// they give to agents, their resources, and what makes two descriptions the same target.
package targets

import (
	"encoding/json"
	"slices"

	"github.com/laufwerk/laufwerk/internal/environment"
	"github.com/laufwerk/laufwerk/internal/lazyregexp"
	"github.com/laufwerk/laufwerk/internal/options"
	"github.com/laufwerk/laufwerk/internal/sha256hex"
)

var idPattern = lazyregexp.Regexp{Pattern: `^[A-Za-z0-9._-]{1,63}$`}

// ID is the option `id` of a target, or of an agent.
func ID(raw json.RawMessage, fallback string) (string, error) {
	if options.Absent(raw) {
		return fallback, nil
	}
	const path, expected = "id", "1 to 63 letters, digits, dots, underscores and hyphens"
	id, err := options.String(path, raw, expected)
	if err == nil && !idPattern.MatchString(id) {
		err = options.Invalid(path, "expected %s, got %q", expected, id)
	}
	return id, err
}

// Credentials is the option `credentials`: one login or several of the known kinds, sorted, each once.
func Credentials(raw json.RawMessage, kinds []string) ([]string, error) {
	const path = "credentials"
	if options.Absent(raw) {
		return nil, nil
	}
	list := []json.RawMessage{raw}
	single := options.Kind(raw) != "an array"
	if !single {
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, options.Invalid(path, "expected a list, got %s", options.Kind(raw))
		}
	}
	var out []string
	for i, e := range list {
		at := path
		if !single {
			at = options.Index(path, i)
		}
		s, err := options.OneOf(at, e, kinds...)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// CredentialsOf are the logins that a described target (a Definition as JSON) gives to agents, where its options hold
// them as Credentials reads them.
func CredentialsOf(described json.RawMessage) []string {
	var d Definition
	var options struct {
		Credentials []string `json:"credentials"`
	}
	if json.Unmarshal(described, &d) != nil || json.Unmarshal(d.Options, &options) != nil {
		return nil
	}
	return options.Credentials
}

// fingerprint is sha256 over kind, id and options, as JSON with sorted keys. It neither holds nor needs the literal values of
// variables: these count as environment.Redact shows them.
func fingerprint(kind, id string, defining json.RawMessage) (string, error) {
	kept, err := environment.Redact(defining)
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(map[string]any{"kind": kind, "id": id, "options": kept})
	return sha256hex.Of(b), err
}
