//go:build crashpoints

package app_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestInitKilledAnywhereConverges kills init at each of its points: what is there is a whole project or none, and the same
// init once more finishes it and leaves nothing else.
func TestInitKilledAnywhereConverges(t *testing.T) {
	t.Parallel()
	example := []string{"init", "--execution", "local", "--example", "issue-to-fix"}
	for name, c := range map[string]struct {
		before func(w *world)
		args   []string
	}{
		"a new project": {func(w *world) { w.removed("laufwerk") }, example},
		"a directory with other things": {func(w *world) {
			w.removed("laufwerk")
			w.write(filepath.Join(w.project, "laufwerk/notes"), "mine")
		}, example},
		"one more target and the example": {func(*world) {}, append(example[:len(example):len(example)], "--target", "second")},
		"by force": {func(w *world) {
			w.write(filepath.Join(w.project, "laufwerk/laufwerk.config.ts"), "broken")
		}, append(example[:len(example):len(example)], "--force")},
	} {
		t.Run(name, func(t *testing.T) {
			whole := newWorld(t)
			c.before(whole)
			log := filepath.Join(whole.dir, "points")
			if code, _, errs := whole.laufwerk([]string{"LAUFWERK_CRASH_LOG=" + log}, c.args...); code != 0 {
				t.Fatal(errs)
			}
			want := whole.tree()
			reached, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			points := strings.Fields(string(reached))
			if len(points) < 3 {
				t.Fatalf("only %v were reached", points)
			}
			for _, point := range points {
				if !strings.HasPrefix(point, "scaffold/") {
					continue
				}
				w := newWorld(t)
				c.before(w)
				if code, _, errs := w.laufwerk([]string{"LAUFWERK_CRASH=" + point}, c.args...); code != 137 {
					t.Fatalf("%s: exit %d\n%s", point, code, errs)
				}
				if _, there := w.tree()["laufwerk/laufwerk.config.ts"]; there && name != "by force" {
					w.must([]int{0}, "script", "laufwerk/laufwerk.config.ts")
				}
				if code, _, errs := w.laufwerk(nil, c.args...); code != 0 {
					t.Errorf("%s: once more: exit %d\n%s", point, code, errs)
				}
				if got := w.tree(); !maps.Equal(got, want) {
					t.Errorf("%s: it has %v, want %v", point, paths(got), paths(want))
				}
			}
		})
	}
}

func (w *world) removed(name string) {
	w.t.Helper()
	if err := os.RemoveAll(filepath.Join(w.project, name)); err != nil {
		w.t.Fatal(err)
	}
}

// tree is the content of every file of the project; the agent's path in it is the same in every world.
func (w *world) tree() map[string]string {
	w.t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(w.project, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		rel, _ := filepath.Rel(w.project, path)
		out[rel] = strings.ReplaceAll(string(content), w.dir, "DIR")
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

func paths(tree map[string]string) []string {
	var out []string
	for p := range tree {
		out = append(out, p)
	}
	return out
}
