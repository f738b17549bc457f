package writeback

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// denyRenameFlags makes every file system answer as one that knows plain renames only: a seccomp filter lets renameat2 with
// flags fail with EINVAL, in all threads and for good.
func denyRenameFlags(t *testing.T) {
	runtime.LockOSThread()
	const flagsLow = 16 + 4*8 // seccomp_data: number, architecture, instruction pointer, six arguments
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_RENAMEAT2, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: flagsLow},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: 0, Jt: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EINVAL)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		t.Fatalf("seccomp: %v", errno)
	}
}

func TestFileSystemThatCannotExchange(t *testing.T) {
	for _, noExchange := range []bool{false, true} {
		at := fast(t)
		w := newWorldIn(t, at, allBase, allFrozen, allBase)
		cmd := exec.Command(must(os.Executable()), "-test.run", "^TestChild$")
		cmd.Env = append(os.Environ(), childDo+"=apply", childDir+"="+at, childDeny+"=1")
		if noExchange {
			cmd.Env = append(cmd.Env, childTwo+"=1")
		}
		out, err := cmd.CombinedOutput()
		if noExchange {
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			w.holds(allFrozen)
			continue
		}
		if err == nil || !strings.Contains(string(out), "cannot exchange two files") {
			t.Errorf("%v\n%s", err, out)
		}
		w.holds(allBase)
	}
}
