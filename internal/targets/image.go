package targets

import (
	"encoding/json"
	"strings"

	"github.com/distribution/reference"

	"github.com/laufwerk/laufwerk/internal/options"
)

// Image is the name of an image or its id, as it was given. Whether there is one is not looked at.
func Image(path string, raw json.RawMessage) (string, error) {
	const expected = "an image's name (as in `node:22` or `registry.example/team/image@sha256:…`) or id"
	s, err := options.String(path, raw, expected)
	if err != nil {
		return "", err
	}
	if _, err := reference.ParseAnyReference(s); err != nil {
		return "", options.Invalid(path, "expected %s, got %s (%s)", expected, options.Show(raw), strings.TrimPrefix(err.Error(), "invalid reference format: "))
	}
	return s, nil
}
