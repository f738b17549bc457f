package writeback

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/workspace"
)

// node is one path of a tree: a file's mode and bytes, a link's target, or a directory.
type node struct {
	kind workspace.Type
	mode os.FileMode
	data string
}

func file(data string) node          { return node{workspace.File, 0o644, data} }
func exe(data string) node           { return node{workspace.File, 0o755, data} }
func link(target string) node        { return node{workspace.Symlink, 0, target} }
func dir() node                      { return node{workspace.Dir, 0o755, ""} }
func (n node) as(m os.FileMode) node { n.mode = m; return n }

// tree is what a directory holds. Directories that lead to a path are made without being named.
type tree map[string]node

// full names the directories that lead to the paths.
func (t tree) full() tree {
	out := tree{}
	maps.Copy(out, t)
	for p := range t {
		for _, d := range ancestors(p) {
			if _, ok := out[d]; !ok {
				out[d] = dir()
			}
		}
	}
	return out
}

// with is t with some paths set; a node without kind takes the path away, with all that is below it.
func (t tree) with(changes tree) tree {
	out := tree{}
	maps.Copy(out, t)
	for p, n := range changes {
		for q := range t {
			if within(q, p) && (n.kind != workspace.Dir || q == p) {
				delete(out, q)
			}
		}
		if n.kind != "" {
			out[p] = n
		}
	}
	for p, n := range changes {
		if n.kind != "" {
			out[p] = n
		}
	}
	return out
}

func gone() node { return node{} }

func (t tree) make(tb testing.TB, root string) {
	tb.Helper()
	for _, p := range slices.Sorted(maps.Keys(t.full())) {
		n, at := t.full()[p], filepath.Join(root, p)
		var err error
		switch n.kind {
		case workspace.Dir:
			if err = os.Mkdir(at, 0o755); err == nil {
				err = os.Chmod(at, n.mode)
			}
		case workspace.Symlink:
			err = os.Symlink(n.data, at)
		default:
			if err = os.WriteFile(at, []byte(n.data), 0o600); err == nil {
				err = os.Chmod(at, n.mode)
			}
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// readTree reads a directory back.
func readTree(tb testing.TB, root string) tree {
	tb.Helper()
	t := tree{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == root {
			return err
		}
		rel, _ := filepath.Rel(root, p)
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm() | info.Mode()&(os.ModeSetuid|os.ModeSetgid|os.ModeSticky)
		switch {
		case d.IsDir():
			t[rel] = node{workspace.Dir, mode, ""}
		case info.Mode()&os.ModeSymlink != 0:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			t[rel] = link(target)
		case info.Mode().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			t[rel] = node{workspace.File, mode, string(b)}
		default:
			t[rel] = node{workspace.Other, mode, info.Mode().Type().String()}
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

func same(tb testing.TB, what string, got, want tree) {
	tb.Helper()
	want = want.full()
	for _, p := range slices.Sorted(maps.Keys(want)) {
		if got[p] != want[p] {
			tb.Errorf("%s: %q holds %v, want %v", what, p, got[p], want[p])
		}
	}
	for _, p := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[p]; !ok {
			tb.Errorf("%s: %q is there: %v", what, p, got[p])
		}
	}
}

func (n node) entry(path string) *workspace.Entry {
	e := &workspace.Entry{Path: path, Type: n.kind, Mode: uint32(n.mode.Perm())}
	switch n.kind {
	case workspace.File:
		sum := sha256.Sum256([]byte(n.data))
		e.Size, e.SHA256 = int64(len(n.data)), hex.EncodeToString(sum[:])
	case workspace.Dir:
	default:
		e.Link = []byte(n.data)
	}
	return e
}

// freeze is what the workspace package would have frozen between two trees.
func freeze(tb testing.TB, dir, source string, base, frozen tree) workspace.Freeze {
	tb.Helper()
	base, frozen = base.full(), frozen.full()
	f := workspace.Freeze{Digest: "d", Dir: dir, Source: source, Root: rootOf(tb, source)}
	if err := os.MkdirAll(filepath.Join(dir, "blobs"), 0o700); err != nil {
		tb.Fatal(err)
	}
	all := maps.Clone(base)
	maps.Copy(all, frozen)
	for _, p := range slices.Sorted(maps.Keys(all)) {
		c := workspace.Change{Path: p}
		b, wasThere := base[p]
		a, isThere := frozen[p]
		if wasThere && isThere && a == b {
			continue
		}
		if wasThere {
			c.Before = b.entry(p)
		}
		if isThere {
			c.After = a.entry(p)
			if a.kind == workspace.File {
				if err := os.WriteFile(filepath.Join(dir, "blobs", c.After.SHA256), []byte(a.data), 0o600); err != nil {
					tb.Fatal(err)
				}
			}
		}
		f.Changes = append(f.Changes, c)
	}
	return f
}

func rootOf(tb testing.TB, dir string) workspace.RootID {
	tb.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(dir, &st); err != nil {
		tb.Fatal(err)
	}
	return workspace.RootID{Dev: uint64(st.Dev), Ino: st.Ino} //nolint:unconvert // 32 bits on darwin
}

// sourceFixture is a source with a freeze for it.
type sourceFixture struct {
	testing.TB
	source string
	req    Request
}

// fast is a folder in memory where there is one: these tests fsync thousands of times.
func fast(tb testing.TB) string {
	if _, err := os.Stat("/dev/shm"); err != nil {
		return tb.TempDir()
	}
	d, err := os.MkdirTemp("/dev/shm", "writeback-test-")
	if err != nil {
		return tb.TempDir()
	}
	tb.Cleanup(func() { _ = os.RemoveAll(d) })
	return d
}

func newSourceFixture(tb testing.TB, base, frozen, source tree) *sourceFixture {
	tb.Helper()
	return newSourceFixtureIn(tb, fast(tb), base, frozen, source)
}

func newSourceFixtureIn(tb testing.TB, at string, base, frozen, source tree) *sourceFixture {
	tb.Helper()
	w := &sourceFixture{TB: tb, source: filepath.Join(at, "source")}
	if err := os.MkdirAll(w.source, 0o755); err != nil {
		tb.Fatal(err)
	}
	source.make(tb, w.source)
	w.req = Request{
		Freeze: freeze(tb, filepath.Join(at, "freeze"), w.source, base, frozen),
		Source: w.source, Dir: filepath.Join(at, "run", "writeback"), Approved: true, MaxFiles: 1000, MaxBytes: 1 << 30,
		Now: func() time.Time { return time.Unix(1_700_000_000, 0) },
	}
	return w
}

func (w *sourceFixture) run() error {
	w.Helper()
	p, err := Check(context.Background(), w.req)
	if err != nil {
		return err
	}
	return p.Apply(context.Background())
}

func (w *sourceFixture) path(rel string) string { return filepath.Join(w.source, rel) }

func (w *sourceFixture) holds(want tree) {
	w.Helper()
	same(w.TB, "the source", readTree(w.TB, w.source), want)
}

// fails asserts the kind and that each path is named with a reason that contains the text.
func (w *sourceFixture) fails(err error, kind failure.Kind, paths map[string]string) {
	w.Helper()
	if !failure.Is(err, kind) {
		w.Fatalf("got %v (%s), want %s", err, failure.KindOf(err), kind)
	}
	f := failure.As(err)
	if f.Hint == "" {
		w.Errorf("no hint in %v", err)
	}
	if want := slices.Sorted(maps.Keys(paths)); !slices.Equal(f.Paths, want) {
		w.Errorf("paths are %q, want %q (%v)", f.Paths, want, f.Conditions)
	}
	for p, text := range paths {
		if text != "" && !slices.ContainsFunc(f.Conditions, func(c failure.Condition) bool { return c.ID == p && strings.Contains(c.Message, text) }) {
			w.Errorf("no condition says of %q that %q: %v", p, text, f.Conditions)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(fmt.Sprint(err))
	}
	return v
}
