// Package projectfs reads the files of a project that may be hostile: only regular files whose real path is inside the
// root. Links that stay inside are followed; whatever leaves the root, blocks (fifos, devices, sockets) or is too large is
// refused with a reason, and nothing of it is read.
package projectfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/laufwerk/laufwerk/internal/system/fault"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// Kind is what a path is.
type Kind string

// The kinds of paths.
const (
	None    Kind = "none" // nothing is there
	File    Kind = "file"
	Dir     Kind = "dir"
	Refused Kind = "refused" // something is there that is not served; the reason says why
)

// FS is an open project root.
type FS struct {
	path string
	real string
	root *os.Root
}

// Open opens a root; path must be absolute.
func Open(path string) (*FS, error) {
	if err := fault.Point("open", path); err != nil {
		return nil, err
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(real)
	if err != nil {
		return nil, err
	}
	return &FS{path: filepath.Clean(path), real: real, root: root}, nil
}

// Close closes the root.
func (f *FS) Close() error { return f.root.Close() }

// Real is the root's real path.
func (f *FS) Real() string { return f.real }

// Stat says what is at path, and its path with links resolved, slash-separated and relative to the root ("." is the root).
// path is absolute or relative to the root.
func (f *FS) Stat(path string) (kind Kind, real, reason string) {
	rel, ok := f.rel(path)
	if !ok {
		return Refused, "", "it is outside the project root"
	}
	st, err := f.stat(rel)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return None, "", ""
	case errors.Is(err, fs.ErrPermission):
		return Refused, "", "this user may not read it"
	case errors.Is(err, syscall.ELOOP):
		return Refused, "", "its links form a circle"
	case errors.As(err, new(syscall.Errno)): // the root's own refusal has none
		return Refused, "", "reading it failed: " + err.Error()
	default:
		return Refused, "", f.describeEscape(rel)
	}
	resolved, err := filepath.EvalSymlinks(filepath.Join(f.real, rel))
	if errors.Is(err, fs.ErrNotExist) {
		return None, "", ""
	}
	if err != nil {
		return Refused, "", "reading it failed: " + err.Error()
	}
	inside, err := filepath.Rel(f.real, resolved)
	if err != nil || !filepath.IsLocal(inside) {
		return Refused, "", f.describeEscape(rel)
	}
	inside = filepath.ToSlash(inside)
	switch m := st.Mode(); {
	case m.IsDir():
		return Dir, inside, ""
	case m.IsRegular():
		return File, inside, ""
	default:
		return Refused, inside, "it is " + nameOf(m) + ", not a regular file"
	}
}

// Read is the content of a regular file of at most limit bytes. The kind is File, None or Refused.
func (f *FS) Read(path string, limit int64) (content []byte, kind Kind, reason string) {
	kind, real, reason := f.Stat(path)
	switch kind {
	case File:
	case Dir:
		return nil, Refused, "it is a directory"
	default:
		return nil, kind, reason
	}
	// What was a file a moment ago may be a fifo now: it is opened without waiting, and looked at again.
	h, err := f.open(real)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return nil, Refused, "this user may not read it"
		}
		if files.MachineFailed(err) {
			return nil, Refused, "reading it failed: " + err.Error()
		}
		return nil, Refused, "it changed while it was read"
	}
	defer h.Close()
	st, err := h.Stat()
	if err != nil {
		return nil, Refused, "reading it failed: " + err.Error()
	}
	if !st.Mode().IsRegular() {
		return nil, Refused, "it changed while it was read"
	}
	if st.Size() > limit {
		return nil, Refused, fmt.Sprintf("it has %d bytes, more than the %d that a module may have", st.Size(), limit)
	}
	content, err = io.ReadAll(io.LimitReader(h, limit+1))
	if err != nil {
		return nil, Refused, "reading it failed: " + err.Error()
	}
	if int64(len(content)) > limit {
		return nil, Refused, fmt.Sprintf("it has more than the %d bytes that a module may have", limit)
	}
	return content, File, ""
}

func (f *FS) stat(rel string) (fs.FileInfo, error) {
	return fault.Get("stat", rel, f.root.Stat)
}

func (f *FS) open(real string) (*fault.File, error) {
	if err := fault.Point("open", real); err != nil {
		return nil, err
	}
	return fault.Open(f.root.OpenFile(filepath.FromSlash(real), os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0))
}

// Names are the entries of a directory inside the root, sorted; none where there is no such directory.
func (f *FS) Names(path string) ([]string, error) {
	kind, real, reason := f.Stat(path)
	if kind == Refused {
		return nil, fmt.Errorf("%s: %s", path, reason)
	}
	if kind != Dir {
		return nil, nil
	}
	d, err := f.open(real)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

func (f *FS) rel(path string) (string, bool) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(f.real, path)
	}
	for _, base := range []string{f.real, f.path} {
		if rel, err := filepath.Rel(base, filepath.Clean(path)); err == nil && filepath.IsLocal(rel) {
			return rel, true
		}
	}
	return "", false
}

// describeEscape names the link that leads out of the root. It does not say where to: that is not the project's to show.
func (f *FS) describeEscape(rel string) string {
	at := ""
	for _, part := range strings.Split(filepath.ToSlash(rel), "/") {
		at = filepath.Join(at, part)
		if _, err := f.root.Stat(at); err != nil {
			if st, err := f.root.Lstat(at); err == nil && st.Mode()&fs.ModeSymlink != 0 {
				return fmt.Sprintf("%s is a link that leaves the project root (a link with an absolute target counts as leaving)", filepath.ToSlash(at))
			}
		}
	}
	return "it is not inside the project root"
}

func nameOf(m fs.FileMode) string {
	switch {
	case m&fs.ModeNamedPipe != 0:
		return "a fifo"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	default:
		return "something special"
	}
}
