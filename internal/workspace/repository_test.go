package workspace

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// said is what git prints in a directory, hardened against nothing: these are our own fixtures.
func said(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// busySource is a repository with history, a remote, a tag, and every kind of uncommitted change.
func busySource(t *testing.T) string {
	t.Helper()
	needGit(t)
	src := t.TempDir()
	gitInit(t, src)
	for name, content := range map[string]string{"same": "same", "dir/deep/same": "deep", "modified": "one", "staged": "one", "deleted": "one", "both": "one", "run.sh": "echo", ".gitignore": "ignored\n"} {
		write(t, filepath.Join(src, name), content)
	}
	run(t, src, "git", "add", ".")
	run(t, src, "git", "commit", "-qm", "first: a secret in history")
	write(t, src+"/same2", "x")
	run(t, src, "git", "add", ".")
	run(t, src, "git", "commit", "-qm", "second")
	run(t, src, "git", "tag", "v1")
	run(t, src, "git", "branch", "other")
	run(t, src, "git", "remote", "add", "origin", "https://user:canary@example.com/x.git")
	run(t, src, "git", "config", "user.signingkey", "canary")
	write(t, src+"/modified", "two")
	write(t, src+"/staged", "two")
	write(t, src+"/both", "two")
	run(t, src, "git", "add", "staged", "both")
	write(t, src+"/both", "three")
	must(t, os.Remove(src+"/deleted"))
	write(t, src+"/untracked", "x")
	write(t, src+"/ignored", "x")
	must(t, os.Chmod(src+"/run.sh", 0o755))
	return src
}

func TestTheCopyHasARepositoryWithTheSourcesCommitAndChanges(t *testing.T) {
	src := busySource(t)
	before := said(t, src, "status", "--porcelain")
	dest, o := copyOf(t, src)
	if o.NoRepository != "" || !o.Rules.Repository {
		t.Fatalf("no repository: %s", o.NoRepository)
	}
	if got := said(t, dest, "status", "--porcelain"); got != before {
		t.Errorf("status in the copy:\n%s\nin the source:\n%s", got, before)
	}
	for _, args := range [][]string{{"rev-parse", "HEAD"}, {"symbolic-ref", "HEAD"}, {"diff", "HEAD"}, {"diff", "--cached"}, {"ls-files", "-s"}} {
		if here, there := said(t, dest, args...), said(t, src, args...); here != there {
			t.Errorf("git %v: %q in the copy, %q in the source", args, here, there)
		}
	}
	if n := said(t, dest, "rev-list", "--count", "--all"); n != "1" {
		t.Errorf("%s commits in the copy", n)
	}
	if refs := said(t, dest, "for-each-ref", "--format=%(refname)"); refs != said(t, src, "symbolic-ref", "HEAD") {
		t.Errorf("refs in the copy: %s", refs)
	}
	said(t, dest, "fsck", "--strict")
	for _, canary := range []string{"canary", "a secret in history"} {
		if out, err := exec.Command("grep", "-ra", canary, dest+"/.git").CombinedOutput(); err == nil {
			t.Errorf("%q is in the copy's repository: %s", canary, out)
		}
	}
	run(t, dest, "git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qam", "work in the copy")
	if head := said(t, src, "log", "-1", "--format=%s"); head != "second" {
		t.Errorf("the source has moved to %q", head)
	}
}

func TestTheRepositoryIsNoPartOfTheContent(t *testing.T) {
	src := busySource(t)
	dest, o := copyOf(t, src)
	write(t, dest+"/.git/hooks/post-checkout", "#!/bin/sh\n")
	write(t, dest+"/.git/config", "[core]\n\tfsmonitor = evil\n")
	write(t, dest+"/sub/.git/config", "x")
	root, err := OpenTree(dest, o.Tree)
	must(t, err)
	defer root.Close()
	now, _, err := Scan(t.Context(), root, ScanOptions{Rules: o.Rules, Base: &o.Base})
	must(t, err)
	var changed []string
	for _, c := range Compare(o.Base, now) {
		changed = append(changed, c.Path)
	}
	if got := strings.Join(changed, " "); got != "sub sub/.git sub/.git/config" {
		t.Errorf("changes: %s", got)
	}
	must(t, os.RemoveAll(dest+"/.git"))
	write(t, dest+"/.git", "gitdir: /elsewhere\n")
	now, _, err = Scan(t.Context(), root, ScanOptions{Rules: o.Rules, Base: &o.Base})
	must(t, err)
	if _, ok := now.Find(".git"); !ok {
		t.Error("a gitfile in the place of the repository is not listed")
	}
}

func TestUnchangedFilesAreNotHashedAgain(t *testing.T) {
	needGit(t)
	src := t.TempDir()
	gitInit(t, src)
	write(t, src+"/a", "aaaa")
	write(t, src+"/b", "bbbb")
	run(t, src, "git", "add", ".")
	run(t, src, "git", "commit", "-qm", "one")
	// The index must be younger than what it knows, or git itself would not trust it.
	for _, name := range []string{"a", "b"} {
		run(t, src, "touch", "-d", "2020-01-01 00:00:00", name)
	}
	run(t, src, "git", "update-index", "--refresh")
	write(t, src+"/b", "BBBB")
	run(t, src, "touch", "-d", "2020-01-01 00:00:00", "b") // the same size and time: the change time tells it
	dest, _ := copyOf(t, src)
	debug := said(t, dest, "ls-files", "--debug")
	if n := strings.Count(debug, "size: 4\t"); n != 1 {
		t.Errorf("%d of the two entries know their file, want the unchanged one:\n%s", n, debug)
	}
	if got := said(t, dest, "status", "--porcelain"); got != "M b" {
		t.Errorf("status: %q", got)
	}
}

func TestNoDriverOfTheSourceRuns(t *testing.T) {
	src := busySource(t)
	ran := filepath.Join(t.TempDir(), "ran")
	for _, key := range []string{"filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "diff.evil.textconv", "core.fsmonitor", "pack.packObjectsHook", "uploadpack.packObjectsHook"} {
		run(t, src, "git", "config", key, "touch "+ran)
	}
	write(t, src+"/.git/info/attributes", "* filter=evil diff=evil\n")
	for _, hook := range []string{"post-index-change", "reference-transaction", "pre-commit"} {
		write(t, src+"/.git/hooks/"+hook, "#!/bin/sh\ntouch "+ran+"\n")
		must(t, os.Chmod(src+"/.git/hooks/"+hook, 0o755))
	}
	_, o := copyOf(t, src)
	if o.NoRepository != "" {
		t.Errorf("no repository: %s", o.NoRepository)
	}
	if _, err := os.Lstat(ran); err == nil {
		t.Error("a driver or hook of the source was run")
	}
}

func TestWhereNoRepositoryCanBeMadeTheReasonIsSaid(t *testing.T) {
	needGit(t)
	empty := t.TempDir()
	gitInit(t, empty)
	write(t, empty+"/f", "x")
	run(t, empty, "git", "add", "f")
	dest, o := copyOf(t, empty)
	if o.NoRepository != "" {
		t.Errorf("before the first commit: %s", o.NoRepository)
	}
	if got := said(t, dest, "status", "--porcelain"); got != "A  f" {
		t.Errorf("before the first commit: %q", got)
	}

	src := busySource(t)
	_, o = copyOf(t, filepath.Join(src, "dir"))
	if o.NoRepository == "" || o.Rules.Repository {
		t.Error("a directory inside a repository has got one")
	}

	id := said(t, src, "rev-parse", "HEAD:same")
	must(t, os.Remove(filepath.Join(src, ".git/objects", id[:2], id[2:])))
	dest, o = copyOf(t, src)
	if o.NoRepository == "" || o.Rules.Repository {
		t.Error("a repository that lacks an object was made")
	}
	if _, err := os.Lstat(dest + "/.git"); err == nil {
		t.Error("half a repository stays")
	}
}
