package system

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// That a write fails instead of ending the process, testdata/script/version and run show with `| head -1`.
func TestCopiesOfStreamsAreOurOwn(t *testing.T) {
	var buffer bytes.Buffer
	env := &Env{Out: os.Stdout, Err: &buffer}
	env.SurviveClosedPipes()
	if env.Err != &buffer {
		t.Error("what is no stream of the process was replaced")
	}
	f := env.Out.(*os.File)
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0)
	if err != nil || f.Fd() < 3 || flags&unix.FD_CLOEXEC == 0 || f.Name() != os.Stdout.Name() {
		t.Errorf("stdout became %s, descriptor %d with flags %#x: %v", f.Name(), f.Fd(), flags, err)
	}
	was, _ := os.Stdout.Stat()
	if is, err := f.Stat(); err != nil || !os.SameFile(was, is) {
		t.Errorf("it is another file: %v", err)
	}
}

func TestReaderGone(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if IsReaderGone(w) {
		t.Error("somebody can still read")
	}
	_ = r.Close()
	if !IsReaderGone(w) {
		t.Error("nobody can read any more")
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	if IsReaderGone(file) || IsReaderGone(&bytes.Buffer{}) {
		t.Error("a file and a buffer keep what is written")
	}
	_ = file.Close()
	if IsReaderGone(file) {
		t.Error("a closed file tells nothing")
	}
}
