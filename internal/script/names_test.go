package script

import "testing"

func TestNamesOfImports(t *testing.T) {
	for what, want := range map[string]struct{ scheme, pkg bool }{
		"https://x/y": {true, false}, "data:text/plain,": {true, false}, "a+b.c-1:x": {true, false}, "1a:x": {false, false}, ":x": {false, false},
		"zod": {false, true}, "zod/v4": {false, true}, "@scope/name": {false, true}, "@scope/name/sub": {false, true}, "_a~b": {false, true},
		"": {false, false}, ".hidden": {false, false}, "@scope": {false, false}, "@/name": {false, false}, "@scope/": {false, false},
		"@scope/.x": {false, false}, "a b": {false, false}, "ä": {false, false}, "#internal": {false, false}, "-x": {false, true},
	} {
		if got := hasScheme(what); got != want.scheme {
			t.Errorf("hasScheme(%q) = %t", what, got)
		}
		if got := isPackageName(what); got != want.pkg {
			t.Errorf("namesPackage(%q) = %t", what, got)
		}
	}
}

func TestFramesOfTheEngine(t *testing.T) {
	for text, want := range map[string]struct {
		name      string
		line, col int
		ok        bool
	}{
		"    at run (bundle.js:12:5)":       {"run", 12, 5, true},
		"    at bundle.js:3:1":              {"", 3, 1, true},
		"    at bundle.js:3":                {"", 3, 1, true},
		"    at <anonymous> (bundle.js:7)":  {"<anonymous>", 7, 1, true},
		"    at a (b) (bundle.js:7:2)":      {"a (b)", 7, 2, true},
		"    at deliver (<input>:1:2)":      {},
		"    at next (native)":              {},
		"    at xbundle.js:1:2":             {},
		"    at f (bundle.js:)":             {},
		"Error: at bundle.js:1:1 something": {},
		"":                                  {},
	} {
		name, line, col, ok := bundleFrame(text)
		if ok != want.ok || ok && (name != want.name || line != want.line || col != want.col) {
			t.Errorf("%q: %q %d:%d %t", text, name, line, col, ok)
		}
	}
}
