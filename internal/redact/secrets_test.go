package redact

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const canary = `s3cr"et\ <&> ü` + "\n" + `tail`

func known() *Secrets {
	s := NewSecrets()
	s.Add(canary, "eyJhbGciOiJub25lIn0.payload.signature", "short")
	return s
}

func TestSecretsInText(t *testing.T) {
	s := known()
	quoted, _ := json.Marshal(canary)
	twice, _ := json.Marshal(string(quoted))
	for _, text := range []string{
		canary, string(quoted), string(twice), url.QueryEscape(canary), "Bearer eyJhbGciOiJub25lIn0.payload.signature",
		`{"token":"eyJhbGciOiJub25lIn0.payload.signature"}`,
	} {
		got := s.String("before " + text + " after")
		if !strings.Contains(got, Replacement) || !strings.HasPrefix(got, "before ") || !strings.HasSuffix(got, " after") {
			t.Errorf("%q became %q", text, got)
		}
		if strings.Contains(got, "s3cr") || strings.Contains(got, "payload") {
			t.Errorf("left in %q", got)
		}
	}
	if got := s.String("short eyJhbGciOiJub25lIn0.payload"); got != "short eyJhbGciOiJub25lIn0.payload" {
		t.Errorf("what is no secret became %q", got)
	}
	var none *Secrets
	none.Add("12345678")
	if none.String("12345678") != "12345678" || string(none.JSON([]byte(`"12345678"`))) != `"12345678"` {
		t.Error("the nil value replaces something")
	}
}

func TestSecretsInJSON(t *testing.T) {
	s := known()
	for doc, want := range map[string]string{
		`{"a":"x eyJhbGciOiJub25lIn0.payload.signature y","n":1.50}`: `{"a":"x [secret] y","n":1.50}`,
		`{"eyJhbGciOiJub25lIn0.payload.signature": [ true ]}`:        `{"[secret]": [ true ]}`,
		`"\u0065yJhbGciOiJub25lIn0\u002epayload.signature"`:          `"[secret]"`,
		`{"a":"nothing here","b":"\u00e9"}`:                          `{"a":"nothing here","b":"\u00e9"}`,
		`"cut off eyJhbGciOiJub25lIn0.payload.signature`:             `"cut off [secret]`,
		`"{\"token\":\"eyJhbGciOiJub25lIn0.payload.signature\"}"`:    `"{\"token\":\"[secret]\"}"`,
	} {
		if got := string(s.JSON([]byte(doc))); got != want {
			t.Errorf("%s became %s, want %s", doc, got, want)
		}
	}
	doc, _ := json.Marshal(map[string]any{canary: []any{canary, 1, nil}})
	got := s.JSON(doc)
	var v any
	if err := json.Unmarshal(got, &v); err != nil || strings.Contains(fmt.Sprint(v), "s3cr") {
		t.Errorf("%s: %v", got, err)
	}
}

// Whatever is fed in whatever pieces, the result is that of the whole, and nothing of a secret gets out before.
func TestSecretsInAStream(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secrets := rapid.SliceOfN(rapid.StringMatching(`[ab]{8,12}`), 1, 3).Draw(t, "secrets")
		text := rapid.StringMatching(`([ab]{0,20}c?){0,6}`).Draw(t, "text")
		s := NewSecrets()
		s.Add(secrets...)
		stream := s.Stream()
		var out strings.Builder
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			out.WriteString(stream.Feed(rest[:n]))
			rest = rest[n:]
		}
		out.WriteString(stream.Rest())
		for _, secret := range secrets {
			if strings.Contains(out.String(), secret) {
				t.Fatalf("%q is in %q", secret, out.String())
			}
		}
		if stripped := strings.NewReplacer(secrets[0], "").Replace(text); stripped == text && len(secrets) == 1 && out.String() != text {
			t.Fatalf("%q became %q", text, out.String())
		}
	})
}
