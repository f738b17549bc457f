//go:build crashpoints

package fault

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Enabled says whether this build can be told to let calls fail.
const Enabled = true

const (
	module = "github.com/laufwerk/laufwerk/"
	system = "/internal/system/"
	depth  = 3 // frames above internal/system that tell one site from another
)

var (
	mu    sync.Mutex
	seen  = map[string]int{}
	shift atomic.Int64 // of the clock
)

// Point is the error that the call op on path is to fail with, nil where it is to be made. Without a path it is a bare errno,
// as system calls answer.
func Point(op, path string) error {
	if !reached(op) {
		return nil
	}
	errno := unix.EIO
	if name := os.Getenv("LAUFWERK_FAULT_ERROR"); name != "" {
		for n := syscall.Errno(1); n < 256; n++ {
			if unix.ErrnoName(n) == name {
				errno = n
			}
		}
	}
	if path == "" {
		return errno
	}
	return &fs.PathError{Op: op, Path: path, Err: errno}
}

// reached counts and logs a call, and says whether it is the one that fails.
func reached(op string) bool {
	log, want := os.Getenv("LAUFWERK_FAULT_LOG"), os.Getenv("LAUFWERK_FAULT")
	if log == "" && want == "" {
		return false
	}
	at := op + site()
	mu.Lock()
	defer mu.Unlock()
	seen[at]++
	at = fmt.Sprintf("%s#%d", at, seen[at])
	if log != "" {
		if f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
			_, _ = f.WriteString(at + "\n")
			_ = f.Close()
		}
	}
	return want == at && first()
}

// site are the frames nearest to internal/system of those above it, each with a space before it.
func site() string {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	out, below := "", ""
	for n := 0; n < depth; {
		f, more := frames.Next()
		name := fmt.Sprintf(" %s/%s:%d", path.Base(path.Dir(f.File)), path.Base(f.File), f.Line)
		switch {
		case strings.Contains(f.File, system): // not the function's name: one that was inlined has its caller's
			below = name
		case strings.HasPrefix(f.Function, module):
			out += name
			n++
		}
		if !more {
			break
		}
	}
	if out == "" { // a goroutine of internal/system's own
		return below
	}
	return out
}

// first is false where LAUFWERK_FAULT_ONCE names a file and another process's call has failed already.
func first() bool {
	once := os.Getenv("LAUFWERK_FAULT_ONCE")
	if once == "" {
		return true
	}
	f, err := os.OpenFile(once, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return false
	}
	_ = f.Close()
	return true
}

// Environment are this package's variables, for processes whose environment is otherwise made anew.
func Environment() (out []string) {
	for _, kv := range os.Environ() {
		if strings.HasPrefix(kv, "LAUFWERK_FAULT") {
			out = append(out, kv)
		}
	}
	return out
}

// Now is the time, wrong by LAUFWERK_FAULT_ERROR once the call that fails has come.
func Now() time.Time {
	if reached("clock") {
		d, _ := time.ParseDuration(os.Getenv("LAUFWERK_FAULT_ERROR"))
		shift.Store(int64(d))
	}
	return time.Now().Add(time.Duration(shift.Load()))
}

// File is an open file whose calls can fail.
type File struct{ *os.File }

// Open takes what the operating system's open answered.
func Open(f *os.File, err error) (*File, error) {
	if err != nil {
		return nil, err
	}
	return &File{f}, nil
}

// Unwrap is the operating system's own file.
func Unwrap(f *File) *os.File {
	if f == nil {
		return nil
	}
	return f.File
}

func (f *File) Read(b []byte) (int, error) {
	return Get("read", f.Name(), func(string) (int, error) { return f.File.Read(b) })
}

func (f *File) ReadAt(b []byte, at int64) (int, error) {
	return Get("read", f.Name(), func(string) (int, error) { return f.File.ReadAt(b, at) })
}

// Write writes one half where it fails, as a full disk does.
func (f *File) Write(b []byte) (int, error) {
	if err := Point("write", f.Name()); err != nil {
		n, _ := f.File.Write(b[:len(b)/2])
		return n, err
	}
	return f.File.Write(b)
}

// WriteAt writes one half where it fails.
func (f *File) WriteAt(b []byte, at int64) (int, error) {
	if err := Point("write", f.Name()); err != nil {
		n, _ := f.File.WriteAt(b[:len(b)/2], at)
		return n, err
	}
	return f.File.WriteAt(b, at)
}

// WriteString is Write.
func (f *File) WriteString(s string) (int, error) { return f.Write([]byte(s)) }

// ReadFrom goes by Write.
func (f *File) ReadFrom(r io.Reader) (int64, error) { return io.Copy(struct{ io.Writer }{f}, r) }

// WriteTo goes by Read.
func (f *File) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, struct{ io.Reader }{f}) }

// Sync fails after the bytes were written, and perhaps before they are durable.
func (f *File) Sync() error {
	return Do("sync", f.Name(), f.File.Sync)
}

// Close closes the file in any case.
func (f *File) Close() error {
	err := Point("close", f.Name())
	if e := f.File.Close(); e != nil {
		return e
	}
	return err
}

// Stat can fail.
func (f *File) Stat() (fs.FileInfo, error) {
	return Get("stat", f.Name(), func(string) (fs.FileInfo, error) { return f.File.Stat() })
}

// Truncate can fail.
func (f *File) Truncate(size int64) error {
	return Do("truncate", f.Name(), func() error { return f.File.Truncate(size) })
}

// Readdirnames can fail.
func (f *File) Readdirnames(n int) ([]string, error) {
	return Get("readdir", f.Name(), func(string) ([]string, error) { return f.File.Readdirnames(n) })
}
