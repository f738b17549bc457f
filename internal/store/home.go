package store

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// Home is $LAUFWERK_HOME: the directory that holds everything laufwerk remembers.
type Home struct {
	dir string // absolute, links resolved
}

// OpenHome checks the directory, and makes it and its parts where create is set. An existing one must belong to this user and
// be writable by nobody else (HomeInvalid otherwise). One that others can merely read is closed to them when create is set,
// and left as it is by commands that only look. Without create a missing directory is an empty home.
func OpenHome(dir string, create bool) (*Home, error) {
	if dir == "" {
		return nil, failure.New(failure.HomeInvalid, "the directory for laufwerk's state is unknown: neither HOME nor LAUFWERK_HOME is set").
			WithHint("export LAUFWERK_HOME=/path/to/a/private/directory")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, failure.Wrap(err, failure.HomeInvalid, "LAUFWERK_HOME %s", dir)
	}
	if create {
		if err := files.MkdirAll(abs); err != nil {
			return nil, homeError(abs, err)
		}
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		abs = real
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, homeError(abs, err)
	}
	h := &Home{dir: abs}
	if err := h.check(create); err != nil {
		return nil, err
	}
	return h, nil
}

func (h *Home) check(create bool) error {
	if err := checkDir(h.dir, create); err != nil {
		return err
	}
	if !create && !files.Exists(h.dir) {
		return nil
	}
	if create {
		if err := files.Writable(h.dir); err != nil {
			return homeError(h.dir, err)
		}
	}
	for _, dir := range []string{h.locksDir(), h.RunsDir(), h.WorkspacesDir()} {
		if create {
			if err := files.Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
				return homeError(dir, err)
			}
		}
		if err := checkDir(dir, create); err != nil {
			return err
		}
	}
	return nil
}

// checkDir accepts a directory of this user's that nobody else can write, and one that is not there.
func checkDir(dir string, tighten bool) error {
	st, err := files.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return homeError(dir, err)
	}
	if !st.IsDir() {
		return failure.New(failure.HomeInvalid, "%s is not a directory but a %s: move it away", dir, typeName(st.Mode())).
			WithHint("mv %s %s", failure.Quote(dir), failure.Quote(dir+".other")).WithPaths(dir)
	}
	if err := checkOwner(dir, st); err != nil {
		return err
	}
	if tighten && st.Mode().Perm()&0o077 != 0 {
		if err := files.MakePrivate(dir); err != nil {
			return homeError(dir, err)
		}
	}
	return nil
}

func checkOwner(path string, st fs.FileInfo) error {
	if uid, ok := files.Owner(st); ok && uid != system.UID() {
		return failure.New(failure.HomeInvalid, "%s belongs to user %d, laufwerk runs as user %d: its owner could change what laufwerk trusts", path, uid, system.UID()).
			WithHint("export LAUFWERK_HOME=/path/to/a/directory/of/your/own").WithPaths(path)
	}
	if st.Mode().Perm()&0o022 != 0 {
		return failure.New(failure.HomeInvalid, "%s can be written by others (mode %04o): they could change what laufwerk trusts", path, st.Mode().Perm()).
			WithHint("chmod go-rwx %s", failure.Quote(path)).WithPaths(path)
	}
	return nil
}

// homeError gives what went wrong in the home its sentence and the way out.
func homeError(path string, err error) error {
	e := failure.New(failure.HomeInvalid, "%s cannot be used", path).WithPaths(path).WithCause(err)
	switch {
	case files.NoSpace(err):
		e.Message = "the file system of " + path + " is full; free some space there, and repeat the command"
		e.Hint = "df -h " + failure.Quote(filepath.Dir(path))
	case files.MachineFailed(err): // another home would not help
	default:
		e.Hint = "export LAUFWERK_HOME=/path/to/a/private/directory"
		if info, statErr := files.Lstat(path); statErr == nil && files.NotWritable(err) {
			if uid, known := files.Owner(info); known && uid == system.UID() { // else it is not ours to change
				e.Hint = "chmod u+rwX " + failure.Quote(path) + "\n" + e.Hint
			}
		}
	}
	return e
}

func typeName(m fs.FileMode) string {
	switch {
	case m.IsRegular():
		return "file"
	case m.IsDir():
		return "directory"
	case m&fs.ModeSymlink != 0:
		return "symbolic link"
	case m&fs.ModeNamedPipe != 0:
		return "fifo"
	case m&fs.ModeSocket != 0:
		return "socket"
	default:
		return "device"
	}
}

// Dir is the home itself, absolute and with links resolved.
func (h *Home) Dir() string { return h.dir }

// StateFile is the bbolt file.
func (h *Home) StateFile() string { return filepath.Join(h.dir, "state.db") }

// OwnerFile holds the store's id, plain.
func (h *Home) OwnerFile() string { return filepath.Join(h.dir, "owner") }

// RunsDir holds a folder for every run.
func (h *Home) RunsDir() string { return filepath.Join(h.dir, "runs") }

// RunDir is the folder of one run: journal, blobs, inbox, records of its operations.
func (h *Home) RunDir(id string) string { return filepath.Join(h.dir, "runs", pathComponent(id)) }

// WorkspacesDir holds the workspaces.
func (h *Home) WorkspacesDir() string { return filepath.Join(h.dir, "workspaces") }

// WorkspaceDir is the folder of one workspace.
func (h *Home) WorkspaceDir(id string) string {
	return filepath.Join(h.dir, "workspaces", pathComponent(id))
}

// BundlesDir holds bundles of projects' modules, to be made again where they are missing.
func (h *Home) BundlesDir() string { return filepath.Join(h.dir, "bundles") }

// LockFile is the lock of a name; lock files are never removed.
func (h *Home) LockFile(name string) string { return filepath.Join(h.locksDir(), pathComponent(name)) }

func (h *Home) locksDir() string { return filepath.Join(h.dir, "locks") }
func (h *Home) gateFile() string { return h.LockFile("state") }
func (h *Home) markFile() string { return h.LockFile("state.mark") }

// pathComponent turns an id into exactly one name below its folder, whatever it holds.
func pathComponent(id string) string {
	id = strings.NewReplacer("%", "%25", "/", "%2F", "\x00", "%00").Replace(id)
	if id == "" || id == "." || id == ".." {
		return "%" + id
	}
	return id
}
