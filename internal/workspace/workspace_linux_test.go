package workspace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/redact"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/system/safefs"
)

func write(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(content), 0o644))
}

func copyOf(t *testing.T, source string, include ...string) (string, OpenRecord) {
	t.Helper()
	dest := filepath.Join(t.TempDir(), "tree")
	o, err := Copy(context.Background(), CopyRequest{Source: source, Dest: dest, Include: include})
	must(t, err)
	return dest, o
}

func paths(m Manifest) []string {
	var out []string
	for _, e := range m.Entries {
		out = append(out, e.Path)
	}
	return out
}

func openTree(t *testing.T, dir string, o OpenRecord) *safefs.Root {
	t.Helper()
	r, err := OpenTree(dir, o.Tree)
	must(t, err)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func scanned(t *testing.T, dir string, o OpenRecord) (Manifest, int) {
	t.Helper()
	m, ignored, err := Scan(context.Background(), openTree(t, dir, o), ScanOptions{Rules: o.Rules, Base: &o.Base})
	must(t, err)
	return m, ignored
}

func TestCopyKeepsModesLinksAndEmptyDirectories(t *testing.T) {
	src := t.TempDir()
	for name, mode := range map[string]os.FileMode{"0755": 0o755, "0711": 0o711, "0600": 0o600, "0444": 0o444, "dir/0640": 0o640} {
		write(t, src+"/"+name, name)
		must(t, os.Chmod(src+"/"+name, mode))
	}
	must(t, os.Mkdir(src+"/setgid", 0o755))
	must(t, os.Chmod(src+"/setgid", 0o755|os.ModeSetgid))
	must(t, os.Mkdir(src+"/closed", 0o755))
	write(t, src+"/closed/f", "x")
	must(t, os.Chmod(src+"/closed", 0o555))
	must(t, os.MkdirAll(src+"/empty/deep", 0o755))
	must(t, os.Symlink("/etc/passwd", src+"/absolute"))
	must(t, os.Symlink("no\xffwhere", src+"/broken"))
	must(t, os.Symlink("dir", src+"/todir"))
	must(t, os.Link(src+"/0755", src+"/hard"))
	write(t, src+"/new\nline", "n")
	write(t, src+"/bad\xff", "b")
	must(t, unix.Mkfifo(src+"/fifo", 0o644))

	dest, o := copyOf(t, src)
	now, _ := scanned(t, dest, o)
	if c := Compare(o.Base, now); len(c) > 0 {
		t.Errorf("a fresh copy differs from its base: %+v", c)
	}
	want, got := listing(t, src), listing(t, dest)
	want = slices.DeleteFunc(want, func(s string) bool { return strings.HasPrefix(s, `"fifo"`) })
	if !slices.Equal(want, got) {
		t.Errorf("source\n%s\ncopy\n%s", strings.Join(want, "\n"), strings.Join(got, "\n"))
	}
	if len(o.Skipped) != 1 || string(o.Skipped[0].Path) != "fifo" {
		t.Errorf("skipped: %+v", o.Skipped)
	}
	var a, b unix.Stat_t
	must(t, unix.Lstat(dest+"/0755", &a))
	must(t, unix.Lstat(dest+"/hard", &b))
	if a.Ino == b.Ino || a.Nlink != 1 {
		t.Error("hard links must become separate files, so that writing one does not change the other")
	}
}

// listing is a tree as the system shows it: name, type, mode, content.
func listing(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	must(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		i, err := d.Info()
		if err != nil {
			return err
		}
		content := ""
		switch {
		case i.Mode().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			content = string(b)
		case i.Mode()&fs.ModeSymlink != 0:
			content, _ = os.Readlink(p)
		}
		rel, _ := filepath.Rel(dir, p)
		out = append(out, fmt.Sprintf("%q %v %q", rel, i.Mode(), content))
		return nil
	}))
	slices.Sort(out)
	return out
}

func TestCopyOfAGitSource(t *testing.T) {
	needGit(t)
	src := t.TempDir()
	gitInit(t, src)
	write(t, src+"/.gitignore", "build/\n*.log\n/secret-ignored\n.env.local\n")
	write(t, src+"/main.go", "package main")
	write(t, src+"/build/tracked.txt", "tracked though ignored")
	write(t, src+"/gone", "deleted in the work tree")
	write(t, src+"/keep.pem", "tracked key")
	run(t, src, "git", "add", "-f", ".")
	run(t, src, "git", "commit", "-qm", "one")
	must(t, os.Remove(src+"/gone"))
	write(t, src+"/build/out.o", "ignored")
	write(t, src+"/x.log", "ignored")
	write(t, src+"/sub/new.go", "untracked")
	write(t, src+"/.env", "SECRET=1")
	write(t, src+"/id_rsa", "key")
	write(t, src+"/.env.local", "ignored secret")
	write(t, src+"/new\nname", "n")
	must(t, os.MkdirAll(src+"/empty/dir", 0o755))
	must(t, os.MkdirAll(src+"/node_modules/x", 0o755))
	gitInit(t, src+"/inner")
	write(t, src+"/inner/file", "other repository")
	// What a filter, a monitor or a hook would leave behind if anything of the source's configuration were run.
	trap := src + "-trap"
	run(t, src, "git", "config", "core.fsmonitor", "touch "+trap+"; false")
	run(t, src, "git", "config", "filter.evil.clean", "touch "+trap)
	run(t, src, "git", "config", "core.hooksPath", src)
	write(t, src+"/.git/info/attributes", "* filter=evil\n")

	dest, o := copyOf(t, src)
	want := []string{".gitignore", "build", "build/tracked.txt", "empty", "empty/dir", "inner", "keep.pem", "main.go", "new\nname", "node_modules", "node_modules/x", "sub", "sub/new.go"}
	if got := paths(o.Base); !slices.Equal(got, want) || !o.Git {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	var secrets []string
	for _, s := range o.Skipped {
		if s.Secret {
			secrets = append(secrets, string(s.Path))
		}
	}
	if !slices.Equal(secrets, []string{".env", "id_rsa"}) {
		t.Errorf("secrets left out: %q", secrets)
	}
	if len(o.Nested) != 1 || string(o.Nested[0]) != "inner" {
		t.Errorf("nested: %q", o.Nested)
	}
	if _, err := os.Lstat(trap); err == nil {
		t.Error("the source's configuration was executed")
	}

	_, o = copyOf(t, src, "build/**", ".env")
	got := paths(o.Base)
	if !slices.Contains(got, "build/out.o") || !slices.Contains(got, ".env") || slices.Contains(got, "x.log") || slices.Contains(got, "id_rsa") {
		t.Errorf("included: %q", got)
	}

	// What an agent does to .gitignore later changes nothing.
	must(t, os.WriteFile(dest+"/.gitignore", []byte("*\n!build/\n"), 0o644))
	write(t, dest+"/build/artefact.o", "ignored by the old rules")
	write(t, dest+"/hidden.go", "ignored by the new ones only")
	_, o2 := copyOf(t, src)
	now, ignored := scanned(t, dest, OpenRecord{Tree: idAt(t, dest), Rules: o2.Rules, Base: o2.Base})
	var changed []string
	for _, c := range Compare(o2.Base, now) {
		changed = append(changed, string(c.Kind)+" "+c.Path)
	}
	if !slices.Equal(changed, []string{"modified .gitignore", "added hidden.go"}) || ignored != 1 {
		t.Errorf("%q, %d ignored", changed, ignored)
	}
}

func idAt(t *testing.T, dir string) RootID {
	t.Helper()
	r, err := safefs.OpenRoot(dir)
	must(t, err)
	defer r.Close()
	return idOf(r)
}

func TestCopyOfADirectoryWithinARepository(t *testing.T) {
	needGit(t)
	top := t.TempDir()
	gitInit(t, top)
	write(t, top+"/.gitignore", "/app/out\n*.tmp\nscratch/\n")
	write(t, top+"/app/main.go", "m")
	write(t, top+"/app/out/x", "o")
	write(t, top+"/app/a.tmp", "t")
	write(t, top+"/scratch/project/file", "f")
	_, o := copyOf(t, top+"/app")
	if got := paths(o.Base); !slices.Equal(got, []string{"main.go"}) {
		t.Errorf("app: %q", got)
	}
	_, o = copyOf(t, top+"/scratch/project")
	if got := paths(o.Base); !slices.Equal(got, []string{"file"}) || o.Git {
		t.Errorf("a source that the repository around it ignores: %q, git %v", got, o.Git)
	}
}

func TestCopyOfALinkedWorktreeLeavesTheRepositoryAlone(t *testing.T) {
	needGit(t)
	main := t.TempDir()
	gitInit(t, main)
	write(t, main+"/f", "x")
	run(t, main, "git", "add", ".")
	run(t, main, "git", "commit", "-qm", "one")
	linked := filepath.Join(t.TempDir(), "linked")
	run(t, main, "git", "worktree", "add", "-q", linked)
	before := listing(t, main+"/.git")
	write(t, main+"/.git/worktrees/linked/index.lock", "stale")
	dest, o := copyOf(t, linked)
	must(t, os.Remove(main+"/.git/worktrees/linked/index.lock"))
	if got := paths(o.Base); !slices.Equal(got, []string{"f"}) {
		t.Errorf("%q", got)
	}
	if info, err := os.Lstat(dest + "/.git"); err != nil || !info.IsDir() {
		t.Errorf("the copy has no repository of its own: %v", err)
	}
	run(t, dest, "git", "worktree", "prune")
	run(t, dest, "git", "gc", "-q", "--prune=now")
	if after := listing(t, main+"/.git"); !slices.Equal(before, after) {
		t.Error("the repository was changed")
	}
}

func TestGitMissingIsSaid(t *testing.T) {
	src := t.TempDir()
	must(t, os.Mkdir(src+"/.git", 0o755))
	t.Setenv("PATH", t.TempDir())
	_, err := Copy(context.Background(), CopyRequest{Source: src, Dest: filepath.Join(t.TempDir(), "tree")})
	if !failure.Is(err, failure.NotReady) || !strings.Contains(err.Error(), "git is not on PATH") {
		t.Errorf("%v", err)
	}
}

func TestCopyRefusesOurOwnState(t *testing.T) {
	home := t.TempDir()
	state := home + "/.laufwerk"
	write(t, state+"/workspaces/x/f", "x")
	write(t, home+"/project/f", "x")
	for _, src := range []string{state, state + "/workspaces/x"} {
		_, err := Copy(context.Background(), CopyRequest{Source: src, Dest: filepath.Join(t.TempDir(), "tree"), State: state})
		if !failure.Is(err, failure.InputInvalid) {
			t.Errorf("%s: %v", src, err)
		}
		if _, err := OpenDirect(src, state); !failure.Is(err, failure.InputInvalid) {
			t.Errorf("direct %s: %v", src, err)
		}
	}
	dest := state + "/workspaces/tree"
	o, err := Copy(context.Background(), CopyRequest{Source: home, Dest: dest, State: state})
	must(t, err)
	if got := paths(o.Base); !slices.Equal(got, []string{"project", "project/f"}) {
		t.Errorf("a source that contains the state: %q", got)
	}
}

func TestAFailedCopyLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	dest := dir + "/tree"
	write(t, dir+"/src/a", "a")
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if _, err := Copy(ctx, CopyRequest{Source: dir + "/src", Dest: dest}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := os.Lstat(dest); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the half copy is still there")
	}
	write(t, dest+"/mine", "m")
	if _, err := Copy(context.Background(), CopyRequest{Source: dir + "/src", Dest: dest}); !failure.Is(err, failure.AlreadyExists) {
		t.Errorf("%v", err)
	}
	if b, _ := os.ReadFile(dest + "/mine"); string(b) != "m" {
		t.Error("something that was there was touched")
	}
}

func TestSparseFilesStaySparse(t *testing.T) {
	src := t.TempDir()
	f, err := os.Create(src + "/sparse")
	must(t, err)
	must(t, f.Truncate(64<<20))
	_, err = f.WriteAt([]byte("end"), 64<<20-3)
	must(t, err)
	f.Close()
	dest, _ := copyOf(t, src)
	var st unix.Stat_t
	must(t, unix.Stat(dest+"/sparse", &st))
	if st.Size != 64<<20 || st.Blocks*512 > 8<<20 {
		t.Errorf("size %d, %d bytes on disk", st.Size, st.Blocks*512)
	}
}

func TestScanSeesEveryKindOfHostileContent(t *testing.T) {
	src := t.TempDir()
	write(t, src+"/f", "1")
	write(t, src+"/d/f", "1")
	write(t, src+"/link-me", "1")
	write(t, src+"/touched", "same length")
	dest, o := copyOf(t, src)
	must(t, unix.Mkfifo(dest+"/fifo", 0o644))
	sock, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	must(t, err)
	defer unix.Close(sock)
	must(t, unix.Bind(sock, &unix.SockaddrUnix{Name: dest + "/sock"}))
	must(t, os.RemoveAll(dest+"/d"))
	must(t, os.Symlink("/etc", dest+"/d"))
	must(t, os.Remove(dest+"/link-me"))
	must(t, os.Symlink("/etc/passwd", dest+"/link-me"))
	write(t, dest+"/new\nname", "n")
	write(t, dest+"/bad\xfe", "a")
	write(t, dest+"/bad\xff", "b")
	write(t, dest+"/.GIT/config", "[core]")
	// The times are forged as well as a user can: only the content differs.
	st, err := os.Stat(dest + "/touched")
	must(t, err)
	must(t, os.WriteFile(dest+"/touched", []byte("SAME LENGTH"), 0o644))
	must(t, os.Chtimes(dest+"/touched", st.ModTime(), st.ModTime()))
	must(t, os.Chmod(dest+"/f", 0o755))

	now, _ := scanned(t, dest, o)
	var got []string
	for _, c := range Compare(o.Base, now) {
		got = append(got, fmt.Sprintf("%s %s", c.Kind, c.Path))
	}
	want := []string{"added .GIT", "added .GIT/config", "added bad\xfe", "added bad\xff", "link d", "deleted d/f", "mode f", "added fifo", "link link-me", "added new\nname", "added sock", "modified touched"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if e, _ := now.Find("fifo"); e.Type != Other || string(e.Link) != "fifo" {
		t.Errorf("fifo: %+v", e)
	}
}

func TestALostWorkspaceIsSaid(t *testing.T) {
	src := t.TempDir()
	write(t, src+"/f", "1")
	for name, lose := range map[string]func(dest string) error{
		"gone":              os.RemoveAll,
		"link":              func(d string) error { return errors.Join(os.Rename(d, d+"2"), os.Symlink(d+"2", d)) },
		"another directory": func(d string) error { return errors.Join(os.Rename(d, d+"2"), os.Mkdir(d, 0o755)) },
		"a file":            func(d string) error { return errors.Join(os.Rename(d, d+"2"), os.WriteFile(d, nil, 0o644)) },
	} {
		t.Run(name, func(t *testing.T) {
			dest, o := copyOf(t, src)
			open := openTree(t, dest, o)
			must(t, lose(dest))
			if _, err := OpenTree(dest, o.Tree); !failure.Is(err, failure.WorkspaceLost) {
				t.Errorf("OpenTree: %v", err)
			}
			if _, _, err := Scan(context.Background(), open, ScanOptions{Base: &o.Base}); !failure.Is(err, failure.WorkspaceLost) {
				t.Errorf("Scan: %v", err)
			}
		})
	}
}

func TestAMountInTheWorkspaceIsNotEntered(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	src := t.TempDir()
	write(t, src+"/d/f", "1")
	dest, o := copyOf(t, src)
	outside := t.TempDir()
	write(t, outside+"/secret", "s")
	if err := unix.Mount(outside, dest+"/d", "", unix.MS_BIND, ""); err != nil {
		t.Skipf("cannot mount here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dest+"/d", unix.MNT_DETACH) })
	now, _ := scanned(t, dest, o)
	if e, _ := now.Find("d"); e.Type != Other || string(e.Link) != Mounted {
		t.Errorf("%+v", e)
	}
	if len(now.Entries) != 1 {
		t.Errorf("%q", paths(now))
	}
}

func TestManifestFile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := randomManifest(t, "m")
		var b bytes.Buffer
		if err := writeManifest(&b, m); err != nil {
			t.Fatal(err)
		}
		got, err := readManifest(bytes.NewReader(b.Bytes()))
		if err != nil || got.Root != m.Root || !slices.EqualFunc(got.Entries, m.Entries, func(a, b Entry) bool {
			return a.Same(b) && a.Path == b.Path && a.MTime == b.MTime && a.CTime == b.CTime && a.Inode == b.Inode
		}) {
			t.Fatalf("%v\n%+v\n%+v", err, m, got)
		}
		cut := b.Bytes()[:rapid.IntRange(0, b.Len()-1).Draw(t, "cut")]
		if _, err := readManifest(bytes.NewReader(cut)); err == nil {
			t.Fatal("a cut file was accepted")
		}
		flipped := bytes.Clone(b.Bytes())
		flipped[rapid.IntRange(0, b.Len()-1).Draw(t, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if _, err := readManifest(bytes.NewReader(flipped)); err == nil {
			t.Fatal("a damaged file was accepted")
		}
	})
	file := filepath.Join(t.TempDir(), "base")
	must(t, SaveManifest(file, Manifest{Entries: []Entry{{Path: "a", Type: Dir}}}))
	must(t, SaveManifest(file, Manifest{Entries: []Entry{{Path: "b", Type: Dir}}}))
	if m, err := LoadManifest(file); err != nil || m.Entries[0].Path != "b" {
		t.Errorf("%+v, %v", m, err)
	}
	must(t, os.WriteFile(file, []byte(manifestMagic+"2.0\n"), 0o600))
	if _, err := LoadManifest(file); !failure.Is(err, failure.StoreNewer) {
		t.Errorf("%v", err)
	}
}

func randomManifest(t *rapid.T, label string) Manifest {
	name := rapid.OneOf(rapid.SampledFrom([]string{"a", "b", "Makefile", ".github", "x\ny", "\xff\xfe", "é", "a b", "\x1b[31m"}), rapid.StringMatching(`[a-z]{1,3}`))
	sum := rapid.SampledFrom([]string{strings.Repeat("a", 64), strings.Repeat("b", 64), strings.Repeat("0", 64)})
	seen := map[string]bool{}
	var m Manifest
	m.Root = RootID{rapid.Uint64().Draw(t, label+"dev"), rapid.Uint64().Draw(t, label+"ino")}
	for range rapid.IntRange(0, 12).Draw(t, label+"n") {
		p := strings.Join(rapid.SliceOfN(name, 1, 3).Draw(t, label+"path"), "/")
		if seen[p] {
			continue
		}
		seen[p] = true
		e := Entry{Path: p, Type: rapid.SampledFrom([]Type{File, Dir, Symlink, Other}).Draw(t, label+"type"), Mode: rapid.SampledFrom([]uint32{0o644, 0o755, 0o600}).Draw(t, label+"mode")}
		switch e.Type {
		case File:
			e.Size, e.SHA256 = rapid.Int64Range(0, 1<<40).Draw(t, label+"size"), sum.Draw(t, label+"sum")
			e.MTime, e.CTime, e.Inode = rapid.Int64().Draw(t, label+"m"), rapid.Int64().Draw(t, label+"c"), rapid.Uint64().Draw(t, label+"i")
		case Symlink, Other:
			e.Link = []byte("to\xff" + sum.Draw(t, label+"to"))
		}
		m.Entries = append(m.Entries, e)
	}
	slices.SortFunc(m.Entries, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	return m
}

func TestCompareAndTheDifferenceNeverLoseAPath(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := randomManifest(t, "a"), randomManifest(t, "b")
		changes := Compare(a, b)
		if !slices.IsSortedFunc(changes, func(x, y Change) int { return strings.Compare(x.Path, y.Path) }) {
			t.Fatal("not sorted")
		}
		of := map[string]Change{}
		for _, c := range changes {
			of[c.Path] = c
		}
		for _, p := range append(paths(a), paths(b)...) {
			x, inA := a.Find(p)
			y, inB := b.Find(p)
			same := inA && inB && x.Same(y)
			c, changed := of[p]
			if same == changed {
				t.Fatalf("%q: same %v, in the changes %v", p, same, changed)
			}
			if changed && ((c.Before != nil) != inA || (c.After != nil) != inB) {
				t.Fatalf("%q: %+v", p, c)
			}
		}
		f := Freeze{Changes: changes, Digest: digest(changes), Dir: "/nonexistent"}
		var back storedFreeze
		doc, err := f.encode()
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(doc, &back); err != nil || !bytes.Equal(back.Changes, canonicalChanges(changes)) {
			t.Fatalf("%v", err)
		}
		var list strings.Builder
		section(&list, "x", changes)
		if got := strings.Count(list.String(), "\n"); len(changes) > 0 && got != len(changes)+1 {
			t.Fatalf("%d lines for %d changes:\n%s", got, len(changes), list.String())
		}
		for _, c := range changes {
			if !strings.Contains(list.String(), " "+redact.Line(c.Path)) {
				t.Fatalf("%q is not in the list", c.Path)
			}
		}
		if len(PublicChanges(changes)) != len(changes) {
			t.Fatal("the surface loses changes")
		}
	})
}

func TestDigestsDistinguishNames(t *testing.T) {
	one := func(p string) string { return digest([]Change{{Path: p, Kind: Added, After: &Entry{Type: Dir}}}) }
	seen := map[string]string{}
	for _, p := range []string{"a\xff", "a\xfe", "a\ufffd", "a", "a/b", "a\nb"} {
		if other, ok := seen[one(p)]; ok {
			t.Errorf("%q and %q have one digest", p, other)
		}
		seen[one(p)] = p
	}
}

func TestRunsOnHost(t *testing.T) {
	for _, p := range []string{
		".github/workflows/ci.yml", ".GitHub/Workflows/x", ".gitlab-ci.yml", ".envrc", ".env", "sub/.env.production", ".tool-versions", "mise.toml",
		".vscode/tasks.json", ".devcontainer/devcontainer.json", "package.json", "a/PACKAGE.JSON", "Makefile", "makefile.am", "build.rs", "go.mod", "rust-toolchain.toml",
		"conftest.py", "jest.config.ts", ".husky/pre-commit", ".pre-commit-config.yaml", ".gitattributes", ".gitmodules", "AGENTS.md", "x/CLAUDE.md", ".codex/config.toml",
		".claude/settings.json", ".mcp.json", "MAKEFILE", "Make\u200bfile", "ＭＡＫＥＦＩＬＥ", "Makefile. ", "run.sh", ".\u200cgithub/x", "laufwerk/laufwerk.config.ts", ".GIT/config",
	} {
		if newClassifier().reasonFor(p) == "" {
			t.Errorf("%q is not classified", p)
		}
	}
	for _, p := range []string{"main.go", "src/app.ts", "README.md", "docs/github.md", "environment.md", "makefiles/readme.txt"} {
		if why := newClassifier().reasonFor(p); why != "" {
			t.Errorf("%q is classified: %s", p, why)
		}
	}
	for _, c := range []struct {
		before, after *Entry
		want          bool
	}{
		{nil, &Entry{Type: File, Mode: 0o755}, true},
		{&Entry{Type: File, Mode: 0o644}, &Entry{Type: File, Mode: 0o645}, true},
		{&Entry{Type: File, Mode: 0o755}, &Entry{Type: File, Mode: 0o755, SHA256: "x"}, false},
		{nil, &Entry{Type: File, Mode: 0o644}, false},
		{nil, &Entry{Type: Symlink, Mode: 0o777, Link: []byte("../.git/hooks")}, true},
		{nil, &Entry{Type: Dir, Mode: 0o755}, false},
	} {
		if got := newClassifier().classify(Change{Path: "x", Before: c.before, After: c.after}).RunsOnHost; got != c.want {
			t.Errorf("%+v → %+v: %v", c.before, c.after, got)
		}
	}
}

func freeze(t *testing.T, dest string, o OpenRecord, dir string) (Freeze, error) {
	t.Helper()
	return MakeFreeze(context.Background(), FreezeRequest{Root: openTree(t, dest, o), Base: o.Base, Rules: o.Rules, Source: o.Source, SourceRoot: o.Root, Dir: dir, Now: time.Now})
}

func TestFreeze(t *testing.T) {
	src := t.TempDir()
	write(t, src+"/changed", "one\ntwo\nthree\n")
	write(t, src+"/edited-in-source", "before\n")
	write(t, src+"/deleted", "bye\n")
	write(t, src+"/image", "\x00binary")
	dest, o := copyOf(t, src)
	write(t, dest+"/changed", "one\n2\nthree\n")
	write(t, dest+"/edited-in-source", "after\n")
	must(t, os.Remove(dest+"/deleted"))
	write(t, dest+"/image", "\x00other\x1b[31m")
	write(t, dest+"/Makefile", "all:\x00\n\techo \x1b[2J\u202e\n")
	write(t, dest+"/bad\xffname\n", "no newline at the end")
	write(t, dest+"/.gitattributes", "* -diff\n")
	must(t, os.Symlink("../outside\x1b", dest+"/link"))
	write(t, src+"/edited-in-source", "someone else\n")
	dir := filepath.Join(t.TempDir(), "freezes")

	f, err := freeze(t, dest, o, dir)
	must(t, err)
	again, err := freeze(t, dest, o, dir)
	must(t, err)
	if again.Digest != f.Digest || again.Dir != f.Dir || !again.At.Equal(f.At) {
		t.Errorf("frozen twice: %s at %s, then %s at %s", f.Digest, f.At, again.Digest, again.At)
	}
	loaded, err := LoadFreeze(f.Dir)
	must(t, err)
	if digest(loaded.Changes) != f.Digest || loaded.Source != src || loaded.Root != o.Root || len(loaded.Changes) != 8 {
		t.Errorf("%+v", loaded)
	}
	for _, c := range loaded.Changes {
		if c.After != nil && c.After.Type == File {
			if b, err := loaded.Blob(c.After.SHA256, 1<<20); err != nil || int64(len(b)) != c.After.Size {
				t.Errorf("%q: %v", c.Path, err)
			}
		}
	}
	if got, _ := os.ReadDir(dir); len(got) != 1 {
		t.Errorf("left beside the freeze: %v", got)
	}

	text, err := Render(loaded)
	must(t, err)
	if redact.Terminal(text) != text {
		t.Errorf("foreign bytes came through:\n%q", text)
	}
	for _, want := range []string{
		"Runs on this host (2 paths):\n  added    .gitattributes  [git configuration]\n  added    Makefile  [build script]\n",
		"Other changes (6 paths):\n", `bad\xffname\n`, "-two\n+2\n", "-bye\n", `\x1b[2J\u202e`, "(not shown: binary; before: 7 bytes, sha256 ",
		"(the source no longer holds what was there before; this is the whole new content)\n+after\n", `link to ../outside\x1b`, "\\ No newline at end of file",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("missing %q in\n%s", want, text)
		}
	}
	if strings.Index(text, "+++ after/Makefile") > strings.Index(text, "+++ after/changed") {
		t.Error("what runs on this host must come first")
	}

	write(t, dest+"/changed", "one\n3\nthree\n")
	must(t, os.Remove(dest+"/link"))
	later, err := freeze(t, dest, o, filepath.Join(t.TempDir(), "later"))
	must(t, err)
	if later.Digest == loaded.Digest {
		t.Error("a workspace that changed has the digest that was approved")
	}
	var differ []string
	for _, c := range loaded.Changes {
		if !slices.ContainsFunc(later.Changes, func(l Change) bool { return digest([]Change{l}) == digest([]Change{c}) }) {
			differ = append(differ, c.Path)
		}
	}
	if len(later.Changes) != len(loaded.Changes)-1 || !slices.Equal(differ, []string{"changed", "link"}) {
		t.Errorf("%d changes, and these are others: %q", len(later.Changes), differ)
	}

	blob := loaded.BlobPath(loaded.Changes[0].After.SHA256)
	must(t, os.WriteFile(blob, []byte("* diff\n\n"), 0o600))
	if _, err := Render(loaded); !failure.Is(err, failure.StoreInvalid) {
		t.Errorf("a tampered content: %v", err)
	}
	doc, err := os.ReadFile(f.Dir + "/freeze.json")
	must(t, err)
	must(t, os.WriteFile(f.Dir+"/freeze.json", bytes.Replace(doc, []byte(`"Makefile"`), []byte(`"main.c"`), 1), 0o600))
	if _, err := LoadFreeze(f.Dir); !failure.Is(err, failure.StoreInvalid) {
		t.Errorf("a tampered list: %v", err)
	}
}

func TestAHalfFreezeDoesNotCount(t *testing.T) {
	src := t.TempDir()
	write(t, src+"/f", "1")
	dest, o := copyOf(t, src)
	write(t, dest+"/f", "2")
	dir := t.TempDir()
	write(t, dir+"/.half-freeze/blobs/x", "killed before the rename")
	f, err := freeze(t, dest, o, dir)
	must(t, err)
	must(t, os.Remove(f.BlobPath(f.Changes[0].After.SHA256)))
	f, err = freeze(t, dest, o, dir)
	must(t, err)
	if _, err := f.Blob(f.Changes[0].After.SHA256, 10); err != nil {
		t.Errorf("the missing content was not frozen again: %v", err)
	}
	for _, sum := range []string{f.Changes[0].After.SHA256, f.Changes[0].Before.SHA256} {
		must(t, os.WriteFile(f.BlobPath(sum), []byte("3"), 0o600))
		f, err = freeze(t, dest, o, dir)
		must(t, err)
		if _, err := f.Blob(sum, 10); err != nil {
			t.Errorf("the damaged content was not frozen again: %v", err)
		}
	}
}

func TestBoundsOfAFreeze(t *testing.T) {
	src := t.TempDir()
	write(t, src+"/f", "1")
	dest, o := copyOf(t, src)
	write(t, dest+"/a", "12345")
	write(t, dest+"/b", "12345")
	for _, b := range []Bounds{{Files: 1}, {Bytes: 9}, {Entries: 2}} {
		_, err := MakeFreeze(context.Background(), FreezeRequest{Root: openTree(t, dest, o), Base: o.Base, Source: src, SourceRoot: o.Root, Dir: t.TempDir(), Bounds: b, Now: time.Now})
		if !failure.Is(err, failure.LimitExceeded) {
			t.Errorf("%+v: %v", b, err)
		}
	}
	// A file that would take days to read is not read.
	write(t, dest+"/endless", "")
	must(t, os.Truncate(dest+"/endless", 4<<40))
	_, err := MakeFreeze(context.Background(), FreezeRequest{Root: openTree(t, dest, o), Base: o.Base, Source: src, SourceRoot: o.Root, Dir: t.TempDir(), Now: time.Now})
	if f := failure.As(err); f == nil || f.Kind != failure.LimitExceeded || len(f.Paths) != 1 || f.Paths[0] != "endless" {
		t.Errorf("%v", err)
	}
}

// as runs a test of this binary as a user that is not root.
func asNobody(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		return false
	}
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip("setpriv is needed to become another user")
	}
	dir, err := os.MkdirTemp("", "nobody")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	self, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	must(t, os.WriteFile(dir+"/test", self, 0o755)) //nolint:gosec // another user runs it
	must(t, os.Mkdir(dir+"/tmp", 0o777))
	must(t, os.Chmod(dir, 0o755))
	must(t, os.Chmod(dir+"/tmp", 0o777)) //nolint:gosec // another user writes it
	cmd := exec.Command(setpriv, "--reuid", "65534", "--regid", "65534", "--clear-groups", dir+"/test", "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = []string{"TMPDIR=" + dir + "/tmp", "HOME=" + dir + "/tmp", "PATH=" + os.Getenv("PATH")}
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Errorf("as user 65534: %v\n%s", err, out)
	}
	return true
}

func TestUnreadablePathsAreAllNamed(t *testing.T) {
	if asNobody(t) {
		return
	}
	src := t.TempDir()
	write(t, src+"/ok", "x")
	write(t, src+"/a", "x")
	write(t, src+"/b", "x")
	write(t, src+"/d/f", "x")
	for _, p := range []string{"/a", "/b", "/d"} {
		must(t, os.Chmod(src+p, 0))
	}
	t.Cleanup(func() { _ = os.Chmod(src+"/d", 0o755) })
	dest := filepath.Join(t.TempDir(), "tree")
	_, err := Copy(context.Background(), CopyRequest{Source: src, Dest: dest})
	if !failure.Is(err, failure.NotReady) || !slices.Equal(failure.As(err).Paths, []string{"a", "b", "d"}) {
		t.Errorf("%v", err)
	}
	if _, err := os.Lstat(dest); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the half copy is still there")
	}
}

func TestUnreadablePathsOfAWorkspaceAreNotTakenForDeleted(t *testing.T) {
	if asNobody(t) {
		return
	}
	src := t.TempDir()
	write(t, src+"/f", "x")
	write(t, src+"/d/f", "x")
	dest, o := copyOf(t, src)
	must(t, os.Chmod(dest+"/f", 0))
	must(t, os.Chmod(dest+"/d", 0))
	t.Cleanup(func() { _ = os.Chmod(dest+"/d", 0o755) })
	now, _ := scanned(t, dest, o)
	for p, what := range map[string]string{"f": UnreadableFile, "d": UnreadableDir} {
		if e, ok := now.Find(p); !ok || e.Type != Other || string(e.Link) != what {
			t.Errorf("%s: %+v", p, e)
		}
	}
}

func intent(dir, source, mode string) resource.Intent {
	spec, _ := json.Marshal(Spec{Dir: dir, Source: source, Mode: mode}) //nolint:errchkjson // strings
	return resource.Intent{Claim: "c1", Name: filepath.Base(dir), Owner: "o1", Spec: spec}
}

func TestResources(t *testing.T) {
	ctx := context.Background()
	src := t.TempDir()
	write(t, src+"/f", "x")
	home := t.TempDir()
	r := NewResources(home, Bounds{}, time.Now, nil)
	dir := home + "/workspaces/w1"
	in := intent(dir, src, ModeCopy)
	if o := r.Observe(ctx, in); o.Presence != resource.Absent {
		t.Fatalf("%+v", o)
	}
	res := r.Create(ctx, in)
	if res.Outcome != resource.Done || res.Err != nil {
		t.Fatalf("%+v", res)
	}
	o, err := LoadOpenRecord(dir)
	must(t, err)
	write(t, TreePath(dir, o)+"/f", "the agent's work")
	if again := r.Resolve(ctx, in); again.Outcome != resource.Done || again.Resource != res.Resource {
		t.Errorf("%+v", again)
	}
	if b, _ := os.ReadFile(TreePath(dir, o) + "/f"); string(b) != "the agent's work" {
		t.Error("resolving a complete workspace made it anew")
	}
	if _, err := FreezeDirectory(ctx, home+"/workspaces/removed-by-its-agent", t.TempDir(), time.Now); !failure.Is(err, failure.WorkspaceLost) {
		t.Errorf("a folder that is gone: %v", err)
	}
	if o := r.Observe(ctx, in); o.Presence != resource.Present {
		t.Errorf("%+v", o)
	}
	if d := r.Delete(ctx, in); d.Outcome != resource.Done || d.Err != nil {
		t.Errorf("%+v", d)
	}
	if o := r.Observe(ctx, in); o.Presence != resource.Absent {
		t.Errorf("%+v", o)
	}
	if got, _ := os.ReadDir(home + "/workspaces"); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
	if d := r.Delete(ctx, in); d.Outcome != resource.Done || d.Err != nil {
		t.Errorf("twice: %+v", d)
	}

	direct := intent(home+"/workspaces/w2", src, ModeDirect)
	if res := r.Create(ctx, direct); res.Outcome != resource.Done {
		t.Fatalf("%+v", res)
	}
	o, err = LoadOpenRecord(home + "/workspaces/w2")
	must(t, err)
	if TreePath(home+"/workspaces/w2", o) != src || o.Tree != idAt(t, src) {
		t.Errorf("%+v", o)
	}
	if d := r.Delete(ctx, direct); d.Outcome != resource.Done {
		t.Errorf("%+v", d)
	}
	if b, _ := os.ReadFile(src + "/f"); string(b) != "x" {
		t.Error("the source of a direct workspace was touched")
	}
}

func TestAStrangersDirectoryIsNeverTouched(t *testing.T) {
	ctx := context.Background()
	src := t.TempDir()
	home := t.TempDir()
	dir := home + "/workspaces/w1"
	for name, plant := range map[string]func(){
		"a directory":             func() { write(t, dir+"/precious", "p") },
		"with another's identity": func() { write(t, dir+"/identity", `{"claim":"c9","owner":"o1","name":"w1"}`) },
		"with a link as identity": func() { must(t, os.MkdirAll(dir, 0o755)); must(t, os.Symlink("/etc/passwd", dir+"/identity")) },
		"a file":                  func() { write(t, dir, "p") },
		"a link": func() {
			write(t, home+"/elsewhere/identity", `{"claim":"c1","owner":"o1","name":"w1"}`)
			must(t, os.MkdirAll(filepath.Dir(dir), 0o755))
			must(t, os.Symlink(home+"/elsewhere", dir))
		},
		"an empty one":           func() { must(t, os.MkdirAll(dir, 0o755)) },
		"one where ours is made": func() { write(t, home+"/workspaces/.w1.part/precious", "p") },
	} {
		t.Run(name, func(t *testing.T) {
			defer os.RemoveAll(home + "/workspaces")
			defer os.RemoveAll(home + "/elsewhere")
			plant()
			before := listing(t, home)
			r := NewResources(home, Bounds{}, time.Now, nil)
			in := intent(dir, src, ModeCopy)
			if res := r.Create(ctx, in); res.Outcome == resource.Done || !failure.Is(res.Err, failure.AlreadyExists) {
				t.Errorf("%+v", res)
			}
			if res := r.Resolve(ctx, in); res.Outcome != resource.NotDone {
				t.Errorf("%+v", res)
			}
			if name != "one where ours is made" {
				if o := r.Observe(ctx, in); o.Presence != resource.Foreign {
					t.Errorf("%+v", o)
				}
			}
			r.Delete(ctx, in)
			if after := listing(t, home); !slices.Equal(before, after) {
				t.Errorf("before\n%s\nafter\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
			}
		})
	}
}

// A worker that was killed before it made anything: nothing was made, so that giving the claim up copies nothing.
func TestNothingIsMadeOnlyToBeFoundOutAbout(t *testing.T) {
	home := t.TempDir()
	for range 2 { // without the directory of workspaces, and with it
		r := NewResources(home, Bounds{}, time.Now, nil)
		in := intent(home+"/workspaces/w1", t.TempDir(), ModeCopy)
		if res := r.Resolve(t.Context(), in); res.Outcome != resource.NotDone || res.Err == nil || len(res.Evidence) == 0 {
			t.Errorf("%+v", res)
		}
		if _, err := os.Lstat(home + "/workspaces/w1"); err == nil {
			t.Error("it was made")
		}
		must(t, os.MkdirAll(home+"/workspaces", 0o700))
	}
}

// What laufwerk itself has in a source for a moment is not copied.
func TestWhatLaufwerkIsAtWorkOnIsLeftOut(t *testing.T) {
	src, dest := t.TempDir(), t.TempDir()+"/tree"
	for _, name := range []string{".laufwerk-writeback-0a1b/n1", ".laufwerk-init-7/config", ".laufwerk-init.json", "sub/.laufwerk-init/kept", "f"} {
		write(t, src+"/"+name, "x")
	}
	o, err := Copy(t.Context(), CopyRequest{Source: src, Dest: dest})
	must(t, err)
	got := strings.Join(listing(t, dest), "\n")
	if strings.Contains(got, "writeback") || strings.Contains(got, "init-7") || strings.Contains(got, "init.json") || !strings.Contains(got, "sub/.laufwerk-init/kept") {
		t.Errorf("%s", got)
	}
	if len(o.Skipped) != 3 {
		t.Errorf("%+v", o.Skipped)
	}
}

func TestAKilledCreateIsFinished(t *testing.T) {
	ctx := context.Background()
	src := t.TempDir()
	write(t, src+"/f", "x")
	id := `{"claim":"c1","owner":"o1","name":"w1"}`
	for name, leave := range map[string]func(ws string){
		"an empty twin":     func(ws string) { must(t, os.MkdirAll(ws+"/.w1.part", 0o700)) },
		"a torn identity":   func(ws string) { write(t, ws+"/.w1.part/.tmp-123", "{") },
		"a twin of ours":    func(ws string) { write(t, ws+"/.w1.part/identity", id) },
		"only the identity": func(ws string) { write(t, ws+"/w1/identity", id) },
		"half a tree":       func(ws string) { write(t, ws+"/w1/identity", id); write(t, ws+"/w1/tree/half", "h") },
		"no record of it": func(ws string) {
			write(t, ws+"/w1/identity", id)
			write(t, ws+"/w1/tree/f", "x")
			write(t, ws+"/w1/base", "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			leave(home + "/workspaces")
			r := NewResources(home, Bounds{}, time.Now, nil)
			in := intent(home+"/workspaces/w1", src, ModeCopy)
			if res := r.Resolve(ctx, in); res.Outcome != resource.Done || res.Err != nil {
				t.Fatalf("%+v", res)
			}
			if got := listing(t, home+"/workspaces/w1/tree"); len(got) != 1 {
				t.Errorf("%q", got)
			}
			must(t, os.RemoveAll(home))
			leave(home + "/workspaces")
			if d := r.Delete(ctx, in); d.Outcome != resource.Done || d.Err != nil {
				t.Errorf("delete: %+v", d)
			}
			if o := r.Observe(ctx, in); o.Presence != resource.Absent {
				t.Errorf("%+v", o)
			}
			if got, _ := os.ReadDir(home + "/workspaces"); len(got) != 0 {
				t.Errorf("left: %v", got)
			}
		})
	}
}

func TestAFailedCreateLeavesNothing(t *testing.T) {
	home := t.TempDir()
	r := NewResources(home, Bounds{}, time.Now, nil)
	in := intent(home+"/workspaces/w1", home+"/no-such-source", ModeCopy)
	if res := r.Create(context.Background(), in); res.Outcome != resource.NotDone || !failure.Is(res.Err, failure.InputInvalid) {
		t.Errorf("%+v", res)
	}
	if o := r.Observe(context.Background(), in); o.Presence != resource.Absent {
		t.Errorf("%+v", o)
	}
}

func TestDeleteNamesAMountAndSparesIt(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	ctx := context.Background()
	src, home, outside := t.TempDir(), t.TempDir(), t.TempDir()
	write(t, src+"/d/f", "x")
	write(t, outside+"/precious", "p")
	r := NewResources(home, Bounds{}, time.Now, nil)
	in := intent(home+"/workspaces/w1", src, ModeCopy)
	if res := r.Create(ctx, in); res.Outcome != resource.Done {
		t.Fatalf("%+v", res)
	}
	at := home + "/workspaces/w1/tree/d"
	if err := unix.Mount(outside, at, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("cannot mount here: %v", err)
	}
	defer func() { _ = unix.Unmount(at, unix.MNT_DETACH) }()
	res := r.Delete(ctx, in)
	if res.Outcome != resource.NotDone || !failure.Is(res.Err, failure.Retained) || !slices.Equal(failure.As(res.Err).Paths, []string{at}) {
		t.Errorf("%+v", res)
	}
	if o := r.Observe(ctx, in); o.Presence != resource.Present {
		t.Errorf("it must still be ours: %+v", o)
	}
	must(t, unix.Unmount(at, 0))
	if res := r.Delete(ctx, in); res.Outcome != resource.Done || res.Err != nil {
		t.Errorf("%+v", res)
	}
	if _, err := os.Stat(outside + "/precious"); err != nil {
		t.Error(err)
	}
}
