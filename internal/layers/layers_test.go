// Package layers holds the arrows between the module's packages: a table gives each of them its rank, and imports point down
// only. The standard library's go/build/deps_test.go is the model. CONTRIBUTING's map is made from the same table.
package layers

import (
	"bytes"
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module = "github.com/laufwerk/laufwerk/"
	root   = "../.."
)

// importing is one import of a file that is no test.
type importing struct{ file, importer, imported string }

// sources reads the whole tree, whatever platform and tags a file is for.
func sources(t *testing.T) (packages []string, imports []importing) {
	t.Helper()
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); rel != "." && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata" || base == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		pkg := path.Dir(filepath.ToSlash(rel))
		packages = append(packages, pkg)
		if strings.HasSuffix(name, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, s := range f.Imports {
			p, err := strconv.Unquote(s.Path.Value)
			if err != nil {
				return err
			}
			imports = append(imports, importing{rel, pkg, strings.TrimPrefix(p, module)})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(packages)
	return slices.Compact(packages), imports
}

// fromRoot is a path of the table, seen from the module's root.
func fromRoot(p string) string {
	if below, ok := strings.CutPrefix(p, "/"); ok {
		return below
	}
	return "internal/" + p
}

// ranks are those of the packages in the table, from 1.
func ranks(t *testing.T) map[string]int {
	t.Helper()
	out := map[string]int{}
	n := 0
	for _, l := range table {
		for _, row := range l.ranks {
			n++
			for _, e := range row {
				p := fromRoot(e.path)
				if out[p] != 0 {
					t.Errorf("%s has two lines in the table", p)
				}
				if e.purpose == "" {
					t.Errorf("the table does not say what %s is for", p)
				}
				out[p] = n
			}
		}
	}
	return out
}

func TestImportsPointDown(t *testing.T) {
	packages, imports := sources(t)
	rank := ranks(t)
	for _, p := range packages {
		if rank[p] == 0 {
			t.Errorf("%s is not in the table (internal/layers/table_test.go)", p)
		}
	}
	for p := range rank {
		if _, found := slices.BinarySearch(packages, p); !found {
			t.Errorf("the table has a line for %s, and there is no such package", p)
		}
	}
	for _, i := range imports {
		if from, to := rank[i.importer], rank[i.imported]; to != 0 && from != 0 && to >= from {
			t.Errorf("%s imports %s, which does not stand below it (rank %d, and it has %d)", i.file, i.imported, to, from)
		}
	}
}

func TestImportsKeepToTheRules(t *testing.T) {
	_, imports := sources(t)
	for _, r := range rules {
		for _, i := range imports {
			if within(i.imported, r.imported) && !within(i.importer, r.imported) && !slices.ContainsFunc(r.importers, func(p string) bool { return within(i.importer, p) }) {
				t.Errorf("%s imports %s: %s", i.file, i.imported, r.why)
			}
		}
	}
}

// TestPackagesAreDeep holds that a package with one importer and less than a hundred lines is part of that importer.
func TestPackagesAreDeep(t *testing.T) {
	packages, imports := sources(t)
	importers := map[string]map[string]bool{}
	for _, i := range imports {
		if importers[i.imported] == nil {
			importers[i.imported] = map[string]bool{}
		}
		importers[i.imported][i.importer] = true
	}
	for _, p := range packages {
		if len(importers[p]) != 1 || !strings.HasPrefix(p, "internal/") || importers[p]["internal/app"] { // what app lists has a folder each
			continue
		}
		if n := lines(t, p); n < 100 {
			t.Errorf("%s has %d lines and one importer, %v: make it a part of that", p, n, slices.Collect(maps.Keys(importers[p])))
		}
	}
}

// lines are those of a package without its tests.
func lines(t *testing.T, pkg string) int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pkg, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		n += bytes.Count(b, []byte("\n"))
	}
	return n
}

// within says whether a package is another one or below it; with a slash at its end, below it only.
func within(p, above string) bool {
	return p == above || strings.HasPrefix(p, strings.TrimSuffix(above, "/")+"/")
}

var update = flag.Bool("update", false, "write the map into CONTRIBUTING.md")

// TestMapIsCurrent holds that the map in CONTRIBUTING.md is the table. make update-layers rewrites it.
func TestMapIsCurrent(t *testing.T) {
	name := filepath.Join(root, "CONTRIBUTING.md")
	old, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- layers: make update-layers -->\n", "<!-- end of layers -->\n"
	before, rest, ok := strings.Cut(string(old), begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatalf("CONTRIBUTING.md has no part between %q and %q", begin, end)
	}
	now := before + begin + chart() + end + after
	if now == string(old) {
		return
	}
	if !*update {
		t.Fatal("the map in CONTRIBUTING.md is not the table: make update-layers")
	}
	if err := os.WriteFile(name, []byte(now), 0o644); err != nil {
		t.Fatal(err)
	}
}

// chart is the table for readers, from the top down.
func chart() string {
	var b strings.Builder
	for _, l := range slices.Backward(table) {
		fmt.Fprintf(&b, "\n**%s**\n\n| package | what it is for |\n|---|---|\n", l.name)
		for _, row := range slices.Backward(l.ranks) {
			for _, e := range row {
				fmt.Fprintf(&b, "| `%s` | %s |\n", strings.TrimPrefix(e.path, "/"), e.purpose)
			}
		}
	}
	return b.String() + "\n"
}
