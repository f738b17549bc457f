package script

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/internal/protocol"
	"github.com/laufwerk/laufwerk/internal/system/projectfs"
)

// What decides whether a bundle is made anew is seen from the requests for files: a remembered one needs none.
func TestBundlesAreRemembered(t *testing.T) {
	root := project(t, map[string]string{
		entry:                       `import { x } from "./x"; import y from "pkg"; export default () => x + y;`,
		"laufwerk/x.ts":             `export const x = 1;`,
		"node_modules/pkg/index.js": `export default 10;`,
	})
	r := testRunner(t)
	r.Bundles = filepath.Join(t.TempDir(), "home", "bundles")
	put := func(name, content string) func() {
		return func() {
			if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(name string) func() {
		return func() {
			if err := os.RemoveAll(filepath.Join(root, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	tear := func(how func(b []byte) []byte) func() {
		return func() {
			names, err := filepath.Glob(r.Bundles + "/*")
			if err != nil || len(names) != 1 {
				t.Fatalf("remembered: %v, %v", names, err)
			}
			b, err := os.ReadFile(names[0])
			if err == nil {
				err = os.WriteFile(names[0], how(b), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, step := range []struct {
		name   string
		change func()
		known  bool
		want   int
	}{
		{"first", nil, false, 11},
		{"again", nil, true, 11},
		{"an import changed", put("laufwerk/x.ts", `export const x = 2;`), false, 12},
		{"again", nil, true, 12},
		{"changed back", put("laufwerk/x.ts", `export const x = 1;`), false, 11},
		{"a file that wins", put("laufwerk/x", `export const x = 3;`), false, 13},
		{"that file gone", remove("laufwerk/x"), false, 11},
		{"a nearer package", put("laufwerk/node_modules", ""), true, 11},
		{"another file", put("laufwerk/unrelated.ts", ""), true, 11},
		{"cut", tear(func(b []byte) []byte { return b[:len(b)/2] }), false, 11},
		{"empty", tear(func([]byte) []byte { return nil }), false, 11},
		{"a wrong byte", tear(func(b []byte) []byte { b[len(b)/2] ^= 1; return b }), false, 11},
		{"again", nil, true, 11},
	} {
		if step.change != nil {
			step.change()
		}
		fs, err := projectfs.Open(root)
		if err != nil {
			t.Fatal(err)
		}
		known := r.bundleMemory(root, entry).recall(&fileServer{fs: fs})
		_ = fs.Close()
		if (known != nil) != step.known {
			t.Errorf("%s: known is %t", step.name, known != nil)
		}
		value, bundle, err := r.Evaluate(t.Context(), root, entry, EvalOptions{Call: true})
		if err != nil || string(value) != fmt.Sprint(step.want) {
			t.Errorf("%s: value = %s, %v", step.name, value, err)
		}
		plain := testRunner(t)
		_, made, err := plain.Evaluate(t.Context(), root, entry, EvalOptions{Call: true})
		if err != nil || bundle.Code != made.Code || bundle.Map != made.Map || bundle.Digest != made.Digest || bundle.SDK != made.SDK {
			t.Errorf("%s: the remembered bundle is another one: %v", step.name, err)
		}
	}
}

// Every module is asked for once, however many import it: to ask takes longer than to answer.
func TestModulesComeWithOneQuestion(t *testing.T) {
	root := project(t, map[string]string{
		entry:           `import { a } from "./a"; import { b } from "./lib/b.js"; import { c } from "./c"; export default a + b + c;`,
		"laufwerk/a.ts": `import { b } from "./lib/b"; export const a = b;`, "laufwerk/lib/b.ts": `export const b = 1;`, "laufwerk/c/index.ts": `export const c = 1;`,
	})
	r := testRunner(t)
	r.Bundles = t.TempDir()
	if value, _, err := r.Evaluate(t.Context(), root, entry, EvalOptions{}); err != nil || string(value) != "3" {
		t.Fatalf("%s, %v", value, err)
	}
	b, err := os.ReadFile(string(r.bundleMemory(root, entry)))
	if err != nil {
		t.Fatal(err)
	}
	var known rememberedBundle
	if err := json.Unmarshal(b[sha256.Size:], &known); err != nil {
		t.Fatal(err)
	}
	contents := map[string]int{}
	for _, s := range known.Exchanges {
		if s.Ask.Kind != "find" {
			t.Errorf("asked to %s %s", s.Ask.Kind, s.Ask.Path)
		}
		if s.Content != "" {
			contents[s.Answer.Real]++
		}
	}
	want := map[string]int{entry: 1, "laufwerk/a.ts": 1, "laufwerk/lib/b.ts": 1, "laufwerk/c/index.ts": 1}
	if len(known.Exchanges) != 5 || !maps.Equal(contents, want) {
		t.Errorf("%d questions, contents %v", len(known.Exchanges), contents)
	}
}

// Commands that only look use what is remembered, and add nothing.
func TestNothingIsAddedByThoseWhoOnlyRecall(t *testing.T) {
	root := project(t, map[string]string{entry: `export default 1;`})
	look := testRunner(t)
	look.Bundles, look.Recalls = filepath.Join(t.TempDir(), "bundles"), true
	evaluate := func(r *Runner) {
		t.Helper()
		if value, _, err := r.Evaluate(t.Context(), root, entry, EvalOptions{}); err != nil || string(value) != "1" {
			t.Errorf("%s, %v", value, err)
		}
	}
	evaluate(look)
	if _, err := os.Lstat(look.Bundles); !os.IsNotExist(err) {
		t.Errorf("something was written: %v", err)
	}
	adds := testRunner(t)
	adds.Bundles = look.Bundles
	evaluate(adds)
	before := mustStat(t, string(adds.bundleMemory(root, entry)))
	evaluate(look)
	if now := mustStat(t, string(look.bundleMemory(root, entry))); !os.SameFile(before, now) {
		t.Error("what was remembered was written again")
	}
}

func TestRememberedFailuresAreShownAlike(t *testing.T) {
	root := project(t, map[string]string{entry: "\nconst wrong = () => { throw new TypeError(\"broken\"); };\nexport default wrong();"})
	r := testRunner(t)
	r.Bundles = t.TempDir()
	_, _, first := r.Evaluate(t.Context(), root, entry, EvalOptions{})
	_, _, again := r.Evaluate(t.Context(), root, entry, EvalOptions{})
	if first == nil || again == nil || first.Error() != again.Error() || !strings.Contains(first.Error(), entry+":1:33: TypeError: broken") {
		t.Errorf("first %v\nagain %v", first, again)
	}
}

func TestOnlyOnesOwnBundlesAreRemembered(t *testing.T) {
	files := map[string]string{entry: `export default 1;`}
	root, clone := project(t, files), project(t, files)
	r := testRunner(t)
	r.Bundles = t.TempDir()
	if _, _, err := r.Evaluate(t.Context(), root, entry, EvalOptions{}); err != nil {
		t.Fatal(err)
	}
	other := testRunner(t)
	other.Bundles, other.Executable = r.Bundles, filepath.Join(t.TempDir(), "laufwerk")
	if err := os.WriteFile(other.Executable, []byte("another build"), 0o755); err != nil {
		t.Fatal(err)
	}
	overlaid := testRunner(t)
	overlaid.Bundles, overlaid.Overlay = r.Bundles, map[string][]byte{}
	for name, m := range map[string]bundleMemory{
		"of another project": r.bundleMemory(clone, entry), "of another entry": r.bundleMemory(root, "laufwerk/x.ts"),
		"of another binary": other.bundleMemory(root, entry), "with an overlay": overlaid.bundleMemory(root, entry), "nowhere": (&Runner{}).bundleMemory(root, entry),
	} {
		fs, err := projectfs.Open(root)
		if err != nil {
			t.Fatal(err)
		}
		if m.recall(&fileServer{fs: fs}) != nil {
			t.Errorf("%s: it is remembered", name)
		}
		_ = fs.Close()
	}
	if info, err := os.Stat(string(r.bundleMemory(root, entry))); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info, err)
	}
}

func TestProjectsAreForgotten(t *testing.T) {
	r := testRunner(t)
	r.Bundles = filepath.Join(t.TempDir(), "bundles")
	if err := ForgetOtherBundles(r.Bundles, nil); err != nil {
		t.Errorf("of nothing: %v", err)
	}
	files := map[string]string{entry: `export default 1;`}
	kept, gone := project(t, files), project(t, files)
	for _, root := range []string{kept, gone} {
		if _, _, err := r.Evaluate(t.Context(), root, entry, EvalOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := ForgetOtherBundles(r.Bundles, []string{kept, kept}); err != nil {
		t.Fatal(err)
	}
	names, err := os.ReadDir(r.Bundles)
	if err != nil || len(names) != 1 || filepath.Join(r.Bundles, names[0].Name()) != string(r.bundleMemory(kept, entry)) {
		t.Errorf("%v, %v", names, err)
	}
}

func TestTheMemoryIsBounded(t *testing.T) {
	dir := t.TempDir()
	for i := range maxRemembered + 5 {
		bundleMemory(filepath.Join(dir, fmt.Sprintf("%03d", i))).keep(nil, protocol.Bundle{Code: "x"})
		at := filepath.Join(dir, fmt.Sprintf("%03d", i))
		then := mustStat(t, at).ModTime().AddDate(0, 0, i-1000) // a file system may not tell one moment from the next
		if err := os.Chtimes(at, then, then); err != nil {
			t.Fatal(err)
		}
	}
	bundleMemory(filepath.Join(dir, "large")).keep(nil, protocol.Bundle{Code: strings.Repeat("x", maxRememberedBytes)})
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != maxRemembered || names[0].Name() != "005" {
		t.Errorf("%d are kept, first %v: %v", len(names), names[0], err)
	}
}

func mustStat(t *testing.T, path string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info
}
