//go:build crashpoints

package local_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/e2e"
)

// TestInitKilledAnywhereConverges kills init at each of its points: what is there is a whole project or none, and the same
// init once more finishes it and leaves nothing else.
func TestInitKilledAnywhereConverges(t *testing.T) {
	t.Parallel()
	example := []string{"init", "--execution", "local", "--example", "issue-to-fix"}
	for name, c := range map[string]struct {
		before func(w *e2e.Machine)
		args   []string
	}{
		"a new project": {func(w *e2e.Machine) { removeFile(w, "laufwerk") }, example},
		"a directory with other things": {func(w *e2e.Machine) {
			removeFile(w, "laufwerk")
			w.WriteFile(filepath.Join(w.Project, "laufwerk/notes"), "mine")
		}, example},
		"one more target and the example": {func(*e2e.Machine) {}, append(example[:len(example):len(example)], "--target", "second")},
		"by force": {func(w *e2e.Machine) {
			w.WriteFile(filepath.Join(w.Project, "laufwerk/laufwerk.config.ts"), "broken")
		}, append(example[:len(example):len(example)], "--force")},
	} {
		t.Run(name, func(t *testing.T) {
			whole := e2e.NewMachine(t)
			c.before(whole)
			log := filepath.Join(whole.Dir, "points")
			if code, _, errs := whole.Run([]string{"LAUFWERK_CRASH_LOG=" + log}, c.args...); code != 0 {
				t.Fatal(errs)
			}
			want := projectTree(whole)
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
				w := e2e.NewMachine(t)
				c.before(w)
				if code, _, errs := w.Run([]string{"LAUFWERK_CRASH=" + point}, c.args...); code != 137 {
					t.Fatalf("%s: exit %d\n%s", point, code, errs)
				}
				if _, there := projectTree(w)["laufwerk/laufwerk.config.ts"]; there && name != "by force" {
					w.MustRun([]int{0}, "script", "laufwerk/laufwerk.config.ts")
				}
				if code, _, errs := w.Run(nil, c.args...); code != 0 {
					t.Errorf("%s: once more: exit %d\n%s", point, code, errs)
				}
				if got := projectTree(w); !maps.Equal(got, want) {
					t.Errorf("%s: it has %v, want %v", point, paths(got), paths(want))
				}
			}
		})
	}
}

func removeFile(w *e2e.Machine, name string) {
	w.T.Helper()
	if err := os.RemoveAll(filepath.Join(w.Project, name)); err != nil {
		w.T.Fatal(err)
	}
}

// projectTree is the content of every file of the project; the agent's path in it is the same in every machine.
func projectTree(w *e2e.Machine) map[string]string {
	w.T.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(w.Project, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		rel, _ := filepath.Rel(w.Project, path)
		out[rel] = strings.ReplaceAll(string(content), w.Dir, "DIR")
		return err
	})
	if err != nil {
		w.T.Fatal(err)
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
