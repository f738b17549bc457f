package supervise

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/system/lock"
	"github.com/laufwerk/laufwerk/internal/system/safefs"
)

// Names in an operation's directory.
const (
	lockName      = "lock"
	abandonedName = "abandoned"
	startedName   = "started"
	exitName      = "exit"
	goneName      = "gone"
	logName       = "log"
)

// LogPath is the file below a directory of records that a supervisor's stderr goes to.
func LogPath(dir string) string { return filepath.Join(dir, logName) }

// recordSize is what a record takes on disk, in bytes: reserved before the command starts, so that a command that fills
// the disk cannot keep its own end from being recorded. maxRecord bounds what is read of one.
const (
	recordSize = 4 << 10
	maxRecord  = 1 << 20
)

// records is an operation's directory. In a sandbox the agent can write there, so nothing in it is followed or waited for.
type records struct {
	dir  string
	root *safefs.Root
}

// ErrTampered says that records are not as a supervisor leaves them: somebody else was at them.
var ErrTampered = errors.New("the records of the command were changed from inside")

// tamperedError marks an error that only others can have brought about.
func tamperedError(err error) error {
	for _, e := range []error{safefs.ErrLink, safefs.ErrNotRegular, safefs.ErrNotDir, safefs.ErrMount, fs.ErrPermission} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w", ErrTampered, err)
		}
	}
	return err
}

func openRecords(dir string) (*records, error) {
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("the directory of records must be absolute, got %q", dir)
	}
	root, err := safefs.OpenRoot(dir)
	if err != nil {
		return nil, tamperedError(err)
	}
	return &records{dir: dir, root: root}, nil
}

func (r *records) close() { _ = r.root.Close() }

// acquireLock takes the operation's lock, at once.
func (r *records) acquireLock(command string) (*lock.Lock, error) {
	f, err := r.root.OpenOrCreate(lockName, 0o600)
	if err != nil {
		return nil, tamperedError(err)
	}
	l, err := lock.Take(f, command)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.dir, err)
	}
	return l, nil
}

// lockHolder says whether somebody has the operation's lock, and who.
func (r *records) lockHolder() (lock.Holder, bool, error) {
	f, _, err := r.root.Open(lockName)
	if errors.Is(err, fs.ErrNotExist) {
		return lock.Holder{}, false, nil
	}
	if err != nil {
		return lock.Holder{}, false, tamperedError(err)
	}
	defer f.Close()
	return lock.QueryFile(f)
}

// read decodes a record; fs.ErrNotExist where there is none.
func read[T any](r *records, name string) (*T, error) {
	f, _, err := r.root.Open(name)
	if err != nil {
		return nil, tamperedError(err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxRecord))
	if err != nil {
		return nil, err
	}
	out := new(T)
	if err := json.Unmarshal(b, out); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", filepath.Join(r.dir, name), ErrTampered, err)
	}
	return out, nil
}

// readOptional is read, nil where there is no such record.
func readOptional[T any](r *records, name string) (*T, error) {
	v, err := read[T](r, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return v, err
}

// file is a new, empty file in place of whatever has the name.
func (r *records) file(name string) (*files.File, error) {
	if err := r.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return r.root.Create(name, 0o600)
}

// recordSlot is a record that has its space on disk but no content yet.
type recordSlot struct {
	r     *records
	name  string
	tmp   string
	f     *files.File
	named bool
}

func (r *records) reserve(name string) (*recordSlot, error) {
	s := &recordSlot{r: r, name: name, tmp: ".new-" + name}
	var err error
	if s.f, err = r.file(s.tmp); err != nil {
		return nil, err
	}
	if _, err := s.f.WriteAt(bytes.Repeat([]byte{' '}, recordSize), 0); err != nil {
		_ = s.f.Close()
		_ = r.root.Remove(s.tmp)
		return nil, err
	}
	return s, nil
}

// commit makes v the record, whole and durable. It may be tried again after a failure.
func (s *recordSlot) commit(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	b = append(b, '\n')
	if pad := recordSize - len(b); pad > 0 {
		b = append(b, bytes.Repeat([]byte{' '}, pad)...)
	}
	if _, err := s.f.WriteAt(b, 0); err != nil {
		return err
	}
	if err := s.f.Truncate(int64(len(b))); err != nil {
		return err
	}
	if err := s.f.Sync(); err != nil {
		return err
	}
	if !s.named {
		if err := s.r.root.Rename(s.tmp, s.name); err != nil {
			return err
		}
		s.named = true
	}
	if err := s.r.root.SyncDir("."); err != nil {
		return err
	}
	_ = s.f.Close()
	return nil
}

// write is reserve and commit in one.
func (r *records) write(name string, v any) error {
	s, err := r.reserve(name)
	if err != nil {
		return err
	}
	return s.commit(v)
}
