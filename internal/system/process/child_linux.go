package process

import (
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/laufwerk/laufwerk/internal/system/fault"
)

func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// startUnprivileged starts cmd from a thread that may gain no privileges, which its children inherit. The thread is not
// used for anything else: the runtime ends it together with the goroutine that stays locked to it.
func startUnprivileged(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			started <- err
			return
		}
		started <- cmd.Start()
	}()
	return <-started
}

// Confine takes from this process what evaluating user code never needs: core dumps, writing to files, more than dataBytes
// of private memory. Pipes that are open stay usable.
func Confine(dataBytes uint64) error {
	if err := fault.Point("rlimit", ""); err != nil {
		return err
	}
	for what, limit := range map[int]uint64{
		unix.RLIMIT_CORE: 0, unix.RLIMIT_FSIZE: 0, unix.RLIMIT_DATA: dataBytes,
	} {
		if err := unix.Setrlimit(what, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return err
		}
	}
	return nil
}
