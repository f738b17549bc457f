package schema_test

import (
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/internal/schema"
)

func TestCheckNamesTheField(t *testing.T) {
	s, err := schema.Parse([]byte(`{"type":"object","properties":{"issue":{"type":"string"},"deep":{"type":"object","properties":{"n":{"type":"integer","minimum":3}}}},"required":["issue"],"additionalProperties":false}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ value, want string }{
		{`{"issue":"x"}`, ""},
		{`{"issue":7}`, "issue"},
		{`{}`, "issue"},
		{`{"issue":"x","deep":{"n":1}}`, "n"},
		{`{"issue":"x","extra":1}`, "extra"},
		{`{"issue":"x"} {}`, "more than one"},
		{`nonsense`, "not JSON"},
	} {
		err := s.Check([]byte(c.value))
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.value, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got %v, want a word on %q", c.value, err, c.want)
		}
	}
}

func TestForeignReferencesAreRefused(t *testing.T) {
	for _, ref := range []string{"file:///etc/passwd", "https://example.com/x.json", "/etc/passwd"} {
		if _, err := schema.Parse([]byte(`{"$ref":"` + ref + `"}`)); err == nil || strings.Contains(err.Error(), "root:") {
			t.Errorf("%s: %v", ref, err)
		}
	}
}
