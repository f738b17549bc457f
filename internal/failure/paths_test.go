package failure

import (
	"encoding/json"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Any names, also those that JSON has no string for, are the same after JSON.
func TestPathsThroughJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var paths []string
		for _, b := range rapid.SliceOfN(rapid.SliceOfN(rapid.SampledFrom([]byte("a/\xff\xc3\xa4\x00 ")), 0, 6), 0, 4).Draw(t, "paths") {
			paths = append(paths, string(b))
		}
		doc, err := json.Marshal(map[string]any{"paths": paths, "pathBase64": PathBase64(paths)})
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ Paths, PathBase64 []string }
		if err := json.Unmarshal(doc, &got); err != nil {
			t.Fatal(err)
		}
		RestorePaths(got.Paths, got.PathBase64)
		if !slices.Equal(got.Paths, paths) {
			t.Fatalf("%q became %q", paths, got.Paths)
		}
		for _, p := range paths {
			var c Condition
			doc, err := json.Marshal(Condition{ID: p, Message: "m"})
			if err != nil || json.Unmarshal(doc, &c) != nil || c != (Condition{ID: p, Message: "m"}) {
				t.Fatalf("%q became %+v in %s: %v", p, c, doc, err)
			}
		}
	})
	if PathBase64([]string{"a", "ä"}) != nil {
		t.Error("paths that are UTF-8 need nothing beside them")
	}
	if got, _ := json.Marshal(Condition{ID: "a", Message: "m"}); string(got) != `{"id":"a","message":"m"}` {
		t.Errorf("%s", got)
	}
}
