package files_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/laufwerk/laufwerk/internal/system/files"
)

func TestMkdirAll(t *testing.T) {
	dir := t.TempDir()
	deep := filepath.Join(dir, "a", "b", "c")
	for range 2 {
		if err := files.MkdirAll(deep); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{deep, filepath.Join(dir, "a")} {
		if st, err := os.Stat(d); err != nil || st.Mode().Perm() != files.DirMode {
			t.Errorf("%s: %v, %v", d, st, err)
		}
	}
	file, nowhere := filepath.Join(dir, "file"), filepath.Join(dir, "nowhere")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "missing"), nowhere); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{file, filepath.Join(file, "below"), nowhere} {
		if err := files.MkdirAll(bad); err == nil {
			t.Errorf("%s became a directory", bad)
		}
	}
}

func TestCreateHasOneWinner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "once")
	var won atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			switch err := files.Create(path, []byte("whole")); {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, fs.ErrExist):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("%d winners", won.Load())
	}
	if names, err := files.Names(filepath.Dir(path)); err != nil || len(names) != 1 {
		t.Errorf("%v %v", names, err)
	}
	if all, _ := os.ReadDir(filepath.Dir(path)); len(all) != 1 {
		t.Errorf("temporary files are left: %v", all)
	}
}

func TestWriteReplacesWholeAndKeepsTheOldOnFailure(t *testing.T) {
	path := filepath.Join(t.TempDir(), "doc")
	for _, content := range []string{"one", strings.Repeat("two", 1000), ""} {
		if err := files.Write(path, []byte(content)); err != nil {
			t.Fatal(err)
		}
		if b, err := files.Read(path); err != nil || string(b) != content {
			t.Fatalf("%q, %v", b, err)
		}
	}
	if err := files.Write(filepath.Join(path, "below"), nil); err == nil {
		t.Error("wrote below a file")
	}
	if err := files.WriteJSON(path, make(chan int)); err == nil {
		t.Error("wrote what has no JSON form")
	}
	if b, _ := files.Read(path); len(b) != 0 {
		t.Errorf("the old content is gone: %q", b)
	}
}

func TestRemoveOfWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{filepath.Join(dir, "x"), filepath.Join(dir, "missing", "x")} {
		if err := files.Remove(path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if names, err := files.Names(filepath.Join(dir, "missing")); err != nil || len(names) != 0 {
		t.Errorf("%v %v", names, err)
	}
}

func TestExistsUnlessKnownToBeMissing(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(dir+"/file", nil, 0o600), os.Symlink("loop", dir+"/loop")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"file": true, "loop": true, "missing": false, "missing/below": false, "file/below": false, "loop/cannot be told": true} {
		if got := files.Exists(dir + "/" + name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestWhatIsNoFileIsNotRead(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(syscall.Mkfifo(dir+"/fifo", 0o600), os.Symlink("fifo", dir+"/link"), os.Mkdir(dir+"/dir", 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir + "/fifo", dir + "/link", dir + "/dir", os.DevNull} {
		if _, err := files.Read(path); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
