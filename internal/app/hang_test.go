package app_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// spoken is what a process has printed so far, for those who ask while it runs.
type spoken struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *spoken) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *spoken) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// hangs tells where it hangs, and has it say what its goroutines do. It is at its end soon then, whatever it waits for.
func (r *running) hangs(limit time.Duration) {
	r.t.Errorf("laufwerk %s has not ended after %s.\nstdout so far:\n%s\nstderr so far:\n%s\nprocesses:\n%s",
		strings.Join(r.cmd.Args[1:], " "), limit, &r.out, &r.errs, concerning(r.dir))
	_ = r.cmd.Process.Signal(syscall.SIGQUIT)
	time.AfterFunc(20*time.Second, func() { _ = r.cmd.Process.Kill() }) // one that is stopped takes no signal
}

// concerning describes the processes that have to do with a directory, by a line each and one for each of their connections:
// those that name it, and those in whose container a part of it is mounted.
func concerning(dir string) string {
	var out strings.Builder
	networks := map[string]bool{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range dirs {
		if filepath.Base(proc) == fmt.Sprint(os.Getpid()) || !concerns(proc, dir) {
			continue
		}
		line, _ := os.ReadFile(proc + "/cmdline")
		fmt.Fprintf(&out, "  %s (%s, in %s): %s\n", filepath.Base(proc), state(proc), strings.TrimSpace(first(proc+"/wchan")), bytes.ReplaceAll(bytes.TrimRight(line, "\x00"), []byte{0}, []byte(" ")))
		if network, _ := os.Readlink(proc + "/ns/net"); networks[network] {
			continue
		} else if own, _ := os.Readlink("/proc/self/ns/net"); network != own { // a container's
			networks[network] = true
			fmt.Fprintf(&out, "    connections of its network:\n%s", indented(first(proc+"/net/tcp")+first(proc+"/net/tcp6")))
		}
	}
	return out.String()
}

// concerns looks for a directory in what a process was started with, and among the mounts that it sees, whose sources are paths
// from the top of their file system.
func concerns(proc, dir string) bool {
	for _, f := range []string{"cmdline", "environ"} {
		if strings.Contains(first(filepath.Join(proc, f)), dir+"/") {
			return true
		}
	}
	for line := range strings.Lines(first(proc + "/mountinfo")) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], "/laufwerk/") && strings.Contains(f[3], filepath.Join(filepath.Base(filepath.Dir(dir)), filepath.Base(dir))+"/") {
			return true
		}
	}
	return false
}

// first is the beginning of a file, "" where it cannot be read.
func first(path string) string {
	b, _ := os.ReadFile(path)
	return string(b[:min(len(b), 64<<10)])
}

func state(proc string) string {
	_, rest, _ := strings.Cut(first(proc+"/stat"), ") ")
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

// recorder is a test that is failed for show.
type recorder struct {
	testing.TB
	said spoken
}

func (r *recorder) Errorf(format string, args ...any) { fmt.Fprintf(&r.said, format, args...) }

// What hangs says how far it came and what it waits for, also where that is in a container.
func TestWhatHangsSaysWhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.mark(hold)
	r := w.start(nil, "run", "job", "--no-input")
	w.begun("begin", 1)
	shown := &recorder{TB: t}
	r.t = shown
	code, _, errs := r.within(time.Millisecond)
	if code != 2 || !strings.Contains(errs, "goroutine 1 ") {
		t.Errorf("exit %d\n%s", code, errs)
	}
	for _, want := range []string{"laufwerk run job --no-input has not ended after 1ms", "stderr so far:\nrun ", "edit", "bash " + w.dir + "/agent.sh"} {
		if !strings.Contains(shown.said.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, &shown.said)
		}
	}
	w.unmark(hold)
	w.done(1)
}
