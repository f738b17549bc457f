package schema_test

import (
	"fmt"
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
		{`{"issue":"x"}}`, "more than one"},
		{`{"issue":"x"} ]`, "more than one"},
		{``, "not JSON"},
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

func TestTheWrongFieldIsNamedByItsPathInTheValue(t *testing.T) {
	s, err := schema.Parse([]byte(`{"type":"object","required":["who"],"$defs":{"n":{"type":"integer","minimum":3}},"properties":{
		"who":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"age":{"$ref":"#/$defs/n"}}},
		"list":{"type":"array","maxItems":3,"items":{"type":"object","properties":{"n":{"$ref":"#/$defs/n"}},"additionalProperties":false}},
		"map":{"additionalProperties":{"type":"string"}},
		"few":{"type":["string","array"],"minLength":2,"maxLength":3,"minItems":1},"text":{"pattern":"^$"},"two":{"additionalProperties":false}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]string{
		`{"who":{"name":"x","age":"old"}}`: `who.age: expected integer, got string`,
		`{"who":{"name":"x","age":2}}`:     `who.age: 2 is less than 3`,
		`{"who":{}}`:                       `who: missing: "name"`,
		`{}`:                               `missing: "who"`,
		`[]`:                               `expected object, got array`,
		`{"who":{"name":"x"},"list":[{"n":4},{"n":1}]}`:                       `list[1].n: 1 is less than 3`,
		`{"who":{"name":"x"},"list":[{},{"n":4,"m":1}]}`:                      `list[1]: unknown property "m"; did you mean "n"?`,
		`{"who":{"name":"x"},"list":[{},{},{},{}]}`:                           `list: expected a length of at most 3, got 4`,
		`{"who":{"name":"x"},"map":{"a":"b","c d":7}}`:                        `map.c d: expected string, got integer`,
		`{"who":{"name":"x"},"text":"` + strings.Repeat("long ", 1000) + `"}`: `text: pattern: "` + strings.Repeat("long ", 1000)[:400-len(`pattern: "`)] + "…",
		`null`:                                             `expected object, got null`,
		`{"who":{"name":"x"},"few":""}`:                    `few: it is empty`,
		`{"who":{"name":"x"},"few":"a"}`:                   `few: expected a length of at least 2, got 1`,
		`{"who":{"name":"x"},"few":"aaaa"}`:                `few: expected a length of at most 3, got 4`,
		`{"who":{"name":"x"},"few":1.5}`:                   `few: expected string or array, got number`,
		`{"who":{"name":"x"},"few":[]}`:                    `few: expected a length of at least 1, got 0`,
		`{"who":{"name":"x"},"two":{"\"a\" b":1,"zzz":1}}`: `two: unknown property "\"a\" b" and "zzz"`,
		`{"who":{"name":"x"},"two":{"type: 1 has type \"x\", want \"y\"":1}}`: `two: unknown property "type: 1 has type \"x\", want \"y\""`,
	} {
		if err := s.Check([]byte(value)); err == nil || err.Error() != want {
			t.Errorf("%.80s: %v\nwant %s", value, err, want)
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

// Following such a schema would end the process: a stack has an end, and so has patience.
func TestSchemasWithoutEndAreRefused(t *testing.T) {
	doubling := `{"$defs":{"d0":{}`
	for i := 1; i < 60; i++ {
		doubling += fmt.Sprintf(`,"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i, i-1, i-1)
	}
	doubling += `},"$ref":"#/$defs/d59"}`
	for _, raw := range []string{
		`{"$ref":"#"}`,
		`{"allOf":[{"$ref":"#"}]}`,
		`{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"anyOf":[{"not":{"$ref":"#/$defs/a"}}]}},"properties":{"x":{"$ref":"#/$defs/a"}}}`,
		`{"$anchor":"top","if":{"$ref":"#top"}}`,
		`{"$id":"https://example.com/s","oneOf":[{"$ref":"https://example.com/s"}]}`,
		`{"dependentSchemas":{"a/b":{"$ref":"#/dependentSchemas/a~1b"}}}`,
		doubling,
	} {
		if _, err := schema.Parse([]byte(raw)); err == nil {
			t.Errorf("%.200s is taken", raw)
		}
	}
	for _, c := range []struct{ raw, value, bad string }{
		{`{"type":"object","properties":{"next":{"$ref":"#"}},"additionalProperties":false}`, `{"next":{"next":{}}}`, `{"next":{"x":1}}`},
		{`{"$defs":{"t":{"type":"array","items":{"anyOf":[{"$ref":"#/$defs/t"},{"type":"integer"}]}}},"$ref":"#/$defs/t"}`, `[1,[2,[]]]`, `["x"]`},
	} {
		s, err := schema.Parse([]byte(c.raw))
		if err != nil {
			t.Errorf("%s: %v", c.raw, err)
			continue
		}
		if err := s.Check([]byte(c.value)); err != nil {
			t.Errorf("%s: %v", c.value, err)
		}
		if err := s.Check([]byte(c.bad)); err == nil {
			t.Errorf("%s fits", c.bad)
		}
		deep := strings.Repeat(`{"next":`, 5000) + "{}" + strings.Repeat("}", 5000)
		_ = s.Check([]byte(deep)) // must come back
	}
}

// A misspelt type is the schema's fault, not that of the first value.
func TestATypeThatIsNone(t *testing.T) {
	for raw, want := range map[string]string{
		`{"type":"objekt"}`:                                     `/type: there is no type "objekt"; did you mean "object"?`,
		`{"type":["string","nul"]}`:                             `/type: there is no type "nul"; did you mean "null"?`,
		`{"properties":{"a/b":{"items":{"type":"int"}}}}`:       `/properties/a~1b/items/type: there is no type "int"`,
		`{"anyOf":[{"type":"string"},{"not":{"type":"text"}}]}`: `/anyOf/1/not/type: there is no type "text"`,
		`{"properties":{"type":{"const":{"type":"objekt"}}},"enum":[{"type":"x"}],"required":["type"],"default":{"type":"y"}}`: "",
		`{"properties":{"type":{"type":"string"}},"additionalProperties":false}`:                                               "",
	} {
		_, err := schema.Parse([]byte(raw))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %s", raw, err, want)
		}
	}
}
