package projectfs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestStatAndRead(t *testing.T) {
	base := t.TempDir()
	root := filepath.Join(base, "root")
	for name, content := range map[string]string{"root/a/file": "content", "root/large": strings.Repeat("x", 11), "outside": "secret"} {
		p := filepath.Join(base, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"in": "a/file", "dir": "a", "up": "../outside", "abs": filepath.Join(base, "outside"), "back": "a/../../root/a/file", "dangling": "nothing"} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(root, filepath.Join(base, "alias")); err != nil {
		t.Fatal(err)
	}
	f, err := Open(filepath.Join(base, "alias"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for path, want := range map[string]struct {
		kind Kind
		real string
	}{
		"a/file":                            {File, "a/file"},
		"a/../a/./file":                     {File, "a/file"},
		filepath.Join(base, "alias/a/file"): {File, "a/file"},
		filepath.Join(base, "root/a/file"):  {File, "a/file"},
		"in":                                {File, "a/file"},
		"dir/file":                          {File, "a/file"},
		"a":                                 {Dir, "a"},
		".":                                 {Dir, "."},
		"none":                              {None, ""},
		"a/file/below":                      {None, ""},
		"dangling":                          {None, ""},
		"up":                                {Refused, ""},
		"abs":                               {Refused, ""},
		"back":                              {Refused, ""},
		"../outside":                        {Refused, ""},
		filepath.Join(base, "outside"):      {Refused, ""},
	} {
		kind, real, reason := f.Stat(path)
		if kind != want.kind || real != want.real || (kind == Refused) != (reason != "") {
			t.Errorf("Stat(%q) = %s, %q, %q; want %s, %q", path, kind, real, reason, want.kind, want.real)
		}
		content, kind, _ := f.Read(path, 10)
		if (kind == File) != (want.kind == File) || kind == File && string(content) != "content" || kind != File && content != nil {
			t.Errorf("Read(%q) = %q, %s", path, content, kind)
		}
	}
	if _, kind, reason := f.Read("large", 10); kind != Refused || !strings.Contains(reason, "11 bytes") {
		t.Errorf("a file over the limit: %s, %q", kind, reason)
	}
	names, err := f.Names(".")
	if got := strings.Join(names, " "); err != nil || got != "a abs back dangling dir in large up" {
		t.Errorf("names = %s", got)
	}
}
