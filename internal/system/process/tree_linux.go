package process

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/laufwerk/laufwerk/internal/system/fault"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// BecomeSubreaper makes this process the new parent of every descendant whose own parent ends.
func BecomeSubreaper() error {
	return fault.Do("prctl", "", func() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) })
}

// Reap collects the children that have ended. None says that there is no child left at all, living or ended; for a
// subreaper this is the proof that no descendant is left either.
func Reap() (ended []Status, empty bool) {
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WNOHANG|unix.WALL, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.ECHILD:
			return ended, true
		case err != nil || pid == 0:
			return ended, false
		}
		s := Status{PID: pid, Code: ws.ExitStatus()}
		if ws.Signaled() {
			s.Signal = int(ws.Signal())
			s.Code = 128 + s.Signal
		}
		ended = append(ended, s)
	}
}

// Children are the ids of the direct children of this process. They stay valid as long as the caller reaps none.
func Children() []int {
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(lists) == 0 { // a kernel without CONFIG_PROC_CHILDREN
		self := os.Getpid()
		var out []int
		for pid, st := range allStats() {
			if st.parent == self {
				out = append(out, pid)
			}
		}
		return out
	}
	var out []int
	for _, f := range lists {
		b, err := files.Read(f)
		if err != nil {
			continue
		}
		for w := range strings.FieldsSeq(string(b)) {
			if pid, err := strconv.Atoi(w); err == nil {
				out = append(out, pid)
			}
		}
	}
	return out
}

// Descendants are the living processes below pid, as far as parents are known.
func Descendants(pid int) []Identity {
	boot, err := BootID()
	if err != nil {
		return nil
	}
	ns, err := namespace()
	if err != nil {
		return nil
	}
	all := allStats()
	below := map[int][]int{}
	for p, st := range all {
		below[st.parent] = append(below[st.parent], p)
	}
	var out []Identity
	seen := map[int]bool{pid: true}
	for queue := []int{pid}; len(queue) > 0; {
		p := queue[0]
		queue = queue[1:]
		for _, c := range below[p] {
			if seen[c] {
				continue
			}
			seen[c] = true
			queue = append(queue, c)
			if !all[c].ended() {
				out = append(out, Identity{PID: c, StartTime: all[c].start, BootID: boot, PIDNS: ns})
			}
		}
	}
	return out
}

// visible are the processes that can be seen, in no order.
func visible() ([]int, error) {
	names, err := files.Names("/proc")
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, err
}

func allStats() map[int]stat {
	pids, err := visible()
	if err != nil {
		return nil
	}
	out := map[int]stat{}
	for _, pid := range pids {
		if st, err := readStat(pid); err == nil {
			out[pid] = st
		}
	}
	return out
}

// KillChildren kills the direct children of this process. Their own children then become ours (see BecomeSubreaper), so
// that repeating it with Reap until none is left ends a whole tree, also where pidfds are refused.
func KillChildren() int {
	pids := Children()
	for _, pid := range pids {
		_ = kill(pid, unix.SIGKILL)
	}
	return len(pids)
}

// KillDescendants kills everything below this process that can be seen now.
func KillDescendants() {
	for _, id := range Descendants(os.Getpid()) {
		_ = Signal(id, unix.SIGKILL)
	}
}

// SignalGroup signals the process group of a direct child that leads one and has not been reaped.
func SignalGroup(child int, sig syscall.Signal) error { return asGone(kill(-child, sig)) }
