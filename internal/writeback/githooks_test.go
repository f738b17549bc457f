package writeback

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var configs = map[string][]string{
	"[core]\n\thooksPath = .husky\n":                          {".husky"},
	"[CORE]\nHOOKSPATH=x\n":                                   {"x"},
	"[core] hooksPath = a/b # c\n":                            {"a/b"},
	"[core]\nhooksPath = \"a b\" ; c\n":                       {"a b"},
	"[core]\nhooksPath = a\\\n/b\n":                           {"a/b"},
	"[core]\r\nhooksPath = crlf\r\n":                          {"crlf"},
	"\ufeff[core]\nhooksPath = bom\n":                         {"bom"},
	"[core]\nhooksPath = \"q#;\\\"\\\\\"\n":                   {`q#;"\`},
	"[core]\nhooksPath = two   words  \n":                     {"two   words"},
	"[core]\nhooksPath = first\n[core]\nhooksPath = second\n": {"first", "second"},
	"[remote \"core\"]\nhooksPath = no\n":                     nil,
	"[core]\n; hooksPath = no\n":                              nil,
	"[core]\nhooksPathX = no\nbare\n":                         nil,
	"[user]\nname = \"[core]\\n\"\nhooksPath = no\n":          nil,
	"[core]\nx = \\\nhooksPath = part of x\n":                 nil,
	"": nil,
}

func TestConfigIsReadAsGitReadsIt(t *testing.T) {
	git, noGit := exec.LookPath("git")
	for text, want := range configs {
		var got []string
		for _, e := range parseGitConfig(text) {
			if e.section == "core" && e.key == "hookspath" {
				got = append(got, e.value)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: read %q, want %q", text, got, want)
		}
		if noGit != nil {
			continue
		}
		f := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(f, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, _ := exec.Command(git, "config", "--file", f, "-z", "--get-all", "core.hooksPath").Output()
		var theirs []string
		if len(out) > 0 {
			theirs = strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		}
		if !slices.Equal(theirs, want) {
			t.Errorf("%q: git reads %q, want %q", text, theirs, want)
		}
	}
}

func TestHookDirs(t *testing.T) {
	top := must(filepath.EvalSymlinks(t.TempDir()))
	home, src, main := filepath.Join(top, "home"), filepath.Join(top, "src"), filepath.Join(top, "main")
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	vars := map[string]string{"HOME": home}
	write(filepath.Join(home, ".gitconfig"), "[include]\npath = inc\n[core]\nhooksPath = ~/hooks\n")
	write(filepath.Join(home, "inc"), "[core]\nhooksPath = .githooks\n")
	write(filepath.Join(src, ".git/config"), "[includeIf \"gitdir:/nowhere\"]\npath = more\n[core]\nhooksPath = "+src+"/abs\n")
	write(filepath.Join(src, ".git/more"), "[core]\nhooksPath = linked/_\n")
	write(filepath.Join(src, ".git/config.worktree"), "[core]\nhooksPath = ../outside\n")
	if err := os.Symlink("real", filepath.Join(src, "linked")); err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(src, "real/x"), "")
	got := hookDirs(src, src, vars)
	slices.Sort(got)
	if want := []string{".githooks", "abs", "linked/_", "real/_"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}

	// A linked worktree: the configuration is the main repository's. And a source below the top of its work tree.
	write(filepath.Join(main, ".git/config"), "[core]\nhooksPath = sub/hk\n")
	write(filepath.Join(main, ".git/worktrees/w/commondir"), "../..\n")
	wt := filepath.Join(top, "wt")
	write(filepath.Join(wt, ".git"), "gitdir: "+filepath.Join(main, ".git/worktrees/w")+"\n")
	write(filepath.Join(wt, "sub/x"), "")
	if got := hookDirs(filepath.Join(wt, "sub"), filepath.Join(wt, "sub"), nil); !slices.Equal(got, []string{"hk"}) {
		t.Errorf("worktree: got %q", got)
	}

	// The source is reached through a link, the value names the real place.
	if err := os.Symlink(src, filepath.Join(top, "alias")); err != nil {
		t.Fatal(err)
	}
	if got := hookDirs(filepath.Join(top, "alias"), filepath.Join(top, "alias"), nil); !slices.Contains(got, "abs") {
		t.Errorf("alias: got %q", got)
	}
}
