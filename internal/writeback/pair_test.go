package writeback

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system/safefs"
	"github.com/laufwerk/laufwerk/internal/workspace"
)

// copied opens a real copy of a source, lets an agent work on it, and freezes what it did.
func copied(t *testing.T, source tree, agent func(dir string)) *sourceFixture {
	t.Helper()
	ctx, at := context.Background(), fast(t)
	now := func() time.Time { return time.Unix(1_700_000_000, 0) }
	src, ws := filepath.Join(at, "source"), filepath.Join(at, "ws")
	if err := os.Mkdir(src, 0o755); err != nil {
		t.Fatal(err)
	}
	source.make(t, src)
	o, err := workspace.Copy(ctx, workspace.CopyRequest{Source: src, Dest: ws})
	if err != nil {
		t.Fatal(err)
	}
	agent(ws)
	root := must(safefs.OpenRoot(ws))
	defer root.Close()
	f, err := workspace.MakeFreeze(ctx, workspace.FreezeRequest{Root: root, Base: o.Base, Rules: o.Rules, Source: o.Source, SourceRoot: o.Root, Dir: filepath.Join(at, "freezes"), Now: now})
	if err != nil {
		t.Fatal(err)
	}
	if f, err = workspace.LoadFreeze(f.Dir); err != nil {
		t.Fatal(err)
	}
	return &sourceFixture{TB: t, source: src, req: Request{Freeze: f, Dir: filepath.Join(at, "run"), Approved: true, MaxFiles: 1000, MaxBytes: 1 << 30, Now: now}}
}

// From copy to freeze to write-back, by the real parts.
func TestCopyFreezeWriteBack(t *testing.T) {
	source := union(allBase, tree{"a\xff": file("1"), "mode": file("1").as(0o711), "sock.d/empty": dir()})
	frozen := union(allFrozen, tree{"a\xff": file("2"), "mode": file("2").as(0o711)})
	w := copied(t, source, func(ws string) {
		for p := range source.full() {
			if err := os.RemoveAll(filepath.Join(ws, p)); err != nil {
				t.Fatal(err)
			}
		}
		frozen.make(t, ws)
	})
	if err := w.run(); err != nil {
		t.Fatal(err, failure.As(err).Conditions)
	}
	w.holds(frozen)
}

// Case C38 and its relatives: what an agent may leave in its workspace.
func TestHostileWorkspace(t *testing.T) {
	source := tree{"f": file("1"), "x/passwd": file("1")}
	w := copied(t, source, func(ws string) {
		for _, err := range []error{
			os.RemoveAll(filepath.Join(ws, "x")), os.Symlink("/etc", filepath.Join(ws, "x")),
			unix.Mkfifo(filepath.Join(ws, "pipe"), 0o644), os.Symlink("../../up", filepath.Join(ws, "up")),
			os.MkdirAll(filepath.Join(ws, ".GIT"), 0o755), os.WriteFile(filepath.Join(ws, ".GIT/config"), []byte("[core]\nfsmonitor=evil\n"), 0o644),
			os.MkdirAll(filepath.Join(ws, "laufwerk"), 0o755), os.WriteFile(filepath.Join(ws, "laufwerk/laufwerk.config.ts"), nil, 0o644),
			os.WriteFile(filepath.Join(ws, "line\nbreak"), nil, 0o644),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	w.fails(w.run(), failure.WriteBackRefused, map[string]string{
		"x": "absolute", "pipe": "fifo", "up": "out of the source", ".GIT": "git directory", ".GIT/config": "git directory",
		"laufwerk": "laufwerk project", "laufwerk/laufwerk.config.ts": "laufwerk project",
	})
	w.holds(source)
}
