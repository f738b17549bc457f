package lock

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laufwerk/laufwerk/internal/system/fault"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/system/process"
)

func flockT(mode Mode) unix.Flock_t {
	t := int16(unix.F_WRLCK)
	if mode == Shared {
		t = unix.F_RDLCK
	}
	return unix.Flock_t{Type: t, Whence: io.SeekStart}
}

func tryLock(f *files.File, mode Mode) (bool, error) {
	if err := fault.Point("lock", ""); err != nil {
		return false, err
	}
	fl := flockT(mode)
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &fl)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	return err == nil, err
}

// waitLock blocks in the kernel, so that waiters are served in order and at once. The wait cannot be taken back: a waiter
// that gives up leaves its goroutine behind, which closes the file as soon as the kernel answers.
func waitLock(ctx context.Context, f *files.File, mode Mode, wait time.Duration) (bool, error) {
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
		go func() {
			<-got //nolint:errcheck // had or not, it is given back
			_ = f.Close()
		}()
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

func isLocked(f *files.File) (bool, error) {
	if err := fault.Point("query", ""); err != nil {
		return false, err
	}
	fl := flockT(Exclusive)
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &fl); err != nil {
		return false, err
	}
	return fl.Type != unix.F_UNLCK, nil
}

func unlock(f *files.File) error {
	fl := unix.Flock_t{Type: unix.F_UNLCK, Whence: io.SeekStart}
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &fl)
}

// findHolder finds a process that holds a lock on the file, among those that this user may look into: proc_pid_fdinfo(5) lists
// the locks that belong to each open file.
func findHolder(path string) Holder {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return Holder{}
	}
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range fds {
		if at, err := files.Readlink(fd); err != nil || at != real {
			continue
		}
		proc := filepath.Dir(filepath.Dir(fd))
		info, err := files.Read(filepath.Join(proc, "fdinfo", filepath.Base(fd)))
		if err != nil || !bytes.Contains(info, []byte("OFDLCK")) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(proc))
		if err != nil {
			continue
		}
		id, _ := process.IdentityOf(pid)
		return Holder{PID: pid, Command: commandOf(proc), Process: id}
	}
	return Holder{}
}

func commandOf(proc string) string {
	b, err := files.Read(filepath.Join(proc, "cmdline"))
	if err != nil || len(b) == 0 {
		return "unknown"
	}
	line := strings.TrimSpace(strings.ReplaceAll(string(b[:min(len(b), 200)]), "\x00", " "))
	return strings.ToValidUTF8(line, "\uFFFD")
}
