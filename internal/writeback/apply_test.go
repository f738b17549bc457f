package writeback

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/internal/failure"
)

// A write-back with every kind of change, used by the tests of interruptions, too.
var (
	allBase = tree{
		"edit": file("old"), "tool": file("#!"), "dir/gone": file("x"), "dir/sub/gone": file("y"), "kept/a": file("a"),
		"turn": file("file"), "fold/f": file("z"), "l": link("edit"), "same": file("s"), "drop": link("same"),
	}
	allFrozen = tree{
		"edit": file("new"), "tool": exe("#!"), "kept/a": file("a"), "new/deep/n": exe("n"), "turn": dir(), "turn/t": file("t"),
		"fold": file("now a file"), "l": link("new/deep/n"), "same": file("s"),
	}
)

func leftovers(t testing.TB, source string) {
	t.Helper()
	m, err := filepath.Glob(filepath.Join(source, stagingPrefix+"*"))
	if err != nil || len(m) > 0 {
		t.Errorf("left in the source: %v %v", m, err)
	}
}

func TestEveryKindOfChange(t *testing.T) {
	for name, at := range map[string]func(testing.TB) string{"memory": fast, "disk": func(tb testing.TB) string { return tb.TempDir() }} {
		for _, noExchange := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, without exchange %v", name, noExchange), func(t *testing.T) {
				w := newSourceFixtureIn(t, at(t), allBase, allFrozen, allBase)
				w.req.NoExchange = noExchange
				p := must(Check(context.Background(), w.req))
				if err := p.Apply(context.Background()); err != nil {
					t.Fatal(err)
				}
				w.holds(allFrozen)
				if p.doc.State != Done {
					t.Errorf("the state is %s", p.doc.State)
				}
				if pend, err := Pending(w.req.Dir); pend != nil || err != nil {
					t.Errorf("pending: %v %v", pend, err)
				}
				for _, content := range []string{"old", "x", "y", "file", "z"} { // the originals are kept
					e := file(content).entry("")
					b, err := os.ReadFile(filepath.Join(w.req.Dir, "originals", e.SHA256))
					if string(b) != content {
						t.Errorf("the original %q is not kept: %q %v", content, b, err)
					}
				}
			})
		}
	}
}

func TestNothingToContinueOrAbort(t *testing.T) {
	d := t.TempDir()
	if err := Continue(context.Background(), d, false); !failure.Is(err, failure.NotFound) {
		t.Errorf("continue: %v", err)
	}
	if _, err := Abort(context.Background(), d); !failure.Is(err, failure.NotFound) {
		t.Errorf("abort: %v", err)
	}
}

// Every path is exchanged with one inode, so that what is read never is half of a file, and other names keep the old bytes.
func TestAHardLinkKeepsItsContent(t *testing.T) {
	w := newSourceFixture(t, tree{"f": file("1")}, tree{"f": file("2")}, tree{"f": file("1")})
	twin := filepath.Join(filepath.Dir(w.source), "twin")
	if err := os.Link(w.path("f"), twin); err != nil {
		t.Fatal(err)
	}
	if err := w.run(); err != nil {
		t.Fatal(err)
	}
	w.holds(tree{"f": file("2")})
	if b, _ := os.ReadFile(twin); string(b) != "1" {
		t.Errorf("the other name holds %q", b)
	}
}

// edited runs a write-back during which, the first time that a point is reached, somebody does something to the source.
func edited(w *sourceFixture, point string, do func()) error {
	w.Helper()
	p := must(Check(context.Background(), w.req))
	reached := false
	p.observe = func(at string) {
		if at == point && !reached {
			reached = true
			do()
		}
	}
	err := p.Apply(context.Background())
	if !reached {
		w.Fatalf("the point %s was not reached", point)
	}
	return err
}

func (w *sourceFixture) write(rel, content string) {
	w.Helper()
	if err := os.WriteFile(w.path(rel), []byte(content), 0o644); err != nil {
		w.Fatal(err)
	}
}

func (w *sourceFixture) saveOver(rel, content string) { // as editors do: a new file, renamed
	w.Helper()
	w.write(rel+"~", content)
	if err := os.Rename(w.path(rel+"~"), w.path(rel)); err != nil {
		w.Fatal(err)
	}
}

// The source is edited at each moment: the edit survives, and everything else is as it was.
func TestEditedMeanwhile(t *testing.T) {
	for point, tc := range map[string]struct {
		do   func(w *sourceFixture)
		want tree // beside allBase
		path string
	}{
		"before-planned": {func(w *sourceFixture) { w.write("edit", "mine") }, tree{"edit": file("mine")}, "edit"},
		"before-stage":   {func(w *sourceFixture) { w.write("edit", "mine") }, tree{"edit": file("mine")}, "edit"},
		"after-staged":   {func(w *sourceFixture) { w.saveOver("edit", "mine") }, tree{"edit": file("mine")}, "edit"},
		"after-applying": {func(w *sourceFixture) { w.write("edit", "mine") }, tree{"edit": file("mine")}, "edit"},
		"before-create":  {func(w *sourceFixture) { w.write("dir/gone", "mine") }, tree{"dir/gone": file("mine")}, "dir/gone"},
		"before-chmod":   {func(w *sourceFixture) { w.write("l2", "") }, tree{"l2": file("")}, ""},
		"before-aside":   {func(w *sourceFixture) { w.write("dir/sub/gone", "mine") }, tree{"dir/sub/gone": file("mine")}, "dir/sub/gone"},
		"after-aside":    {func(w *sourceFixture) { w.write("fold/new", "mine") }, tree{"fold/new": file("mine")}, "fold"},
		"before-verify":  {func(w *sourceFixture) { w.write("other", "mine") }, tree{"other": file("mine")}, ""},
	} {
		t.Run(point, func(t *testing.T) {
			w := newSourceFixture(t, allBase, allFrozen, allBase)
			err := edited(w, point, func() { tc.do(w) })
			if tc.path == "" { // nothing of ours was touched
				if err != nil {
					t.Fatal(err)
				}
				w.holds(allFrozen.with(tc.want))
				return
			}
			if !failure.Is(err, failure.WriteBackConflict) || !slices.Contains(failure.As(err).Paths, tc.path) {
				t.Fatalf("got %v %v", err, failure.As(err))
			}
			w.holds(allBase.with(tc.want))
			if pend, err := Pending(w.req.Dir); pend != nil || err != nil {
				t.Errorf("pending: %v %v", pend.doc.State, err)
			}
		})
	}
}

// Between the last look and the exchange.
func TestEditedInTheLastMoment(t *testing.T) {
	base, frozen := tree{"a": file("1"), "b": file("1")}, tree{"a": file("2"), "b": file("2")}
	for name, save := range map[string]func(w *sourceFixture, rel, content string){"in place": (*sourceFixture).write, "over it": (*sourceFixture).saveOver} {
		t.Run(name, func(t *testing.T) {
			w := newSourceFixture(t, base, frozen, base)
			w.fails(edited(w, "before-exchange", func() { save(w, "a", "mine") }), failure.WriteBackConflict, map[string]string{"a": "during the write-back"})
			w.holds(tree{"a": file("mine"), "b": file("1")})
		})
		t.Run(name+", and once more while it is exchanged back", func(t *testing.T) {
			w := newSourceFixture(t, base, frozen, base)
			p := must(Check(context.Background(), w.req))
			p.observe = func(at string) {
				switch at {
				case "before-exchange":
					save(w, "a", "mine")
				case "before-exchange-back":
					save(w, "a", "mine again")
				}
			}
			// What is there now may be an edit of what we wrote: a person decides.
			if err := p.Apply(context.Background()); !failure.Is(err, failure.HalfApplied) {
				t.Fatal(err)
			}
			r, err := Abort(context.Background(), w.req.Dir)
			if err != nil || len(r.Left) != 1 || r.Left[0].Path != "a" || len(r.Rescued) != 1 {
				t.Fatal(r, err)
			}
			w.holds(tree{"a": file("mine again"), "b": file("1")})
			if b, _ := os.ReadFile(filepath.Join(w.req.Dir, r.Rescued[0])); string(b) != "mine" {
				t.Errorf("rescued %q", b)
			}
		})
	}
	t.Run("removed", func(t *testing.T) {
		w := newSourceFixture(t, base, frozen, base)
		w.fails(edited(w, "before-exchange", func() { os.Remove(w.path("a")) }), failure.WriteBackConflict, map[string]string{"a": "removed"})
		w.holds(tree{"b": file("1")})
	})
	t.Run("without exchange", func(t *testing.T) {
		w := newSourceFixture(t, base, frozen, base)
		w.req.NoExchange = true
		w.fails(edited(w, "before-aside", func() { w.write("a", "mine") }), failure.WriteBackConflict, map[string]string{"a": "during the write-back"})
		w.holds(tree{"a": file("mine"), "b": file("1")})
	})
	t.Run("without exchange, made in the gap", func(t *testing.T) {
		w := newSourceFixture(t, base, frozen, base)
		w.req.NoExchange = true
		w.fails(edited(w, "after-aside", func() { w.write("a", "mine") }), failure.WriteBackConflict, map[string]string{"a": "was created there"})
		w.holds(tree{"a": file("mine"), "b": file("1")})
	})
}

// An editor holds the old file open and writes after it was displaced.
func TestWrittenIntoTheDisplacedFile(t *testing.T) {
	base, frozen := tree{"a": file("1"), "b": file("1")}, tree{"a": file("2"), "b": file("2")}
	w := newSourceFixture(t, base, frozen, base)
	f := must(os.OpenFile(w.path("a"), os.O_WRONLY, 0))
	defer f.Close()
	w.fails(edited(w, "before-verify", func() { f.WriteString("late") }), failure.WriteBackConflict, map[string]string{"a": "had it open"})
	w.holds(tree{"a": file("late"), "b": file("1")})

	f2 := must(os.OpenFile(w.path("b"), os.O_WRONLY, 0))
	defer f2.Close()
	w.write("a", "1")
	p := must(Check(context.Background(), w.req))
	p.observe = func(at string) {
		if at == "before-sweep" && p.doc.State == Applied {
			f2.WriteString("too late")
		}
	}
	if err := p.Apply(context.Background()); err != nil {
		t.Fatal(err)
	}
	w.holds(frozen)
	if len(p.doc.Rescued) != 1 {
		t.Fatalf("rescued %v", p.doc.Rescued)
	}
	if b, _ := os.ReadFile(filepath.Join(w.req.Dir, p.doc.Rescued[0])); string(b) != "too late" {
		t.Errorf("rescued %q", b)
	}
}

// A path that was written already is edited, and then there is a conflict at a later one: nothing more is touched, a
// person decides.
func halfAppliedWorld(t *testing.T) *sourceFixture {
	base := tree{"a": file("1"), "b": file("1"), "c": file("1")}
	w := newSourceFixture(t, base, tree{"a": file("2"), "b": file("2"), "c": file("2")}, base)
	p := must(Check(context.Background(), w.req))
	n := 0
	p.observe = func(at string) {
		if at == "before-exchange" {
			if n++; n == 3 {
				w.write("a", "mine")
				w.write("c", "mine too")
			}
		}
	}
	w.fails(p.Apply(context.Background()), failure.HalfApplied, map[string]string{"a": "after it was written", "c": "during the write-back"})
	w.Helper()
	got := readTree(t, w.source)
	for path, want := range (tree{"a": file("mine"), "b": file("2"), "c": file("mine too")}) {
		if got[path] != want {
			t.Errorf("%s holds %v", path, got[path])
		}
	}
	if _, err := Check(context.Background(), w.req); !failure.Is(err, failure.HalfApplied) {
		t.Errorf("another write-back in the same folder: %v", err)
	}
	return w
}

func TestHalfAppliedThenAborted(t *testing.T) {
	w := halfAppliedWorld(t)
	r, err := Abort(context.Background(), w.req.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(r.Restored, []string{"b"}) || len(r.Left) != 1 || r.Left[0].Path != "a" {
		t.Errorf("report: %+v", r)
	}
	w.holds(tree{"a": file("mine"), "b": file("1"), "c": file("mine too")})
}

func TestHalfAppliedThenContinued(t *testing.T) {
	w := halfAppliedWorld(t)
	if err := Continue(context.Background(), w.req.Dir, false); !failure.Is(err, failure.HalfApplied) {
		t.Errorf("the conflict is still there: %v", err)
	}
	w.write("c", "1")
	if err := Continue(context.Background(), w.req.Dir, false); err != nil {
		t.Fatal(err)
	}
	w.holds(tree{"a": file("mine"), "b": file("2"), "c": file("2")})
}

// `git clean -fdx` removes the staging directory of a write-back that was killed.
func TestStagingRemovedBySomebody(t *testing.T) {
	for _, end := range []string{"continue", "abort"} {
		for _, point := range []string{"after-staged", "after-create", "before-settle", "after-settle", "after-aside", "before-sync"} {
			t.Run(end+" "+point, func(t *testing.T) {
				w := newSourceFixture(t, allBase, allFrozen, allBase)
				killed(w, point)
				m := must(filepath.Glob(filepath.Join(w.source, stagingPrefix+"*")))
				if len(m) != 1 {
					t.Fatalf("staging: %v", m)
				}
				if err := os.RemoveAll(m[0]); err != nil {
					t.Fatal(err)
				}
				if end == "continue" {
					if err := Continue(context.Background(), w.req.Dir, false); err != nil {
						t.Fatal(err, failure.As(err))
					}
					w.holds(allFrozen)
					return
				}
				if r, err := Abort(context.Background(), w.req.Dir); err != nil || len(r.Left) > 0 {
					t.Fatal(r, err)
				}
				w.holds(allBase)
			})
		}
	}
}

// killed runs a write-back up to a point where it is given up, as if it were killed there.
func killed(w *sourceFixture, point string) {
	w.Helper()
	p := must(Check(context.Background(), w.req))
	p.observe = func(at string) {
		if at == point && (at != "before-sweep" || p.doc.State == Applied) {
			panic(w)
		}
	}
	defer func() {
		if r := recover(); r != w {
			w.Fatalf("not killed at %s: %v", point, r)
		}
	}()
	_ = p.Apply(context.Background())
}

func TestAbortAfterTheCommit(t *testing.T) {
	w := newSourceFixture(t, allBase, allFrozen, allBase)
	killed(w, "after-applied")
	if _, err := Abort(context.Background(), w.req.Dir); !failure.Is(err, failure.RunState) {
		t.Errorf("got %v", err)
	}
	w.holds(allFrozen)
	if pend := must(Pending(w.req.Dir)); pend != nil {
		t.Errorf("pending: %v", pend.doc.State)
	}
}

// Once everything is being put back, that is what Continue ends, too.
func TestContinueOfAnAbort(t *testing.T) {
	w := newSourceFixture(t, allBase, allFrozen, allBase)
	killed(w, "before-verify")
	p := must(Pending(w.req.Dir))
	p.observe = func(at string) {
		if at == "undo-after-restore" {
			panic(w)
		}
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = p.abort(context.Background())
	}()
	if err := Continue(context.Background(), w.req.Dir, false); !failure.Is(err, failure.NotApproved) {
		t.Errorf("got %v", err)
	}
	w.holds(allBase)
	leftovers(t, w.source)
}

// A conflict is found, and the process is killed while it puts everything back: the failure is not lost.
func TestKilledWhilePuttingBack(t *testing.T) {
	w := newSourceFixture(t, allBase, allFrozen, allBase)
	p := must(Check(context.Background(), w.req))
	p.observe = func(at string) {
		switch at {
		case "before-aside":
			w.write("dir/sub/gone", "mine")
		case "undo-before-exchange", "undo-before-create":
			panic(w)
		}
	}
	func() {
		defer func() { _ = recover() }()
		_ = p.Apply(context.Background())
	}()
	if s := must(Pending(w.req.Dir)).doc.State; s != Aborting {
		t.Fatalf("the state is %s", s)
	}
	w.fails(Continue(context.Background(), w.req.Dir, false), failure.WriteBackConflict, map[string]string{"dir/sub/gone": "during the write-back"})
	w.holds(allBase.with(tree{"dir/sub/gone": file("mine")}))
}

func TestContinueWithAnotherRoot(t *testing.T) {
	w := newSourceFixture(t, allBase, allFrozen, allBase)
	killed(w, "after-create")
	if err := os.Rename(w.source, w.source+"-old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(w.source, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Continue(context.Background(), w.req.Dir, false); !failure.Is(err, failure.WriteBackConflict) {
		t.Errorf("got %v", err)
	}
	w.holds(tree{})
	if pend := must(Pending(w.req.Dir)); pend == nil {
		t.Error("no longer pending")
	}
}

func TestFrozenBytesDamaged(t *testing.T) {
	w := newSourceFixture(t, tree{"a": file("1")}, tree{"a": file("2"), "b": file("3")}, tree{"a": file("1")})
	blob := filepath.Join(w.req.Freeze.Dir, "blobs", file("3").entry("").SHA256)
	if err := os.WriteFile(blob, []byte("4"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.run(); !failure.Is(err, failure.StoreInvalid) {
		t.Errorf("got %v", err)
	}
	w.holds(tree{"a": file("1")})
	if err := os.Remove(blob); err != nil {
		t.Fatal(err)
	}
	if err := w.run(); !failure.Is(err, failure.StoreInvalid) {
		t.Errorf("got %v", err)
	}
	w.holds(tree{"a": file("1")})
}

func TestInterruptedWhileStaging(t *testing.T) {
	w := newSourceFixture(t, allBase, allFrozen, allBase)
	p := must(Check(context.Background(), w.req))
	ctx, cancel := context.WithCancel(context.Background())
	p.observe = func(at string) {
		if at == "after-stage" {
			cancel()
		}
	}
	if err := p.Apply(ctx); !failure.Is(err, failure.Interrupted) {
		t.Errorf("got %v", err)
	}
	w.holds(allBase)
	if err := w.run(); err != nil { // the same folder serves again
		t.Fatal(err)
	}
	w.holds(allFrozen)
}

func TestInterruptedWhileTheSourceChanges(t *testing.T) {
	w := newSourceFixture(t, allBase, allFrozen, allBase)
	p := must(Check(context.Background(), w.req))
	ctx, cancel := context.WithCancel(context.Background())
	p.observe = func(at string) {
		if at == "after-applying" {
			cancel()
		}
	}
	if err := p.Apply(ctx); err != nil {
		t.Fatal(err)
	}
	w.holds(allFrozen)
}

// The test runs itself again as a user whom modes bind.
func TestDirectoryThatMayNotBeWritten(t *testing.T) {
	if os.Geteuid() == 0 {
		setpriv, err := exec.LookPath("setpriv")
		if err != nil {
			t.Skip("needs setpriv to run as another user")
		}
		self := filepath.Join(t.TempDir(), "test")
		copyFile(t, must(os.Executable()), self, 0o755)
		for d := filepath.Dir(self); d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
			_ = os.Chmod(d, 0o755)
		}
		home := must(os.MkdirTemp("", "writeback-user-"))
		t.Cleanup(func() { _ = os.RemoveAll(home) })
		if err := os.Chown(home, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(setpriv, "--reuid", "65534", "--regid", "65534", "--clear-groups", self, "-test.run", "^TestDirectoryThatMayNotBeWritten$", "-test.v")
		cmd.Env = append(os.Environ(), "TMPDIR="+home)
		cmd.Dir = home
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	base := tree{"a": file("1"), "d/x": file("1"), "e/x": file("1")}
	for name, change := range map[string]tree{
		"replaced": {"a": file("2"), "d/x": file("2"), "e/x": file("2")}, "made": {"a": file("2"), "d/n": file("2"), "e/n": file("2")},
		"removed": {"a": file("2"), "d/x": gone(), "e/x": gone()},
	} {
		w := newSourceFixtureIn(t, t.TempDir(), base, base.with(tree{"d": dir()}).with(change), base)
		if err := os.Chmod(w.path("d"), 0o555); err != nil {
			t.Fatal(err)
		}
		want := base.with(tree{"d": dir().as(0o555), "d/x": file("1")})
		err := w.run()
		if !failure.Is(err, failure.NotReady) || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("%s: got %v", name, err)
		}
		w.holds(want)
		leftovers(t, w.source)
		if err := os.Chmod(w.path("d"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// C37: a file that cannot be read is named, and nothing else is touched either.
	w := newSourceFixtureIn(t, t.TempDir(), base, base.with(tree{"a": file("2"), "d/x": file("2")}), base)
	if err := os.Chmod(w.path("d/x"), 0); err != nil {
		t.Fatal(err)
	}
	w.fails(w.run(), failure.WriteBackConflict, map[string]string{"d/x": "permission denied"})
	if b, _ := os.ReadFile(w.path("a")); string(b) != "1" {
		t.Errorf("a holds %q", b)
	}
}

func copyFile(t *testing.T, from, to string, mode fs.FileMode) {
	t.Helper()
	if err := os.WriteFile(to, must(os.ReadFile(from)), mode); err != nil {
		t.Fatal(err)
	}
}
