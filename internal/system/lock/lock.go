// Package lock holds files locked between processes, and always knows who holds one.
//
// On Linux these are open-file-description locks: they belong to the open file, vanish with it however the process ends,
// and asking whether one is held (F_OFD_GETLK) never takes it. The holder writes who it is into the lock file.
// A lock file is never removed: removing one together with its directory gave two holders when it was measured.
package lock

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
)

// Holder is what a lock's holder wrote about itself.
type Holder struct {
	PID     int       `json:"pid"`
	Command string    `json:"command"`
	Since   time.Time `json:"since"`
}

// Age is how long the lock has been held; never negative, whatever the clock did.
func (h Holder) Age(now time.Time) time.Duration {
	if d := now.Sub(h.Since); d > 0 {
		return d
	}
	return 0
}

func (h Holder) String() string {
	if h.PID == 0 {
		return "an unknown process"
	}
	return fmt.Sprintf("process %d (%s), for %s", h.PID, h.Command, h.Age(time.Now()).Round(time.Second))
}

// noFollow is for every open of a lock file: some lie in directories that an agent can write, and the holder's name is
// written into the file. Nor is a fifo waited for.
const noFollow = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// Lock is held until Release or the end of the process.
type Lock struct {
	f    *os.File
	path string
}

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
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|noFollow, 0o600)
	if err != nil {
		return nil, err
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
			return nil, held(path, wait)
		}
	} else if !ok {
		_ = f.Close()
		return nil, held(path, 0)
	}
	l := &Lock{f: f, path: path}
	if mode == Exclusive {
		l.describe(command)
	}
	return l, nil
}

func held(path string, waited time.Duration) error {
	h, _, _ := Query(path)
	e := failure.New(failure.LockHeld, "%s is locked by %s", path, h).WithField("holder", h)
	if waited > 0 {
		e.Message += fmt.Sprintf("; gave up after %s", waited)
	}
	return e
}

func (l *Lock) describe(command string) {
	b, err := json.Marshal(Holder{PID: os.Getpid(), Command: command, Since: time.Now().UTC()})
	if err != nil {
		return
	}
	b = append(b, '\n')
	if _, err := l.f.WriteAt(b, 0); err == nil {
		_ = l.f.Truncate(int64(len(b)))
	}
}

// File is the locked file, for a holder that keeps data in it.
func (l *Lock) File() *os.File { return l.f }

// Release gives the lock up. It may be called twice.
func (l *Lock) Release() {
	if l != nil && l.f != nil {
		_ = l.f.Close()
		l.f = nil
	}
}

// Query says who holds an exclusive lock, without taking it. A missing file, a free lock or garbage inside a free file is "not held".
func Query(path string) (Holder, bool, error) {
	f, err := os.OpenFile(path, os.O_RDWR|noFollow, 0)
	if os.IsNotExist(err) {
		return Holder{}, false, nil
	}
	if os.IsPermission(err) {
		f, err = os.OpenFile(path, os.O_RDONLY|noFollow, 0)
	}
	if err != nil {
		return Holder{}, false, err
	}
	defer f.Close()
	is, err := isLocked(f)
	if err != nil || !is {
		return Holder{}, false, err
	}
	var h Holder
	b := make([]byte, 4096)
	n, _ := f.ReadAt(b, 0)
	_ = json.Unmarshal(b[:n], &h)
	return h, true, nil
}
