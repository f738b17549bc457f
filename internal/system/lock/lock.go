// Package lock holds files locked between processes, and always knows who holds one.
//
// On Linux these are open-file-description locks: they belong to the open file, vanish with it however the process ends,
// and asking whether one is held (F_OFD_GETLK) never takes it. An exclusive holder writes who it is into the lock file, and
// takes that out again when it gives the lock up; shared ones, and ones that were killed, are looked for in /proc.
// Lock files are opened without following a link: some lie in directories that an agent can write, and the holder's name is
// written into the file. A lock file is never removed: removing one together with its directory gave two holders when it was measured.
package lock

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/system/process"
)

// Holder is what a lock's holder wrote about itself.
type Holder struct {
	PID     int       `json:"pid"`
	Command string    `json:"command"`
	Since   time.Time `json:"since,omitzero"`
	// Process is who holds it, beyond doubt: an id alone can be another process's by now. It is zero where that is not known.
	Process process.Identity `json:"process,omitzero"`
}

// Age is how long the lock has been held; never negative, whatever the clock did.
func (h Holder) Age(now time.Time) time.Duration {
	return max(0, now.Sub(h.Since))
}

func (h Holder) String() string {
	if h.PID == 0 {
		return "an unknown process"
	}
	s := fmt.Sprintf("process %d (%s)", h.PID, h.Command)
	if !h.Since.IsZero() {
		s += fmt.Sprintf(", for %s", h.Age(time.Now()).Round(time.Second))
	}
	return s
}

// Lock is held until Release or the end of the process.
type Lock struct {
	f    *files.File
	mode Mode
}

// ErrLocked says that somebody else holds the lock of a file.
var ErrLocked = errors.New("it is locked")

// Mode of a lock.
type Mode int

// A shared lock excludes exclusive ones only.
const (
	Exclusive Mode = iota
	Shared
)

// Acquire waits at most wait (and no longer than ctx) for the lock. Zero wait tries once. When it is not had, the failure
// is LockHeld, and its field `holder` and its message name the holder.
func Acquire(ctx context.Context, path string, mode Mode, wait time.Duration, command string) (*Lock, error) {
	f, err := files.OpenFile(path, os.O_CREATE|os.O_RDWR, files.FileMode)
	if err != nil {
		return nil, err
	}
	self := Holder{PID: os.Getpid(), Command: command}
	if mode == Exclusive {
		self.Process, _ = process.Self() // before the lock is had, which should tell at once whose it is
	}
	ok, err := tryLock(f, mode)
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if !ok && wait > 0 {
		ok, err = waitLock(ctx, f, mode, wait) // closes f itself when it gives up
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !ok {
			return nil, lockedError(path, wait)
		}
	} else if !ok {
		_ = f.Close()
		return nil, lockedError(path, 0)
	}
	l := &Lock{f: f, mode: mode}
	if mode == Exclusive {
		l.describe(self)
	}
	return l, nil
}

// Take is Acquire, at once and exclusively, of an open file, which belongs to the lock from here on. It is for files in
// directories that somebody else may replace: a path could lead elsewhere by now.
func Take(f *files.File, command string) (*Lock, error) {
	self := Holder{PID: os.Getpid(), Command: command}
	self.Process, _ = process.Self()
	ok, err := tryLock(f, Exclusive)
	if err == nil && !ok {
		h, _, _ := QueryFile(f)
		err = lockedBy(f.Name(), h)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	l := &Lock{f: f, mode: Exclusive}
	l.describe(self)
	return l, nil
}

// LockFile takes the lock of an open file at once, exclusively; nothing is written into the file. It is held until the file is
// closed. ErrHeld says that somebody else has it.
func LockFile(f *files.File) error {
	ok, err := tryLock(f, Exclusive)
	if err == nil && !ok {
		err = ErrLocked
	}
	return err
}

func lockedError(path string, waited time.Duration) error {
	e := lockedBy(path, Who(path))
	if waited > 0 {
		e.Message += fmt.Sprintf("; gave up after %s", waited)
	}
	return e
}

func lockedBy(path string, h Holder) *failure.Error {
	return failure.New(failure.LockBusy, "%s is locked by %s", path, h).WithField("holder", h)
}

func (l *Lock) describe(h Holder) {
	h.Since = time.Now().UTC()
	b, err := json.Marshal(h)
	if err != nil {
		return
	}
	b = append(b, '\n')
	if _, err := l.f.WriteAt(b, 0); err == nil {
		_ = l.f.Truncate(int64(len(b)))
	}
}

// Release gives the lock up. It may be called twice. The lock is freed before the file is closed: a child that another
// goroutine is just starting has the file open too, until it has become its program.
func (l *Lock) Release() {
	if l == nil || l.f == nil {
		return
	}
	if l.mode == Exclusive {
		_ = l.f.Truncate(0) // the next holder may be one that does not describe itself
	}
	_ = unlock(l.f)
	_ = l.f.Close()
	l.f = nil
}

// Query says whether a lock is held, without taking it, and who its exclusive holder says to be. A missing file, a free lock
// or garbage inside a free file is "not held".
func Query(path string) (Holder, bool, error) {
	f, err := files.OpenFile(path, os.O_RDWR, 0)
	if os.IsNotExist(err) {
		return Holder{}, false, nil
	}
	if os.IsPermission(err) {
		f, err = files.OpenFile(path, os.O_RDONLY, 0)
	}
	if err != nil {
		return Holder{}, false, err
	}
	defer f.Close()
	return QueryFile(f)
}

// QueryFile is Query of an open file.
func QueryFile(f *files.File) (Holder, bool, error) {
	locked, err := isLocked(f)
	if err != nil || !locked {
		return Holder{}, false, err
	}
	var h Holder
	b := make([]byte, 4096)
	n, _ := f.ReadAt(b, 0)
	if json.NewDecoder(bytes.NewReader(b[:n])).Decode(&h) != nil {
		h = Holder{}
	}
	return h, true, nil
}

// Who names one holder of a lock, for people: the one that describes itself, if it lives, else one that is found among the
// processes of this machine. It is the zero Holder where nobody is found.
func Who(path string) Holder {
	h, _, _ := Query(path)
	if h.PID != 0 && (h.Process == process.Identity{} || !isGone(h.Process)) {
		return h
	}
	return findHolder(path)
}

func isGone(id process.Identity) bool {
	l := process.Probe(id)
	return l == process.Dead || l == process.OtherBoot
}
