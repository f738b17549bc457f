package local_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/journal"
)

// built is laufwerk with the version of a release, which its journals name.
func built(t *testing.T, dir, version string) string {
	t.Helper()
	path := filepath.Join(dir, version)
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-X github.com/laufwerk/laufwerk/internal/build.release="+version, "-o", path, "github.com/laufwerk/laufwerk/cmd/laufwerk")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// Another binary takes the place of the one that started a run, as package managers do it: by a rename over a file that is
// being executed. Whatever the run was doing then, it comes to its end and nothing is made twice.
func TestUpgradeWithLiveRuns(t *testing.T) {
	bin := t.TempDir()
	older, newer := built(t, bin, "v0.1.0"), built(t, bin, "v0.2.0")
	for name, c := range map[string]func(w *e2e.Machine, upgrade func()){
		"it waits for a person": func(w *e2e.Machine, upgrade func()) {
			w.MustRun([]int{8}, "run", "job", "--no-input")
			upgrade()
		},
		"it works, and its worker goes on": func(w *e2e.Machine, upgrade func()) {
			w.Mark(e2e.HoldFile)
			worker := w.Start(nil, "run", "job", "--no-input")
			w.AwaitRan("begin", 1)
			upgrade()
			if r := w.OnlyRun(); r.State != "running" {
				w.T.Errorf("the new one says that the run is %s", r.State)
			}
			w.Unmark(e2e.HoldFile)
			if code, out, errs := worker.Wait(); code != 8 { // whatever it starts now is the new program
				w.T.Fatalf("exit %d\n%s%s", code, out, errs)
			}
		},
		"its worker was killed, and its turn goes on": func(w *e2e.Machine, upgrade func()) {
			w.Mark(e2e.HoldFile)
			worker := w.Start(nil, "run", "job", "--no-input")
			w.AwaitRan("begin", 1)
			worker.Kill()
			upgrade()
			second := w.Start(nil, "resume", w.OnlyRun().ID, "--no-input")
			e2e.Eventually(w.T, "it is joined", func() bool { return w.HasAttached(w.OnlyRun().ID) })
			w.Unmark(e2e.HoldFile)
			if code, out, errs := second.Wait(); code != 8 {
				w.T.Fatalf("exit %d\n%s%s", code, out, errs)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := e2e.NewMachine(t)
			w.Program = filepath.Join(w.Dir, "laufwerk")
			install := func(from string) {
				if err := os.Link(from, w.Program+".new"); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(w.Program+".new", w.Program); err != nil {
					t.Fatal(err)
				}
			}
			install(older)
			c(w, func() {
				install(newer)
				if said := w.MustRun([]int{0}, "version"); !strings.Contains(said, "v0.2.0") {
					t.Fatalf("it is still %s", said)
				}
			})
			w.FinishAndCheck(1)
			var builds []string
			for _, r := range w.JournalRecords() {
				if r.Type == journal.Begin || r.Type == journal.Resumed {
					builds = append(builds, r.Build)
				}
			}
			if builds = slices.Compact(builds); !slices.Equal(builds, []string{"v0.1.0", "v0.2.0"}) {
				t.Errorf("the journal names %q", builds)
			}
		})
	}
}
