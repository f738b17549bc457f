package environment

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/internal/failure"
)

func TestResolve(t *testing.T) {
	env, err := Parse("env", json.RawMessage(`{"B":{"fromHost":"X"},"A":"literal","C":""}`), RefusedNames{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := env.Resolve(map[string]string{"X": "x=y", "Z": "z"})
	if err != nil || !slices.Equal(got, []string{"A=literal", "B=x=y", "C="}) {
		t.Errorf("%q %v", got, err)
	}
	if _, err := env.Resolve(nil); !failure.Is(err, failure.NotReady) || !strings.Contains(err.Error(), "X") {
		t.Errorf("%v", err)
	}
}

func TestRedactKeepsNoLiteralAndStaysComparable(t *testing.T) {
	redact := func(s string) string {
		b, err := Redact(json.RawMessage(s))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	a := redact(`{"id":"x","env":{"A":"hunter2","B":{"fromHost":"X"}}}`)
	if strings.Contains(a, "hunter2") || !strings.Contains(a, `"B":{"fromHost":"X"}`) || !strings.Contains(a, `"id":"x"`) {
		t.Error(a)
	}
	if a != redact(`{"env":{"B":{"fromHost":"X"},"A":"hunter2"},"id":"x"}`) || a == redact(`{"id":"x","env":{"A":"hunter3","B":{"fromHost":"X"}}}`) {
		t.Error("what is kept cannot be compared")
	}
	if got := redact(a); got != a {
		t.Errorf("redacting twice changes it: %s", got)
	}
}
