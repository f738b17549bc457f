package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Output is what a process has printed so far, for those who ask while it runs.
type Output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *Output) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *Output) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// reportHang tells where it hangs, and has it say what its goroutines do. It is at its end soon then, whatever it waits for.
func (r *Process) reportHang(limit time.Duration) {
	r.T.Errorf("laufwerk %s has not ended after %s.\nstdout so far:\n%s\nstderr so far:\n%s\nprocesses:\n%s",
		strings.Join(r.Cmd.Args[1:], " "), limit, &r.Stdout, &r.Stderr, DescribeProcesses(r.dir))
	_ = r.Cmd.Process.Signal(syscall.SIGQUIT)
	time.AfterFunc(20*time.Second, func() { _ = r.Cmd.Process.Kill() }) // one that is stopped takes no signal
}

// DescribeProcesses describes the processes that have to do with a directory, by a line each and one for each of their connections:
// those that name it, and those in whose container a part of it is mounted.
func DescribeProcesses(dir string) string {
	var out strings.Builder
	networks := map[string]bool{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range dirs {
		if filepath.Base(proc) == fmt.Sprint(os.Getpid()) || !concerns(proc, dir) {
			continue
		}
		line, _ := os.ReadFile(proc + "/cmdline")
		fmt.Fprintf(&out, "  %s (%s, in %s): %s\n", filepath.Base(proc), processState(proc), strings.TrimSpace(readHead(proc+"/wchan")), bytes.ReplaceAll(bytes.TrimRight(line, "\x00"), []byte{0}, []byte(" ")))
		if network, _ := os.Readlink(proc + "/ns/net"); networks[network] {
			continue
		} else if own, _ := os.Readlink("/proc/self/ns/net"); network != own { // a container's
			networks[network] = true
			fmt.Fprintf(&out, "    connections of its network:\n%s", indented(readHead(proc+"/net/tcp")+readHead(proc+"/net/tcp6")))
		}
	}
	return out.String()
}

// concerns looks for a directory in what a process was started with, and among the mounts that it sees, whose sources are paths
// from the top of their file system.
func concerns(proc, dir string) bool {
	for _, f := range []string{"cmdline", "environ"} {
		if strings.Contains(readHead(filepath.Join(proc, f)), dir+"/") {
			return true
		}
	}
	for line := range strings.Lines(readHead(proc + "/mountinfo")) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], "/laufwerk/") && strings.Contains(f[3], filepath.Join(filepath.Base(filepath.Dir(dir)), filepath.Base(dir))+"/") {
			return true
		}
	}
	return false
}

// readHead is the beginning of a file, "" where it cannot be read.
func readHead(path string) string {
	b, _ := os.ReadFile(path)
	return string(b[:min(len(b), 64<<10)])
}

func processState(proc string) string {
	_, rest, _ := strings.Cut(readHead(proc+"/stat"), ") ")
	state, _, _ := strings.Cut(rest, " ")
	return state
}

func indented(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		out.WriteString("      " + strings.TrimRight(line, " \n") + "\n")
	}
	return out.String()
}

// HangLimit is how long a script waits for something that must come. It is no assertion about time.
const HangLimit = 3 * time.Minute
