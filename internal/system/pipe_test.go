package system

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestReaderGone(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if ReaderGone(w) {
		t.Error("somebody can still read")
	}
	_ = r.Close()
	if !ReaderGone(w) {
		t.Error("nobody can read any more")
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	if ReaderGone(file) || ReaderGone(&bytes.Buffer{}) {
		t.Error("a file and a buffer keep what is written")
	}
	_ = file.Close()
	if ReaderGone(file) {
		t.Error("a closed file tells nothing")
	}
}
