package process

import (
	"os"
	"os/signal"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/laufwerk/laufwerk/internal/system/fault"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// IgnoreSignals makes this process ignore every signal that can be ignored, the ends of children too: the kernel then reaps
// them itself, also those that come to it as orphans. Go's runtime catches signals whose default would end a process, so
// that for the first process of a PID namespace the kernel's own protection does not hold without this.
func IgnoreSignals() {
	signal.Ignore()
	setUnnotified(ignored)
}

// CatchSignals does the same for a process that starts others, in which what is ignored would stay ignored: signals are caught
// and dropped, and children are reaped when they end, those too that come to it as orphans. What it starts calls UnignoreSignals.
func CatchSignals() {
	drop, ended := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(drop)
	signal.Notify(ended, unix.SIGCHLD)
	setUnnotified(ignored)
	go func() {
		for {
			select {
			case <-drop:
			case <-ended:
				Reap()
			}
		}
	}()
}

// UnignoreSignals undoes what a process that has called CatchSignals hands on to this one.
func UnignoreSignals() { setUnnotified(byDefault) }

// The dispositions of sigaction(2).
const byDefault, ignored = 0, 1

// setUnnotified sets the disposition of the two signals that os/signal leaves at their default, for C libraries use them. The
// kernel does not let a signal at its default end the first process of a PID namespace, except while its main thread blocks the
// signal and another thread does not (sig_ignored and complete_signal in Linux' kernel/signal.c). Go's main thread blocks all
// signals while it makes a thread or starts a program.
func setUnnotified(handler uintptr) {
	action := struct{ handler, flags, restorer, mask uintptr }{handler: handler}
	for _, sig := range []uintptr{32, 34} {
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&action)), 0, unsafe.Sizeof(action.mask), 0, 0)
		if errno != 0 {
			panic(errno) // it cannot fail with these arguments
		}
	}
}

// spareThreads are more threads than a process ever needs at once that starts others one after the other and reaps them, on two
// processors.
const spareThreads = 6

// SpareThreads makes threads that stay for when they are needed: where none can be made then, because others have used up what
// a sandbox may have, Go's runtime ends the process.
func SpareThreads() {
	var made sync.WaitGroup
	done := make(chan struct{})
	for range spareThreads {
		made.Add(1)
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			made.Done()
			<-done
		}()
	}
	made.Wait()
	close(done)
}

// KeepOpen holds f open, and does nothing else, for as long as this process lives.
func KeepOpen(f *File) {
	for {
		time.Sleep(time.Hour)
		runtime.KeepAlive(f)
	}
}

// Daemonize makes this process independent of what started it: it is in a session of its own, and what it says to stderr is
// appended to the file log.
func Daemonize(log string) (*File, error) {
	f, err := files.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, files.FileMode)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := fault.Point("setsid", ""); err != nil {
		return nil, err
	}
	if _, err := unix.Setsid(); err != nil && err != unix.EPERM { // EPERM: it has its own already
		return nil, err
	}
	if err := unix.Dup3(int(f.Fd()), 2, 0); err != nil {
		return nil, err
	}
	return fault.Open(os.Stderr, nil)
}
