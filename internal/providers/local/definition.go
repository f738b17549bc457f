package local

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"slices"

	"github.com/laufwerk/laufwerk/internal/environment"
	"github.com/laufwerk/laufwerk/internal/options"
	"github.com/laufwerk/laufwerk/internal/providers"
)

// config is the normalised form of createLocalExecution's options.
type config struct {
	Credentials []string                `json:"credentials,omitempty"` // sorted, each once
	Env         environment.Environment `json:"env,omitempty"`
	ID          string                  `json:"id"`
}

// Validate holds the rules of createLocalExecution. Its own normalised form is valid and stays as it is. The fingerprint
// is over environment.Redact of the options: it neither holds nor needs the literal values of variables.
func (*Provider) Validate(given json.RawMessage) (providers.Definition, error) {
	fields, err := options.Fields("", given, "id", "credentials", "env")
	if err != nil {
		return providers.Definition{}, err
	}
	c := config{ID: Kind}
	if raw := fields["id"]; !options.Absent(raw) {
		const expected = "1 to 63 letters, digits, dots, underscores and hyphens"
		if c.ID, err = options.String("id", raw, expected); err != nil {
			return providers.Definition{}, err
		}
		if !idPattern().MatchString(c.ID) {
			return providers.Definition{}, options.Invalid("id", "expected %s, got %q", expected, c.ID)
		}
	}
	if c.Credentials, err = credentials(fields["credentials"]); err != nil {
		return providers.Definition{}, err
	}
	if c.Env, err = environment.Parse("env", fields["env"]); err != nil {
		return providers.Definition{}, err
	}
	normal, err := json.Marshal(c)
	if err != nil {
		return providers.Definition{}, err
	}
	sum, err := fingerprint(c.ID, normal)
	return providers.Definition{Kind: Kind, ID: c.ID, Options: normal, Fingerprint: sum}, err
}

func idPattern() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._-]{1,63}$`) }

func credentials(raw json.RawMessage) ([]string, error) {
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
		s, err := options.OneOf(at, e, "codex-subscription", "claude-subscription")
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// fingerprint is sha256 over kind, id and options, as JSON with sorted keys.
func fingerprint(id string, normal json.RawMessage) (string, error) {
	kept, err := environment.Redact(normal)
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(map[string]any{"kind": Kind, "id": id, "options": kept})
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), err
}
