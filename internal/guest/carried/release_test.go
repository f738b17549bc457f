package carried

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestRelease looks through what `make release` has made, in the directory that LAUFWERK_RELEASE names: `make verify-release`
// does.
func TestRelease(t *testing.T) {
	dir := os.Getenv("LAUFWERK_RELEASE")
	if dir == "" {
		t.Skip("SKIPPED, it is for make verify-release")
	}
	var sums strings.Builder
	digests := map[string]string{} // of the program for a platform: all that carry it carry the same
	for platform, carries := range map[string][]string{
		"darwin-amd64": {"linux/amd64", "linux/arm64"}, "darwin-arm64": {"linux/amd64", "linux/arm64"},
		"linux-amd64": {"linux/arm64"}, "linux-arm64": {"linux/amd64"},
	} {
		path := filepath.Join(dir, "laufwerk-"+platform)
		release, err := os.ReadFile(path)
		must(t, err)
		if got := settings(t, release); got["GOOS"]+"-"+got["GOARCH"] != platform || !tagged(got) || got["CGO_ENABLED"] != "0" {
			t.Errorf("%s is %v", path, got)
		}
		var found []string
		for _, program := range packedIn(release) {
			got := settings(t, program)
			name := got["GOOS"] + "/" + got["GOARCH"]
			found = append(found, name)
			if tagged(got) || got["CGO_ENABLED"] != "0" {
				t.Errorf("%s carries a program that is no plain build: %v", path, got)
			}
			if why := dynamic(program); why != "" {
				t.Errorf("%s carries a program for %s that is not static: %s", path, name, why)
			}
			digest := digestOf(string(program))
			if !bytes.Contains(release, []byte(digest)) {
				t.Errorf("%s does not say the digest of the program that it carries for %s", path, name)
			}
			if digests[name] == "" {
				digests[name] = digest
			}
			if digests[name] != digest {
				t.Errorf("%s carries another program for %s", path, name)
			}
		}
		if slices.Sort(found); !slices.Equal(found, carries) {
			t.Errorf("%s carries %v, want %v", path, found, carries)
		}
	}
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		must(t, err)
		if sum := sha256.Sum256(b); e.Name() != "SHA256SUMS" {
			fmt.Fprintf(&sums, "%s  %s\n", hex.EncodeToString(sum[:]), e.Name())
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS")); err != nil || string(b) != sums.String() || len(entries) != 5 {
		t.Errorf("%v, %d files: %s instead of %s", err, len(entries), b, sums.String())
	}
	out, err := exec.Command(filepath.Join(dir, "laufwerk-"+runtime.GOOS+"-"+runtime.GOARCH), "version").CombinedOutput() //nolint:gosec // ours
	if err != nil || !bytes.Contains(out, []byte(runtime.GOOS+"/"+runtime.GOARCH)) {
		t.Errorf("%v %s", err, out)
	}
}

// settings are those that a program was built with.
func settings(t *testing.T, program []byte) map[string]string {
	t.Helper()
	info, err := buildinfo.Read(bytes.NewReader(program))
	must(t, err)
	out := map[string]string{}
	for _, s := range info.Settings {
		out[s.Key] = s.Value
	}
	return out
}

// tagged says whether a program was built as a release, which carries others.
func tagged(settings map[string]string) bool {
	return slices.Contains(strings.Split(settings["-tags"], ","), "release")
}

// packedIn are the Linux programs that are packed in a binary.
func packedIn(binary []byte) (found [][]byte) {
	magic := []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0}
	for rest := binary; ; rest = rest[len(magic):] {
		at := bytes.Index(rest, magic)
		if at < 0 {
			return found
		}
		rest = rest[at:]
		z, err := gzip.NewReader(bytes.NewReader(rest))
		if err != nil {
			continue
		}
		z.Multistream(false)
		if b, err := io.ReadAll(z); err == nil && bytes.HasPrefix(b, []byte(elf.ELFMAG)) {
			found = append(found, b)
		}
	}
}

// dynamic says why a program needs others to run, "" if it needs none.
func dynamic(program []byte) string {
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return err.Error()
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			return p.Type.String()
		}
	}
	return ""
}
