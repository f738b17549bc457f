package lock

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

func flockT(mode Mode) unix.Flock_t {
	t := int16(unix.F_WRLCK)
	if mode == Shared {
		t = unix.F_RDLCK
	}
	return unix.Flock_t{Type: t, Whence: io.SeekStart}
}

func tryLock(f *os.File, mode Mode) (bool, error) {
	fl := flockT(mode)
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &fl)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	return err == nil, err
}

// waitLock blocks in the kernel, so that waiters are served in order and at once. The wait cannot be taken back: a waiter
// that gives up leaves its goroutine behind, which closes the file as soon as the kernel answers.
func waitLock(ctx context.Context, f *os.File, mode Mode, wait time.Duration) (bool, error) {
	got := make(chan error, 1)
	fd := f.Fd()
	go func() {
		for {
			fl := flockT(mode)
			err := unix.FcntlFlock(fd, unix.F_OFD_SETLKW, &fl)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			got <- err
			return
		}
	}()
	giveUp := func() {
		go func() { <-got; _ = f.Close() }()
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case err := <-got:
		if err != nil {
			_ = f.Close()
			return false, err
		}
		return true, nil
	case <-ctx.Done():
		giveUp()
		return false, ctx.Err()
	case <-timer.C:
		giveUp()
		return false, nil
	}
}

func isLocked(f *os.File) (bool, error) {
	fl := flockT(Exclusive)
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &fl); err != nil {
		return false, err
	}
	return fl.Type != unix.F_UNLCK, nil
}
