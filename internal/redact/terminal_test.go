package redact

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestTerminalWritesOutWhatActsOrHides(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"plain", "a file.txt", "a file.txt"},
		{"newline and tab stay", "a\n\tb", "a\n\tb"},
		{"wide and combined", "日本 café 🙂", "日本 café 🙂"},
		{"emoji presentation stays", "☂️", "☂️"},
		{"escape sequence", "\x1b[2Jgone", `\x1b[2Jgone`},
		{"carriage return", "safe\revil", `safe\revil`},
		{"nul, bell, delete", "\x00\a\x7f", `\x00\x07\x7f`},
		{"C1 control sequence introducer", "\u009b2J", `\u009b2J`},
		{"right-to-left override", "a\u202egpj.exe", `a\u202egpj.exe`},
		{"isolates and marks", "\u2066\u2069\u200f\u061c", `\u2066\u2069\u200f\u061c`},
		{"zero width", "a\u200bb\u200dc\ufeff\u2060", `a\u200bb\u200dc\ufeff\u2060`},
		{"tags", "x\U000e0041\U000e007f", `x\U000e0041\U000e007f`},
		{"variation selectors that smuggle", "x\ufe00\U000e0100", `x\ufe00\U000e0100`},
		{"fillers", "\u3164\u115f", `\u3164\u115f`},
		{"separators", "a\u2028b\u2029", `a\u2028b\u2029`},
		{"invalid bytes", "a\xffb\xc3", `a\xffb\xc3`},
		{"a raw C1 byte", "\x9b2J", `\x9b2J`},
		{"a real replacement character stays", "\ufffd", "\ufffd"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Terminal(c.in); got != c.want {
				t.Errorf("Terminal(%q) = %q, want %q", c.in, got, c.want)
			}
		})
	}
}

func TestLineKeepsANameOnOneLine(t *testing.T) {
	if got, want := Line("a\nb\tc"), `a\nb\tc`; got != want {
		t.Errorf("Line = %q, want %q", got, want)
	}
}

// forbidden is written down apart from Unsafe, from the ranges that the Unicode standard gives for each class.
func forbidden(r rune) bool {
	in := func(lo, hi rune) bool { return lo <= r && r <= hi }
	return in(0, 0x1f) || in(0x7f, 0x9f) || // C0, DEL, C1
		r == 0x61c || in(0x200e, 0x200f) || in(0x202a, 0x202e) || in(0x2066, 0x2069) || // bidirectional controls
		in(0x200b, 0x200d) || in(0x2060, 0x2064) || r == 0xfeff || r == 0xad || // zero width
		in(0xe0000, 0xe0fff) || in(0x2028, 0x2029)
}

func TestNothingForbiddenComesThrough(t *testing.T) {
	for r := rune(0); r <= utf8.MaxRune; r++ {
		for _, out := range Line(string(r)) {
			if forbidden(out) {
				t.Fatalf("Line(%U) lets %U through", r, out)
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		in := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) + rapid.String().Draw(t, "text")
		for _, f := range []func(string) string{Terminal, Line} {
			out := f(in)
			if !utf8.ValidString(out) {
				t.Fatalf("%q is not UTF-8", out)
			}
			if strings.ContainsFunc(strings.NewReplacer("\n", "", "\t", "").Replace(out), forbidden) {
				t.Fatalf("%q came out as %q", in, out)
			}
			if f(out) != out {
				t.Fatalf("%q is not stable", out)
			}
		}
		if strings.ContainsAny(Line(in), "\n\t") {
			t.Fatalf("%q breaks the line", Line(in))
		}
	})
}

func TestJSONKeepsItsValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.StringOf(rapid.OneOf(rapid.Rune(), rapid.SampledFrom([]rune{0x7f, 0x9b, 0x202e, 0x200b, 0xe0041}))).Draw(t, "text")
		doc, err := json.Marshal(map[string]string{"text": in})
		if err != nil {
			t.Fatal(err)
		}
		safe := JSON(doc)
		if strings.ContainsFunc(string(safe), forbidden) {
			t.Fatalf("%q lets something through", safe)
		}
		var want, got map[string]string
		if err := json.Unmarshal(doc, &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(safe, &got); err != nil {
			t.Fatalf("%s: %v", safe, err)
		}
		if got["text"] != want["text"] {
			t.Fatalf("%q became %q", want["text"], got["text"])
		}
	})
}
