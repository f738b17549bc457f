package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/laufwerk/laufwerk/internal/testkit/gateway/relay"
)

// Rights of Landlock's second version, with which OpenShell works.
const (
	reading = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	all     = unix.LANDLOCK_ACCESS_FS_REFER<<1 - 1
	ofFiles = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE
)

// access is a Landlock ruleset that grants what the sandbox may have, and an error where it cannot be had.
func access(s relay.Sandbox) (ruleset int, err error) {
	attr := unix.LandlockRulesetAttr{Handled_access_fs: all}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr.Handled_access_fs), 0)
	if errno != 0 {
		return -1, fmt.Errorf("landlock_create_ruleset: %w", errno)
	}
	grant := func(path string, rights uint64) error {
		at, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOENT) && !s.Hard {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the path %s of the policy: %w", path, err)
		}
		defer unix.Close(at)
		var stat unix.Stat_t
		if err := unix.Fstat(at, &stat); err != nil {
			return err
		}
		if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
			rights &= ofFiles
		}
		beneath := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(at)} //nolint:gosec // a descriptor
		_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, fd, unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&beneath)), 0, 0, 0)
		if errno != 0 {
			return fmt.Errorf("landlock_add_rule %s: %w", path, errno)
		}
		return nil
	}
	for _, path := range s.ReadOnly {
		if err := grant(path, reading); err != nil {
			return -1, err
		}
	}
	for _, path := range s.ReadWrite {
		if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSymlink != 0 {
			return -1, fmt.Errorf("the path %s of the policy is a symbolic link", path)
		}
		if err := grant(path, all); err != nil {
			return -1, err
		}
	}
	return int(fd), nil //nolint:gosec // a descriptor
}

// confine makes this process one of the sandbox, and then that program. Everything that a thread has alone is done on the one
// that becomes the program.
func confine(s relay.Sandbox, argv []string) error {
	runtime.LockOSThread()
	ruleset, err := access(s)
	if err != nil {
		return err
	}
	path := argv[0]
	if found, err := exec.LookPath(path); err == nil {
		path = found
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	for capability := range uintptr(64) {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(ruleset), 0, 0); errno != 0 {
		return fmt.Errorf("landlock_restrict_self: %w", errno)
	}
	_ = unix.Close(ruleset)
	for _, err := range []error{syscall.Setgroups([]int{0}), syscall.Setresgid(s.GID, s.GID, s.GID), syscall.Setresuid(s.UID, s.UID, s.UID)} {
		if err != nil {
			return err
		}
	}
	if err := withhold(); err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", path, syscall.Exec(path, argv, os.Environ()))
}

// withhold refuses system calls by seccomp, of those that OpenShell refuses the ones that matter to a program like laufwerk.
func withhold() error {
	refused := []uint32{
		unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_GETFD, unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_BPF, unix.SYS_IO_URING_SETUP,
		unix.SYS_MOUNT, unix.SYS_UNSHARE, unix.SYS_SETNS,
	}
	slices.Sort(refused)
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}} // the number of the call
	for i, call := range refused {
		filter = append(filter, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: uint8(len(refused) - i), K: call}) //nolint:gosec // a few
	}
	filter = append(filter,
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]} //nolint:gosec // a few
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}
