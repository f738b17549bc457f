//go:build !linux

package lock

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laufwerk/laufwerk/internal/system/files"
)

func lockType(mode Mode) int {
	if mode == Shared {
		return unix.LOCK_SH
	}
	return unix.LOCK_EX
}

func tryLock(f *files.File, mode Mode) (bool, error) {
	err := unix.Flock(int(f.Fd()), lockType(mode)|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

func waitLock(ctx context.Context, f *files.File, mode Mode, wait time.Duration) (bool, error) {
	deadline := time.Now().Add(wait)
	for {
		ok, err := tryLock(f, mode)
		if ok || err != nil {
			return ok, err
		}
		if time.Now().After(deadline) {
			_ = f.Close()
			return false, nil
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return false, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func unlock(f *files.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }

// findHolder finds nobody: there is no /proc to look into.
func findHolder(string) Holder { return Holder{} }

// isLocked has no query to ask here: it tries the lock and gives it back at once.
func isLocked(f *files.File) (bool, error) {
	ok, err := tryLock(f, Exclusive)
	if ok {
		_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
	}
	return !ok && err == nil, err
}
