package workspace

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	manyDirs  = 1000
	perDir    = 100
	eachBytes = 3000      // 286 MiB of content,
	manyPeak  = 240 << 20 // and the list of them with Go's room for garbage: 170 MiB
)

// many are the source's files: each has a content of its own.
func many(yield func(path string, content []byte) bool) {
	content := bytes.Repeat([]byte("x"), eachBytes)
	for d := range manyDirs {
		for f := range perDir {
			copy(content, fmt.Sprintf("%8d\n", d*perDir+f))
			if !yield(fmt.Sprintf("d%03d/f%02d", d, f), content) {
				return
			}
		}
	}
}

// roomyTmpfs is a directory in memory with room for the source, its objects and the copy, else one on disk.
func roomyTmpfs(tb testing.TB) string {
	tb.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs("/dev/shm", &st); err != nil || st.Bavail*uint64(st.Bsize) < 3<<30 { //nolint:gosec // sizes are no negative numbers
		return tb.TempDir()
	}
	return onTmpfs(tb)
}

func manyFilesSource(tb testing.TB, src string) {
	tb.Helper()
	for d := range manyDirs {
		if err := os.MkdirAll(fmt.Sprintf("%s/d%03d", src, d), 0o755); err != nil {
			tb.Fatal(err)
		}
	}
	for path, content := range many {
		if err := os.WriteFile(filepath.Join(src, path), content, 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"init", "-q"}, {"-c", "core.compression=0", "-c", "core.fsync=none", "add", "."},
		{"-c", "user.name=a", "-c", "user.email=a@b", "-c", "gc.auto=0", "commit", "-qm", "x"},
	} {
		cmd := exec.Command("git", args...)
		cmd.Dir = src
		if out, err := cmd.CombinedOutput(); err != nil {
			tb.Fatalf("%v\n%s", err, out)
		}
	}
}

// opened is what the process tells that has opened the copy, and then frozen three changes.
type manyOpened struct {
	Entries, Files  int
	NoRepository    string
	Changes         []string
	Copying, Frozen int64 // the process's peak of resident memory until then, in bytes
}

// TestManyFiles: a repository of 10⁵ files. Its manifest is whole, its copy is the source, its changes are what was changed, and
// the process that does it needs no memory for the contents.
func TestManyFiles(t *testing.T) {
	if dir := os.Getenv("MANY_FILES"); dir != "" {
		openManyFiles(t, dir)
		return
	}
	needGit(t)
	dir := roomyTmpfs(t)
	src, dest := dir+"/src", dir+"/dest"
	manyFilesSource(t, src)

	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self, "-test.run", "^TestManyFiles$") // a process whose memory nothing else has used
	cmd.Env = append(os.Environ(), "MANY_FILES="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var got manyOpened
	doc, err := os.ReadFile(dir + "/opened")
	must(t, err)
	must(t, json.Unmarshal(doc, &got))
	t.Logf("peak: %d MiB when copied, %d MiB when frozen", got.Copying>>20, got.Frozen>>20)
	if got.Files != manyDirs*perDir || got.Entries != manyDirs*(perDir+1) || got.NoRepository != "" {
		t.Errorf("%d files among %d paths; no repository: %q", got.Files, got.Entries, got.NoRepository)
	}
	if want := []string{"modified d500/f50", "deleted d999/f99", "added new"}; !slices.Equal(got.Changes, want) {
		t.Errorf("frozen %q, want %q", got.Changes, want)
	}
	if got.Copying > manyPeak || got.Frozen > manyPeak {
		t.Errorf("it needed %d MiB to copy and %d MiB to freeze", got.Copying>>20, got.Frozen>>20)
	}

	for path, content := range many {
		b, err := os.ReadFile(filepath.Join(dest, path))
		switch path {
		case "d500/f50":
			content = []byte("changed")
		case "d999/f99":
			if err == nil {
				t.Errorf("%s is there", path)
			}
			continue
		}
		if err != nil || !bytes.Equal(b, content) {
			t.Fatalf("%s is not what it was in the source: %v", path, err)
		}
	}
	n := 0
	must(t, filepath.WalkDir(dest, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Name() == ".git" {
			return filepath.SkipDir
		}
		if err == nil && !e.IsDir() {
			n++
		}
		return err
	}))
	if n != manyDirs*perDir { // one is new, one is gone
		t.Errorf("the copy holds %d files", n)
	}
	if here := said(t, dest, "status", "--porcelain"); here != "M d500/f50\n D d999/f99\n?? new" {
		t.Errorf("the copy's repository says\n%.1000s", here)
	}
}

// openManyFiles is the process that is measured.
func openManyFiles(t *testing.T, dir string) {
	dest := dir + "/dest"
	o, err := Copy(context.Background(), CopyRequest{Source: dir + "/src", Dest: dest})
	must(t, err)
	must(t, SaveManifest(dir+"/base", o.Base))
	got := manyOpened{Entries: len(o.Base.Entries), NoRepository: o.NoRepository, Copying: peak(t)}
	for _, e := range o.Base.Entries {
		if e.Type == File && e.Size == eachBytes {
			got.Files++
		}
	}
	write(t, dest+"/new", "new")
	write(t, dest+"/d500/f50", "changed")
	must(t, os.Remove(dest+"/d999/f99"))
	if o.Base, err = LoadManifest(dir + "/base"); err != nil {
		t.Fatal(err)
	}
	f, err := MakeFreeze(context.Background(), FreezeRequest{Root: openTree(t, dest, o), Base: o.Base, Rules: o.Rules, Source: o.Source, SourceRoot: o.Root, Dir: dir + "/freezes", Now: time.Now})
	must(t, err)
	for _, c := range f.Changes {
		got.Changes = append(got.Changes, string(c.Kind)+" "+c.Path)
	}
	got.Frozen = peak(t)
	doc, err := json.Marshal(got)
	must(t, err)
	must(t, os.WriteFile(dir+"/opened", doc, 0o600))
}

// peak is the most resident memory that this process had, in bytes. Getrusage would count the process that started it.
func peak(t *testing.T) int64 {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	must(t, err)
	_, line, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.ParseInt(strings.Fields(line + " ?")[0], 10, 64)
	must(t, err)
	return kib << 10
}

// BenchmarkManyFiles is the time of the copy, and what it allocates.
func BenchmarkManyFiles(b *testing.B) {
	dir := roomyTmpfs(b)
	manyFilesSource(b, dir+"/src")
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		dest := dir + "/copy"
		if err := os.RemoveAll(dest); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		o, err := Copy(b.Context(), CopyRequest{Source: dir + "/src", Dest: dest})
		if err != nil || o.NoRepository != "" {
			b.Fatal(err, o.NoRepository)
		}
	}
}
