package process

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/laufwerk/laufwerk/internal/system/files"
)

// maxEnviron bounds how much of a foreign process's environment is read, in bytes.
const maxEnviron = 4 << 20

// FindMarked are the living processes, other than this one, whose initial environment has the variable name with a value that
// match accepts. A process can clear its environment, and that of another user may not be readable: what is found is
// certain, what is not found proves nothing.
func FindMarked(name string, match func(value string) bool) ([]Identity, error) {
	all, err := AllMarks(name)
	if err != nil {
		return nil, err
	}
	var out []Identity
	for _, m := range all {
		if match(m.Value) {
			out = append(out, m.Identity)
		}
	}
	return out, nil
}

// Mark is a process with the value of a variable in its initial environment.
type Mark struct {
	Identity
	Value string
}

// AllMarks are all living processes, other than this one, that have the variable name. As with Marked, what is not found proves
// nothing.
func AllMarks(name string) ([]Mark, error) {
	pids, err := visible()
	if err != nil {
		return nil, err
	}
	var out []Mark
	for _, pid := range pids {
		if pid == os.Getpid() {
			continue
		}
		if _, ok := variable(pid, name); !ok {
			continue // most processes: nothing else is asked of them
		}
		id, err := IdentityOf(pid)
		if err != nil {
			continue
		}
		if v, ok := variable(pid, name); ok && Probe(id) == Alive { // now certainly of the process that was identified
			out = append(out, Mark{id, v})
		}
	}
	return out, nil
}

func variable(pid int, name string) (string, bool) {
	f, err := files.Open("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return "", false
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxEnviron))
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		return "", false
	}
	for kv := range bytes.SplitSeq(b, []byte{0}) {
		if k, v, ok := bytes.Cut(kv, []byte("=")); ok && string(k) == name {
			return string(v), true
		}
	}
	return "", false
}

// FindByArguments are the living processes, other than this one, whose arguments match accepts.
func FindByArguments(match func(args []string) bool) ([]Identity, error) {
	pids, err := visible()
	if err != nil {
		return nil, err
	}
	var out []Identity
	for _, pid := range pids {
		if pid == os.Getpid() || !match(Arguments(pid)) {
			continue
		}
		if id, err := IdentityOf(pid); err == nil && match(Arguments(pid)) && Probe(id) == Alive { // now certainly its own
			out = append(out, id)
		}
	}
	return out, nil
}

// Executing are the processes, as far as they can be seen, whose program lies below dir (absolute, links resolved).
func Executing(dir string) []int {
	pids, err := visible()
	if err != nil {
		return nil
	}
	below := strings.TrimSuffix(dir, "/") + "/"
	return slices.DeleteFunc(pids, func(pid int) bool {
		program, err := files.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		return err != nil || !strings.HasPrefix(program, below)
	})
}

// Arguments are those that a process was started with, its name first; nil where they cannot be read. A process can write
// over its own: they tell who something is that has no reason to lie.
func Arguments(pid int) []string {
	b, err := files.Read(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
}

// KillStopped kills the processes of a control group whose path has name in it that are stopped or traced and that were started
// as one of programs, and says how many it killed. Those that may not be signalled are left.
func KillStopped(name string, programs ...string) (killed int) {
	pids, err := visible()
	if err != nil {
		return 0
	}
	for _, pid := range pids {
		id, err := IdentityOf(pid)
		if err != nil {
			continue
		}
		if st, err := readStat(pid); err != nil || st.state != 'T' && st.state != 't' {
			continue
		}
		groups, err := files.Read(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err != nil || !bytes.Contains(groups, []byte(name)) {
			continue
		}
		args := Arguments(pid)
		if len(args) == 0 || !slices.Contains(programs, filepath.Base(strings.TrimSpace(args[0]))) {
			continue
		}
		if Signal(id, syscall.SIGKILL) == nil {
			killed++
		}
	}
	return killed
}
