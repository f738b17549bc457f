package workspace

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/internal/testkit"
)

// checkIgnore is what git itself says of the paths; those that end in "/" are directories.
func checkIgnore(t *testing.T, dir string, paths []string) map[string]bool {
	t.Helper()
	cmd := exec.Command("git", "-c", "core.excludesFile=/dev/null", "-C", dir, "check-ignore", "--no-index", "-z", "--stdin")
	cmd.Stdin = strings.NewReader(strings.Join(paths, "\x00") + "\x00")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null"}
	out, err := cmd.Output()
	if exit, ok := err.(*exec.ExitError); err != nil && (!ok || exit.ExitCode() != 1) { //nolint:errorlint // it is not wrapped
		t.Fatalf("git check-ignore: %v", err)
	}
	got := map[string]bool{}
	for p := range bytes.SplitSeq(bytes.TrimSuffix(out, []byte{0}), []byte{0}) {
		got[string(p)] = true
	}
	return got
}

func needGit(t *testing.T) {
	t.Helper()
	_, err := exec.LookPath("git")
	testkit.Need(t, "git", err == nil, "install it (apt-get install git)")
}

func gitInit(t *testing.T, dir string) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o755))
	run(t, dir, "git", "init", "-q")
}

func run(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func compareWithGit(t *testing.T, dir string, ignoreFiles map[string]string, exclude string, paths []string) {
	t.Helper()
	rules := Rules{Exclude: []byte(exclude)}
	for d, text := range ignoreFiles {
		must(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, d, ".gitignore"), []byte(text), 0o644))
		rules.Files = append(rules.Files, IgnoreFile{Dir: []byte(d), Text: []byte(text)})
	}
	must(t, os.MkdirAll(filepath.Join(dir, ".git/info"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, ".git/info/exclude"), []byte(exclude), 0o644))
	isDir := map[string]bool{}
	for d := range ignoreFiles {
		for ; d != "." && d != ""; d = filepath.Dir(d) {
			isDir[d] = true
		}
	}
	for _, p := range paths { // git looks what is there
		rel, dirWanted := strings.CutSuffix(p, "/")
		for i := range len(rel) {
			if rel[i] == '/' {
				isDir[rel[:i]] = true
			}
		}
		isDir[rel] = isDir[rel] || dirWanted
	}
	var asked []string
	for rel, d := range isDir {
		asked = append(asked, rel)
		must(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(rel)), 0o755))
		if d {
			must(t, os.MkdirAll(filepath.Join(dir, rel), 0o755))
		} else {
			must(t, os.WriteFile(filepath.Join(dir, rel), nil, 0o644))
		}
	}
	want := checkIgnore(t, dir, asked)
	ours := newIgnorer(rules)
	for _, rel := range asked {
		if got := ours.ignored(rel, isDir[rel]); got != want[rel] {
			t.Errorf("%q (directory: %v): ours %v, git %v\nfiles %q\nexclude %q", rel, isDir[rel], got, want[rel], ignoreFiles, exclude)
		}
	}
}

func TestIgnoreIsWhatGitSays(t *testing.T) {
	needGit(t)
	for name, c := range map[string]struct {
		files   map[string]string
		exclude string
		paths   string
	}{
		"names":           {files: map[string]string{"": "foo\n*.o\n!keep.o\n"}, paths: "foo a/foo foo/x a.o b/c.o keep.o b/keep.o foobar xfoo"},
		"anchored":        {files: map[string]string{"": "/foo\nbar/baz\n"}, paths: "foo a/foo bar/baz a/bar/baz bar/baz/x"},
		"directories":     {files: map[string]string{"": "build/\n!build/keep\n"}, paths: "build build/ build/x build/keep a/build/ a/build a/build/y"},
		"negation":        {files: map[string]string{"": "*\n!*.go\n!*/\nx/*\n!x/y\n"}, paths: "a.go a.c d/ d/a.go d/a.c x/ x/y x/z.go"},
		"double star":     {files: map[string]string{"": "**/foo\nbar/**\na/**/z\nx**y\nq/**\n!q/keep\n"}, paths: "foo a/foo a/b/foo bar/ bar/x bar/x/y a/z a/b/z a/b/c/z xy x/y xay q/ q/a q/keep"},
		"literal stars":   {files: map[string]string{"": "foo**/bar\na**b/c\n"}, paths: "foobar foo/bar foox/bar foo/x/bar ab/c a/b/c axb/c"},
		"spaces":          {files: map[string]string{"": "trail   \nkept\\ \n  lead\nin side\n\\#hash\n\\!bang\n#comment\n"}, paths: "trail kept lead #hash !bang #comment inside"},
		"carriage return": {files: map[string]string{"": "crlf\r\nx\r\n"}, paths: "crlf x"},
		"mark":            {files: map[string]string{"": "\ufeffbom\n"}, paths: "bom"},
		"classes":         {files: map[string]string{"": "[abc]1\n[!x]2\n[a-f]3\n[]]4\n[[:digit:]]5\n[\\]]6\n[z\n[[:nope:]]7\n[a-]8\n[^-]9\n"}, paths: "a1 d1 x2 y2 c3 g3 ]4 55 x5 ]6 [z a7 a8 -8 -9 b9 z"},
		"question":        {files: map[string]string{"": "a?c\nd/?/e\n"}, paths: "abc a/c ac d/x/e d/xy/e"},
		"empty and odd":   {files: map[string]string{"": "\n/\n!\n!/\n//\n\\\n*/\n"}, paths: "a a/ a/b"},
		"nested":          {files: map[string]string{"": "*.log\n", "a": "!keep.log\n/only\n", "a/b": "*.log\n"}, paths: "x.log a/keep.log a/only a/b/only a/b/keep.log a/c/keep.log only"},
		"in ignored":      {files: map[string]string{"": "dir/\n", "dir": "!x\n"}, paths: "dir/ dir/x"},
		"exclude":         {files: map[string]string{"": "!b\n"}, exclude: "a\nb\nd/c\n", paths: "a b x/a d/c x/d/c"},
		"escaped":         {files: map[string]string{"": "a\\*b\n\\a\nq\\\\r\n"}, paths: "a*b axb a q\\r"},
		"trailing slash":  {files: map[string]string{"": "a/b/\n*/x/\n"}, paths: "a/b a/b/ c/x/ c/x c/d/x/"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			gitInit(t, dir)
			paths := strings.Fields(c.paths)
			if name == "spaces" {
				paths = append(paths, "trail ", "trail   ", "kept ", "  lead", "in side")
			}
			compareWithGit(t, dir, c.files, c.exclude, paths)
		})
	}
}

func TestIgnoreIsWhatGitSaysOfRandomRules(t *testing.T) {
	needGit(t)
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test's
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	name := func() string {
		return pick("a", "b", "ab", "abc", "a.o", "b.o", "x y", "-", "]", "c")
	}
	path := func() string {
		p := name()
		for r.IntN(2) == 0 && len(p) < 20 {
			p += "/" + name()
		}
		return p
	}
	pattern := func() string {
		s := pick("", "", "!") + pick("", "", "/")
		for n := 1 + r.IntN(5); n > 0; n-- {
			s += pick("a", "b", "c", "*", "**", "?", "/", "/", "[ab]", "[!a]", "[a-c]", ".o", "\\a", "**/", "/**", "x y", "[[:alpha:]]", "[]-]")
		}
		return s + pick("", "", "/", " ", "\\ ") + "\n"
	}
	text := func(n int) (s string) {
		for range r.IntN(n) {
			s += pattern()
		}
		return s
	}
	for range 12 {
		paths := []string{}
		for range 120 {
			paths = append(paths, path()+pick("", "/"))
		}
		slices.Sort(paths)
		paths = slices.Compact(paths)
		files := map[string]string{"": text(6), "a": text(3), "a/b": text(3), "b": text(2)}
		dir := t.TempDir()
		gitInit(t, dir)
		compareWithGit(t, dir, files, text(3), paths)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func TestAPatternOfManyStarsEnds(t *testing.T) {
	pattern := strings.Repeat("*a", 40) + "b"
	if wildmatch(pattern, strings.Repeat("a", 250), true) {
		t.Error("matched")
	}
	deep := strings.Repeat("**/a/", 30) + "b"
	if wildmatch(deep, strings.Repeat("a/", 1500)+"c", true) {
		t.Error("matched")
	}
}

func TestIncludeAddsPathsAgain(t *testing.T) {
	g := newIgnorer(Rules{Files: []IgnoreFile{{Text: []byte("dist/\n.env\nnode_modules\n")}}, Include: []string{"dist/keep/**", ".env", "/node_modules/mine/"}})
	for p, want := range map[string]bool{
		"dist/x": false, "dist/keep/a": true, "dist/keep/a/b": true, ".env": true, "sub/.env": true, "node_modules/mine/x": true, "node_modules/other": false, "x/node_modules/mine/y": false,
	} {
		if got := g.included(p, false); got != want {
			t.Errorf("%s: %v", p, got)
		}
	}
}

func FuzzWildmatch(f *testing.F) {
	for _, s := range []string{"a", "**/x[!a-z", "[[:alpha:", "\\", "[\\", "a**b", "[]", "[!", "*?*"} {
		f.Add(s, "a/b")
	}
	f.Fuzz(func(_ *testing.T, pattern, text string) {
		_ = wildmatch(pattern, text, true)
		_ = wildmatch(pattern, text, false)
	})
}
