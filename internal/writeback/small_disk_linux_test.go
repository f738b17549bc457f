package writeback

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/laufwerk/laufwerk/internal/failure"
)

func mountTmpfs(t *testing.T, at, size string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a small file system")
	}
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, "mode=0755,size="+size); err != nil {
		t.Skipf("cannot mount a small file system: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
}

func TestFullDisk(t *testing.T) {
	big := strings.Repeat("x", 300<<10)
	base := tree{"a": file("1"), "b": file("keep")}
	for size, frozen := range map[string]tree{
		"64k": {"a": file("2"), "b": file(big)},
		"1m":  {"a": file("2"), "b": file(big), "c": file(big + "c"), "d": file(big + "d"), "e": file(big + "e")},
	} {
		t.Run(size, func(t *testing.T) {
			at := t.TempDir()
			mountTmpfs(t, filepath.Join(at, "source"), size)
			w := newSourceFixtureIn(t, at, base, frozen, base)
			err := w.run()
			if err == nil || !strings.Contains(err.Error(), "no space") || !strings.Contains(err.Error(), "nothing was changed") {
				t.Errorf("got %v", err)
			}
			w.holds(base)
			if pend := must(Pending(w.req.Dir)); pend != nil {
				t.Errorf("pending: %v", pend.doc.State)
			}
		})
	}
	t.Run("the run's folder", func(t *testing.T) {
		at := t.TempDir()
		mountTmpfs(t, filepath.Join(at, "run"), "64k")
		base := tree{"a": file(big)}
		w := newSourceFixtureIn(t, at, base, tree{"a": file("2")}, base)
		if err := w.run(); err == nil || !strings.Contains(err.Error(), "no space") {
			t.Errorf("got %v", err)
		}
		w.holds(base)
	})
}

func TestMountInTheSource(t *testing.T) {
	base := tree{"a": file("1"), "m": dir()}
	w := newSourceFixture(t, base, base.with(tree{"a": file("2"), "m/x": file("2")}), base)
	mountTmpfs(t, w.path("m"), "64k")
	w.fails(w.run(), failure.WriteBackRefused, map[string]string{"m/x": "mounted"})
	w.holds(base)
}
