package carried

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
)

// otherPlatform is a platform that is not this process's.
const otherPlatform = "linux/another"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func digestOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// carrying is what a build carries that has this content as its program for elsewhere.
func carrying(content string) fstest.MapFS {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(content))
	_ = z.Close()
	return fstest.MapFS{
		"linux-another.gz":     {Data: packed.Bytes()},
		"linux-another.sha256": {Data: []byte(digestOf(content) + "\n")},
	}
}

// content is larger than one read, and hard to pack.
func content(of string) string {
	var b strings.Builder
	for sum := sha256.Sum256([]byte(of)); b.Len() < 300_000; sum = sha256.Sum256(sum[:]) {
		b.Write(sum[:])
	}
	return b.String()
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// names are the paths below a home.
func names(t *testing.T, home string) []string {
	t.Helper()
	var out []string
	must(t, filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(home, path)
			out = append(out, rel)
		}
		return err
	}))
	return out
}

// good makes sure that a program is whole, and that nothing else is there but the lock.
func good(t *testing.T, home, path, content string) {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	info, err := os.Lstat(path)
	must(t, err)
	if string(b) != content || info.Mode() != 0o755 {
		t.Errorf("%d bytes, mode %s", len(b), info.Mode())
	}
	want := []string{"supervisors/" + digestOf(content) + "/laufwerk", "supervisors/lock"}
	if got := names(t, home); !slices.Equal(got, want) {
		t.Errorf("there is %q, want %q", got, want)
	}
}

func TestThisProgramWhereItFits(t *testing.T) {
	home := t.TempDir()
	p := New("/usr/bin/laufwerk", home, carrying("x"))
	own := runtime.GOOS + "/" + runtime.GOARCH
	must(t, p.Has(own))
	path, err := p.Path(t.Context(), own)
	if path != "/usr/bin/laufwerk" || err != nil || len(names(t, home)) > 0 {
		t.Errorf("%q %v", path, err)
	}
	must(t, p.Restore(t.Context(), path))
}

func TestABuildThatCarriesNoneSaysSo(t *testing.T) {
	home := t.TempDir()
	for name, p := range map[string]Programs{
		"nothing at all": New("laufwerk", home, nil), "as it was built": New("laufwerk", home, Files()),
		"another one": New("laufwerk", home, fstest.MapFS{"linux-third.sha256": {Data: []byte(digestOf(""))}}),
	} {
		_, err := p.Path(t.Context(), otherPlatform)
		for _, err := range []error{p.Has(otherPlatform), err} {
			if !failure.Is(err, failure.NotReady) || !strings.Contains(err.Error(), otherPlatform) || !strings.Contains(failure.As(err).Hint, "make release") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if found := names(t, home); len(found) > 0 {
		t.Errorf("%q", found)
	}
}

func TestItIsUnpackedOnceAndAgainWhereItIsNotWhole(t *testing.T) {
	whole := content("a")
	for name, damage := range map[string]func(home, path string) error{
		"nothing happened": nil,
		"it is gone":       func(_, path string) error { return os.Remove(path) },
		"all of it is":     func(home, _ string) error { return os.RemoveAll(home + "/supervisors") },
		"it is cut":        func(_, path string) error { return os.Truncate(path, 1000) },
		"it is empty":      func(_, path string) error { return os.Truncate(path, 0) },
		"it is another":    func(_, path string) error { return os.WriteFile(path, []byte(content("b")), 0o755) }, //nolint:gosec // as it should be
		"a byte is":        func(_, path string) error { return os.WriteFile(path, []byte(whole[:len(whole)-1]+"x"), 0o755) },
		"nobody may run":   func(_, path string) error { return os.Chmod(path, 0o600) },
		"others may write": func(_, path string) error { return os.Chmod(path, 0o777) }, //nolint:gosec // that is the point
		"a link to one": func(home, path string) error {
			if err := os.Rename(path, home+"/elsewhere"); err != nil {
				return err
			}
			defer func() { _ = os.Remove(home + "/elsewhere") }()
			return os.Symlink(home+"/elsewhere", path)
		},
		"a killed process left half": func(home, path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.WriteFile(home+"/supervisors/draft", []byte(whole[:1000]), 0o600)
		},
		"and more than that": func(home, path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.WriteFile(home+"/supervisors/draft", []byte(whole+whole), 0o755) //nolint:gosec // as it would be
		},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			p := New("laufwerk", home, carrying(whole))
			must(t, p.Has(otherPlatform))
			if found := names(t, home); len(found) > 0 {
				t.Fatalf("looking made %q", found)
			}
			path, err := p.Path(bounded(t), otherPlatform)
			must(t, err)
			good(t, home, path, whole)
			before, err := os.Lstat(path)
			must(t, err)
			if damage != nil {
				must(t, damage(home, path))
			}
			again, err := p.Path(bounded(t), otherPlatform)
			if err != nil || again != path {
				t.Fatalf("%q %v", again, err)
			}
			good(t, home, path, whole)
			if after, err := os.Lstat(path); err != nil || damage == nil && (!os.SameFile(before, after) || !before.ModTime().Equal(after.ModTime())) {
				t.Errorf("it was unpacked again: %v", err)
			}
			if damage != nil { // the same for a container that is started again
				if name != "a link to one" {
					must(t, damage(home, path))
				}
				must(t, p.Restore(bounded(t), path))
				good(t, home, path, whole)
			}
		})
	}
}

func TestWhatABuildCarriesDamaged(t *testing.T) {
	for name, damage := range map[string]func(carries fstest.MapFS){
		"another program":    func(c fstest.MapFS) { c["linux-another.gz"] = carrying(content("b"))["linux-another.gz"] },
		"half of it":         func(c fstest.MapFS) { c["linux-another.gz"].Data = c["linux-another.gz"].Data[:100_000] },
		"not packed":         func(c fstest.MapFS) { c["linux-another.gz"].Data = []byte(content("a")) },
		"only the digest":    func(c fstest.MapFS) { delete(c, "linux-another.gz") },
		"no proper digest":   func(c fstest.MapFS) { c["linux-another.sha256"].Data = []byte("../../../../etc") },
		"a digest too short": func(c fstest.MapFS) { c["linux-another.sha256"].Data = []byte("abcd") },
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			carries := carrying(content("a"))
			damage(carries)
			path, err := New("laufwerk", home, carries).Path(bounded(t), otherPlatform)
			if err == nil || failure.Is(err, failure.NotReady) {
				t.Fatalf("%q %v", path, err)
			}
			if found := slices.DeleteFunc(names(t, home), func(n string) bool { return n == "supervisors/lock" }); len(found) > 0 {
				t.Errorf("%q is left", found)
			}
		})
	}
}

func TestWhatIsInTheWay(t *testing.T) {
	whole := content("a")
	for name, c := range map[string]struct{ at, hint string }{
		"where programs are":   {"supervisors", "ls -ld"},
		"where this one is":    {"supervisors/" + digestOf(whole), "ls -ld"},
		"as this one":          {"supervisors/" + digestOf(whole) + "/laufwerk/x", "mv "},
		"where it is unpacked": {"supervisors/draft/x", "ls -ld"},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			must(t, os.MkdirAll(filepath.Dir(filepath.Join(home, c.at)), 0o700))
			must(t, os.WriteFile(filepath.Join(home, c.at), []byte("theirs"), 0o600))
			_, err := New("laufwerk", home, carrying(whole)).Path(bounded(t), otherPlatform)
			if !failure.Is(err, failure.HomeInvalid) || !strings.Contains(failure.As(err).Hint, c.hint) {
				t.Fatalf("%v %q", err, failure.As(err).Hint)
			}
			if b, err := os.ReadFile(filepath.Join(home, c.at)); string(b) != "theirs" {
				t.Errorf("%q %v", b, err)
			}
		})
	}
}

func TestManyAtOnce(t *testing.T) {
	home := t.TempDir()
	whole := content("a")
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			path, err := New("laufwerk", home, carrying(whole)).Path(bounded(t), otherPlatform)
			if err != nil {
				t.Error(err)
				return
			}
			if b, err := os.ReadFile(path); string(b) != whole {
				t.Errorf("%d bytes: %v", len(b), err)
			}
		})
	}
	all.Wait()
	good(t, home, filepath.Join(home, "supervisors", digestOf(whole), "laufwerk"), whole)
}

// A container that an earlier version made is started again by this one.
func TestAProgramOfAnotherVersion(t *testing.T) {
	home := t.TempDir()
	path, err := New("laufwerk", home, carrying(content("old"))).Path(bounded(t), otherPlatform)
	must(t, err)
	for name, now := range map[string]Programs{"a release": New("laufwerk", home, carrying(content("new"))), "a plain build": New("laufwerk", home, nil)} {
		must(t, now.Restore(bounded(t), path))
		if now.Has(otherPlatform) == nil {
			next, err := now.Path(bounded(t), otherPlatform)
			must(t, err)
			if next == path {
				t.Error("the two have one place")
			}
		}
		must(t, isWhole(path, digestOf(content("old"))))
		must(t, os.Truncate(path, 1000))
		if err := now.Restore(bounded(t), path); !failure.Is(err, failure.NotReady) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
		must(t, New("laufwerk", home, carrying(content("old"))).Restore(bounded(t), path))
	}
}
