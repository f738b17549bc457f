package writeback

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/workspace"
)

// Everything is refused with the whole list, and the source is not touched.
func TestRefused(t *testing.T) {
	config := func(text string) tree { return tree{".git/config": file(text)} }
	for name, tc := range map[string]struct {
		base, change tree // what the workspace did
		source       tree // what the source has beside base
		allow        []string
		want         map[string]string
	}{
		"git directory": {
			change: tree{".GIT/config": file("x"), "sub/.git": file("gitdir: ../other"), "ok": file("x")},
			want:   map[string]string{".GIT": "git directory", ".GIT/config": "git directory", "sub/.git": "git directory"},
		},
		"absolute link": {change: tree{"l": link("/etc")}, want: map[string]string{"l": "absolute"}},
		"escaping link": {change: tree{"d/l": link("../../x")}, want: map[string]string{"d/l": "out of the source"}},
		"escaping link through another of the set": {
			change: tree{"a/b/up": link("../.."), "l": link("a/b/up/../x"), "fine": link("a/b/up/fine2")},
			want:   map[string]string{"l": "out of the source"},
		},
		"escaping link through one of the source": {
			base: tree{"out": link("sub/.."), "sub/f": file("")}, change: tree{"l": link("out/../etc")},
			want: map[string]string{"l": "out of the source"},
		},
		"link through an absolute link of the source": {
			base: tree{"abs": link("/tmp")}, change: tree{"l": link("abs/x")},
			want: map[string]string{"l": "absolute link"},
		},
		"links in a circle": {
			change: tree{"a": link("b"), "b": link("a")},
			want:   map[string]string{"a": "too many links", "b": "too many links"},
		},
		"link into a git directory": {
			source: config(""), change: tree{"docs": link(".git/hooks"), "d/x": link("../.GiT")},
			want: map[string]string{"docs": "git directory", "d/x": "git directory"},
		},
		"link into a git directory through one of the source": {
			base: tree{"g": link(".git")}, source: config(""), change: tree{"x": link("g/hooks")},
			want: map[string]string{"x": "git directory"},
		},
		"through a link of the source": {
			base: tree{"real/f": file("1"), "d/f": file("1")}, source: tree{"d": link("real")}, change: tree{"d/f": file("x")},
			want: map[string]string{"d/f": "is a link in the source"},
		},
		"bare repository": {
			change: tree{"x/HEAD": file("ref: refs/heads/m"), "x/objects/y": file(""), "x/refs/y": file(""), "x/config": file("[core]")},
			want: map[string]string{"x/HEAD": "bare git", "x/objects": "bare git", "x/objects/y": "bare git", "x/refs": "bare git",
				"x/refs/y": "bare git", "x/config": "bare git"},
		},
		"bare repository, completed": {
			base: tree{"x/objects/y": file(""), "x/refs/y": file("")}, change: tree{"x/head": link("y")},
			want: map[string]string{"x/head": "bare git"},
		},
		"bare repository with a commondir": {
			change: tree{"x/HEAD": file(""), "x/commondir": file("../y")},
			want:   map[string]string{"x/HEAD": "bare git", "x/commondir": "bare git"},
		},
		"configuration of a bare repository": {
			base:   tree{"x/HEAD": file(""), "x/objects/y": file(""), "x/refs/y": file(""), "x/config": file("")},
			change: tree{"x/config": file("[core]"), "x/hooks/post-checkout": exe("")},
			want:   map[string]string{"x/config": "bare git", "x/hooks": "bare git", "x/hooks/post-checkout": "bare git"},
		},
		"hooks": {
			base: tree{".husky/_/pre-commit": exe("1")}, source: config("[core]\nhooksPath = .husky/_\n"),
			change: tree{".husky/_/pre-commit": exe("2"), ".Husky/_/new": exe(""), ".husky/other": file("fine")},
			want:   map[string]string{".husky/_/pre-commit": "hooksPath", ".Husky/_": "hooksPath", ".Husky/_/new": "hooksPath"},
		},
		"hooks of a repository inside": {
			base: tree{"sub/f": file("1")}, source: tree{"sub/.git/config": file("[core]\nhooksPath = hk\n")},
			change: tree{"sub/hk/pre-push": exe("2"), "sub/f": file("2"), "hk/x": file("fine")},
			want:   map[string]string{"sub/hk": "hooksPath", "sub/hk/pre-push": "hooksPath"},
		},
		"a link in the place of the hooks' directory": {
			source: config("[core]\nhooksPath = .husky/_\n"), change: tree{".husky": link("evil"), "evil/_/pre-commit": exe("")},
			want: map[string]string{".husky": "hooksPath"},
		},
		"the project": {
			base:   tree{"laufwerk/laufwerk.config.ts": file("1")},
			change: tree{"laufwerk/laufwerk.config.ts": file("2"), "Laufwerk/x": file(""), "laufwerk/workflows/w/workflow.ts": file("")},
			allow:  []string{"laufwerk/workflows/w"},
			want:   map[string]string{"laufwerk/laufwerk.config.ts": "laufwerk project", "Laufwerk": "laufwerk project", "Laufwerk/x": "laufwerk project"},
		},
		"a project in a subdirectory": {
			base:   tree{"app/laufwerk/laufwerk.config.ts": file("1"), "cmd/laufwerk/main.go": file("1")},
			change: tree{"app/laufwerk/x": file("2"), "cmd/laufwerk/main.go": file("2"), "new/laufwerk/laufwerk.config.ts": file("")},
			want: map[string]string{"app/laufwerk/x": "laufwerk project", "new/laufwerk": "laufwerk project",
				"new/laufwerk/laufwerk.config.ts": "laufwerk project"},
		},
		"special files": {
			change: tree{"p": node{workspace.Other, 0o644, "fifo"}, "s": node{workspace.Other, 0o644, "socket"}, "dev": node{workspace.Other, 0o644, "character device"}},
			want:   map[string]string{"p": "fifo", "s": "socket", "dev": "character device"},
		},
		"our own names": {
			change: tree{".harness-bootstrap/x": file(""), "a/.agent-runs/x": file(""), ".laufwerk-writeback-1/n0": file("")},
			want: map[string]string{".harness-bootstrap": "starts agents", ".harness-bootstrap/x": "starts agents", "a/.agent-runs": "starts agents",
				"a/.agent-runs/x": "starts agents", ".laufwerk-writeback-1": "laufwerk's own", ".laufwerk-writeback-1/n0": "laufwerk's own"},
		},
		"refused and in conflict": {
			base: tree{"f": file("1")}, source: tree{"f": file("2")}, change: tree{"f": file("3"), ".git": file("")},
			want: map[string]string{"f": "was changed", ".git": "git directory"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			source := tc.base.with(tc.source)
			w := newSourceFixture(t, tc.base, tc.base.with(tc.change), source)
			w.req.Allow = tc.allow
			before := readTree(t, w.source)
			w.fails(w.run(), failure.WriteBackRefused, tc.want)
			w.holds(before)
		})
	}
}

func TestPathsThatNoTreeHolds(t *testing.T) {
	for path, why := range map[string]string{"/etc/passwd": "absolute", "../x": "clean path", "a/../../x": "clean path"} {
		w := newSourceFixture(t, tree{}, tree{"ok": file("x")}, tree{})
		w.req.Freeze.Changes = append(w.req.Freeze.Changes, workspace.Change{Path: path, After: file("x").entry(path)})
		w.fails(w.run(), failure.WriteBackRefused, map[string]string{path: why})
		w.holds(tree{})
	}
}

func TestBelowALinkOfTheFreeze(t *testing.T) {
	w := newSourceFixture(t, tree{}, tree{"x": link("etc")}, tree{"etc/passwd": file("1")})
	w.req.Freeze.Changes = append(w.req.Freeze.Changes, workspace.Change{Path: "x/passwd", After: file("2").entry("x/passwd")})
	w.fails(w.run(), failure.WriteBackRefused, map[string]string{"x/passwd": "not a directory in the workspace"})
	w.holds(tree{"etc/passwd": file("1")})
}

func TestBounds(t *testing.T) {
	w := newSourceFixture(t, tree{}, tree{"a": file("12345"), "b": file("12345")}, tree{})
	w.req.MaxFiles = 1
	w.fails(w.run(), failure.WriteBackRefused, map[string]string{"a": "", "b": ""})
	w.req.MaxFiles, w.req.MaxBytes = 2, 9
	w.fails(w.run(), failure.WriteBackRefused, map[string]string{"a": "", "b": ""})
	w.holds(tree{})
	w.req.MaxBytes = 10
	if err := w.run(); err != nil {
		t.Fatal(err)
	}
}

func TestConflicts(t *testing.T) {
	base := tree{"f": file("1"), "d/x": file("1"), "d/y": file("1"), "l": link("f"), "keep": file("k")}
	for name, tc := range map[string]struct {
		change, source tree
		want           map[string]string
	}{
		"both changed":         {tree{"f": file("2")}, tree{"f": file("3")}, map[string]string{"f": "was changed"}},
		"changed and removed":  {tree{"f": file("2")}, tree{"f": gone()}, map[string]string{"f": "no longer"}},
		"removed and changed":  {tree{"f": gone()}, tree{"f": file("3")}, map[string]string{"f": "was changed"}},
		"both made":            {tree{"n": file("2")}, tree{"n": file("3")}, map[string]string{"n": "has a file"}},
		"both made, other bit": {tree{"n": file("2")}, tree{"n": exe("2")}, map[string]string{"n": "executable"}},
		"made where a directory is": {
			tree{"n": file("2")}, tree{"n/x": file("3")}, map[string]string{"n": "has a directory"},
		},
		"link changed":      {tree{"l": link("keep")}, tree{"l": link("d")}, map[string]string{"l": "was changed"}},
		"link to file":      {tree{"l": file("2")}, tree{"l": link("d")}, map[string]string{"l": "was changed"}},
		"became a link":     {tree{"f": file("2")}, tree{"f": link("keep")}, map[string]string{"f": "was a file and is a link"}},
		"became a dir":      {tree{"f": file("2")}, tree{"f": dir(), "f/x": file("")}, map[string]string{"f": "was a file and is a directory"}},
		"directory removed": {tree{"d/x": file("2")}, tree{"d": gone()}, map[string]string{"d/x": "no longer in the source"}},
		"new in a removed directory": {
			tree{"d/n": file("2")}, tree{"d": gone()}, map[string]string{"d/n": `"d" is no longer in the source`},
		},
		"directory became a file": {tree{"d/x": file("2")}, tree{"d": file("")}, map[string]string{"d/x": "is a file in the source"}},
		"directory not empty": {
			tree{"d": gone()}, tree{"d/new": file("mine")}, map[string]string{"d": `also has "new"`},
		},
		"directory not empty, becomes a file": {
			tree{"d": file("now a file")}, tree{"d/new": file("mine")}, map[string]string{"d": `also has "new"`},
		},
		"every path is named": {
			tree{"f": file("2"), "d/x": file("2"), "keep": file("2")}, tree{"f": file("3"), "d/x": file("3")},
			map[string]string{"f": "was changed", "d/x": "was changed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newSourceFixture(t, base, base.with(tc.change), base.with(tc.source))
			before := readTree(t, w.source)
			w.fails(w.run(), failure.WriteBackConflict, tc.want)
			w.holds(before)
		})
	}
}

func TestFifoInTheSourceIsAConflict(t *testing.T) {
	w := newSourceFixture(t, tree{"f": file("1")}, tree{"f": file("2")}, tree{})
	if err := unix.Mkfifo(w.path("f"), 0o644); err != nil {
		t.Fatal(err)
	}
	w.fails(w.run(), failure.WriteBackConflict, map[string]string{"f": "is a fifo"})
}

func TestAnotherRoot(t *testing.T) {
	w := newSourceFixture(t, tree{}, tree{"f": file("1")}, tree{})
	if err := os.Rename(w.source, w.source+"-old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(w.source, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := w.run(); !failure.Is(err, failure.WriteBackConflict) {
		t.Errorf("got %v", err)
	}
	if err := os.Remove(w.source); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(w.source+"-old", w.source); err != nil {
		t.Fatal(err)
	}
	if err := w.run(); !failure.Is(err, failure.WriteBackConflict) {
		t.Errorf("a link to the root: got %v", err)
	}
	same(t, "the old root", readTree(t, w.source+"-old"), tree{})
}

// What both sides did alike is no conflict, and a mode that the workspace left alone stays as the source has it.
func TestMerges(t *testing.T) {
	base := tree{"f": file("1"), "g": exe("1"), "d/x": file("1"), "l": link("f")}
	for name, tc := range map[string]struct{ change, source, want tree }{
		"both changed alike":       {tree{"f": file("2")}, tree{"f": file("2")}, tree{"f": file("2")}},
		"both removed":             {tree{"f": gone(), "d": gone()}, tree{"f": gone(), "d": gone()}, tree{"f": gone(), "d": gone()}},
		"both made":                {tree{"n/x": file("2")}, tree{"n/x": file("2")}, tree{"n/x": file("2")}},
		"source's other paths":     {tree{"f": file("2")}, tree{"g": exe("9"), "m": file("m")}, tree{"f": file("2"), "g": exe("9"), "m": file("m")}},
		"new file":                 {tree{"n": file("2").as(0o600), "e": file("2").as(0o711)}, nil, tree{"n": file("2"), "e": exe("2")}},
		"new directory":            {tree{"n": dir().as(0o700), "n/m/x": file("2")}, nil, tree{"n/m/x": file("2")}},
		"setuid is never made":     {tree{"n": file("2").as(0o755 | os.ModeSetuid)}, nil, tree{"n": exe("2")}},
		"mode stays":               {tree{"f": file("2").as(0o600)}, tree{"f": file("1").as(0o640)}, tree{"f": file("2").as(0o640)}},
		"odd mode stays":           {tree{"g": file("2").as(0o755)}, tree{"g": file("1").as(0o711)}, tree{"g": file("2").as(0o711)}},
		"becomes executable":       {tree{"f": exe("1")}, tree{"f": file("1").as(0o640)}, tree{"f": file("1").as(0o750)}},
		"no longer executable":     {tree{"g": file("1")}, tree{"g": file("1").as(0o711)}, tree{"g": file("1").as(0o600)}},
		"executable and changed":   {tree{"f": exe("2")}, nil, tree{"f": exe("2")}},
		"executable on both sides": {tree{"f": exe("1")}, tree{"f": exe("1")}, tree{"f": exe("1")}},
		"the source's own bit":     {tree{"f": file("2")}, tree{"f": exe("1")}, tree{"f": exe("2")}},
		"setuid is dropped":        {tree{"g": exe("2")}, tree{"g": file("1").as(0o755 | os.ModeSetuid)}, tree{"g": exe("2")}},
		"a directory's mode":       {tree{"d": dir().as(0o700)}, nil, nil},
		"file to directory":        {tree{"f": dir(), "f/a/b": file("2")}, nil, tree{"f": dir(), "f/a/b": file("2")}},
		"file to empty directory":  {tree{"f": dir()}, nil, tree{"f": dir()}},
		"directory to file":        {tree{"d": file("2")}, nil, tree{"d": file("2")}},
		"directory to link":        {tree{"d": link("f")}, nil, tree{"d": link("f")}},
		"link to file":             {tree{"l": exe("2")}, nil, tree{"l": exe("2")}},
		"file to link":             {tree{"f": link("g")}, nil, tree{"f": link("g")}},
		"link to directory":        {tree{"l": dir(), "l/x": file("2")}, nil, tree{"l": dir(), "l/x": file("2")}},
		"dangling link":            {tree{"n": link("nowhere/x")}, nil, tree{"n": link("nowhere/x")}},
		"link elsewhere":           {tree{"l": link("d/x")}, nil, tree{"l": link("d/x")}},
		"link upwards inside":      {tree{"a/b/c": link("../../d/./x")}, nil, tree{"a/b/c": link("../../d/./x")}},
		"deep removal":             {tree{"d": gone()}, nil, tree{"d": gone()}},
		"names of all bytes":       {tree{"a\xff\n\x1b": file("2"), "a\xfe": file("3"), "base64:x": file("4")}, nil, tree{"a\xff\n\x1b": file("2"), "a\xfe": file("3"), "base64:x": file("4")}},
		"case":                     {tree{"F": file("2"), "n": file("2"), "N": file("2")}, nil, tree{"F": file("2"), "n": file("2"), "N": file("2")}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newSourceFixture(t, base, base.with(tc.change), base.with(tc.source))
			want := base.with(tc.source).with(tc.want)
			for range 2 { // the second time there is nothing to do
				if err := w.run(); err != nil {
					t.Fatal(err, failure.As(err).Conditions)
				}
				w.holds(want)
			}
			p := must(Check(context.Background(), w.req))
			if len(p.Steps()) != 0 {
				t.Errorf("steps are left: %v", p.Steps())
			}
		})
	}
}

func TestAllow(t *testing.T) {
	change := tree{"laufwerk/workflows/w/workflow.ts": file("2")}
	for allow, ok := range map[string]bool{
		"laufwerk/workflows/w/workflow.ts": true, "laufwerk/workflows": true, "laufwerk/workflows/**": true, "laufwerk/": true,
		"laufwerk/workflows/w/work": false, "laufwerk/workflows/v": false, "": false, "/": false, "workflows": false,
	} {
		w := newSourceFixture(t, tree{}, change, tree{})
		w.req.Allow = []string{allow}
		if err := w.run(); (err == nil) != ok {
			t.Errorf("allow %q: %v", allow, err)
		}
	}
}

func TestStepsForADryRun(t *testing.T) {
	base := tree{"f": file("1"), "g": file("1"), "d/x": file("1")}
	frozen := tree{"f": file("22"), "g": exe("1"), "n/l": link("../f")}
	w := newSourceFixture(t, base, frozen, base)
	if err := os.Link(w.path("f"), filepath.Join(filepath.Dir(w.source), "twin")); err != nil {
		t.Fatal(err)
	}
	p := must(Check(context.Background(), w.req))
	want := []Step{
		{"n", Create, workspace.Dir, 0o755, 0, ""},
		{"f", Replace, workspace.File, 0o644, 2, "the file has 2 names, and only this one gets the new content"},
		{"g", Chmod, workspace.File, 0o755, 1, ""},
		{"n/l", Create, workspace.Symlink, 0, 0, ""},
		{"d/x", Remove, workspace.File, 0, 0, ""},
		{"d", Remove, workspace.Dir, 0, 0, ""},
	}
	got := p.Steps()
	if len(got) != len(want) {
		t.Fatalf("got %v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("step %d is %v, want %v", i, got[i], want[i])
		}
	}
	if _, err := os.Stat(w.req.Dir); err == nil {
		t.Error("a check made the plan's folder")
	}
	w.holds(maps.Clone(base))
}

// A file system that ignores case is not to be had in every test run: the checker is told that the root's does.
func TestCollisions(t *testing.T) {
	base := tree{"Makefile": file("1"), "other": file("1")}
	w := newSourceFixture(t, base, base.with(tree{"makefile": file("2"), "\u00e9": file(""), "e\u0301": file(""), "Other": file("2"), "other": gone(), "fine": file("")}), base)
	for _, ignores := range []bool{false, true} {
		root := must(openSource(w.source, w.req.Freeze.Root))
		c := newChecker(w.req, root)
		c.folds["."] = ignores
		_, err := c.run(context.Background())
		root.Close()
		if !ignores {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		w.fails(err, failure.WriteBackConflict, map[string]string{"makefile": "Makefile", "\u00e9": "cannot distinguish", "e\u0301": "cannot distinguish"})
	}
	root := must(openSource(w.source, w.req.Freeze.Root))
	defer root.Close()
	if newChecker(w.req, root).ignoresCase(".") {
		t.Error("this file system is said to ignore case")
	}
}
