package sessiondir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/laufwerk/laufwerk/internal/resource"
)

// Two clean-ups of one session do not fail each other.
func TestRemovedByTwoAtOnce(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	for i := range 15 {
		dir, id := filepath.Join(base, fmt.Sprint(i)), Identity{Claim: "c", Name: "n", Owner: "o", Mark: "m"}
		var folders [2]*Folder
		for j := range folders {
			f, err := OpenOrCreateParent(dir, id)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			folders[j] = f
		}
		if _, err := folders[0].Make(t.Context(), nil, Home, Ops); err != nil {
			t.Fatal(err)
		}
		for j := range 10 {
			if err := os.MkdirAll(filepath.Join(dir, Home, fmt.Sprint(j), "x"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		var g sync.WaitGroup
		var errs [2]error
		for j, f := range folders {
			g.Go(func() { errs[j] = f.Remove(t.Context()) })
		}
		g.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		if presence, err := folders[0].Identify(); presence != resource.Absent {
			t.Fatalf("%d: %v %v", i, presence, err)
		}
	}
}
