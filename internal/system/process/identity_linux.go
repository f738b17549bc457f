package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/laufwerk/laufwerk/internal/system/fault"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// Supported says whether this system can own processes: nil, or ErrUnsupported.
func Supported() error { return nil }

// Self is the identity of this process.
func Self() (Identity, error) { return IdentityOf(os.Getpid()) }

// IdentityOf is the identity of a process of this PID namespace; fs.ErrNotExist where there is none.
func IdentityOf(pid int) (Identity, error) {
	st, err := readStat(pid)
	if err != nil {
		return Identity{}, err
	}
	boot, err := BootID()
	if err != nil {
		return Identity{}, err
	}
	ns, err := namespace()
	if err != nil {
		return Identity{}, err
	}
	return Identity{PID: pid, StartTime: st.start, BootID: boot, PIDNS: ns}, nil
}

// BootID is another one after every start of the machine.
func BootID() (string, error) {
	b, err := files.Read("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

func namespace() (string, error) { return files.Readlink("/proc/self/ns/pid") }

// Probe says what is known of a recorded process.
func Probe(id Identity) Liveness {
	boot, err := BootID()
	if err != nil {
		return OtherNamespace
	}
	if boot != id.BootID {
		return OtherBoot
	}
	if ns, err := namespace(); err != nil || ns != id.PIDNS {
		return OtherNamespace
	}
	st, err := readStat(id.PID)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && (st.start != id.StartTime || st.ended()):
		return Dead
	case err != nil:
		return OtherNamespace
	default:
		return Alive
	}
}

// Signal signals exactly the recorded process; ErrGone where it is not there any more. The process is pinned by a pidfd
// before it is compared with the record, so that its id cannot pass to another one in between.
func Signal(id Identity, sig syscall.Signal) error {
	fd, err := pidfd(id.PID)
	switch {
	case err == nil:
		defer unix.Close(fd)
		if Probe(id) != Alive {
			return ErrGone
		}
		return asGone(pidfdSignal(fd, sig))
	case errors.Is(err, unix.ESRCH):
		return ErrGone
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOSYS):
		// A seccomp filter refuses pidfds (some sandboxes do). The id of a direct child cannot be used again before we reap it.
		if st, e := readStat(id.PID); e == nil && st.parent == os.Getpid() && Probe(id) == Alive {
			return asGone(kill(id.PID, sig))
		}
		return fmt.Errorf("process %d cannot be signalled safely: pidfd_open: %w", id.PID, err)
	default:
		return err
	}
}

// SignalInSandbox is Signal for places of which every visible process belongs to one session. Where pidfds are refused, a process
// is signalled by its id as soon as it was compared with the record: the worst that an id which passes to another one in
// between can do is to hit another one of that session.
func SignalInSandbox(id Identity, sig syscall.Signal) error {
	err := Signal(id, sig)
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	switch Probe(id) {
	case Alive:
		return asGone(kill(id.PID, sig))
	case Dead:
		return ErrGone
	}
	return err
}

func pidfd(pid int) (int, error) {
	return fault.Get("pidfd", "", func(string) (int, error) { return unix.PidfdOpen(pid, 0) })
}

func pidfdSignal(fd int, sig syscall.Signal) error {
	return fault.Do("signal", "", func() error { return unix.PidfdSendSignal(fd, sig, nil, 0) })
}

func kill(pid int, sig syscall.Signal) error {
	return fault.Do("signal", "", func() error { return unix.Kill(pid, sig) })
}

func asGone(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return ErrGone
	}
	return err
}

type stat struct {
	state  byte
	parent int
	start  uint64
}

func (s stat) ended() bool { return s.state == 'Z' || s.state == 'X' }

func readStat(pid int) (stat, error) {
	b, err := files.Read("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, unix.ESRCH) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return stat{}, err
	}
	return parseStat(b)
}

// parseStat reads proc_pid_stat(5). The name in parentheses may hold anything, spaces, parentheses and newlines too, so the
// fields are counted from the last parenthesis.
func parseStat(b []byte) (stat, error) {
	i := bytes.LastIndexByte(b, ')')
	f := bytes.Fields(b[i+1:])
	if i < 0 || len(f) < 20 {
		return stat{}, fmt.Errorf("unexpected content of /proc/PID/stat: %q", b)
	}
	parent, err := strconv.Atoi(string(f[1]))
	if err != nil {
		return stat{}, err
	}
	start, err := strconv.ParseUint(string(f[19]), 10, 64)
	return stat{state: f[0][0], parent: parent, start: start}, err
}
