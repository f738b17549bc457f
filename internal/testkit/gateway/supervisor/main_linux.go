// Command supervisor is the first process in containers of the gateway for tests. As root it starts processes of the sandbox's
// user, each in a Landlock domain of its own and without privileges, and is the only way out of the container.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/laufwerk/laufwerk/internal/testkit/gateway/relay"
)

func main() {
	s, err := describe()
	code := 1
	switch {
	case err != nil:
	case len(os.Args) > 1: // a process on its way to be one of the sandbox
		err = confine(s, os.Args[1:])
	default:
		code, err = supervise(s)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "supervisor:", err)
	}
	os.Exit(code)
}

func describe() (s relay.Sandbox, err error) {
	b, err := os.ReadFile(filepath.Join(relay.Dir, relay.Description))
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	return s, err
}

// supervise ends with the main process, and as it does.
func supervise(s relay.Sandbox) (int, error) {
	ruleset, err := access(s)
	if err != nil {
		return 1, err
	}
	_ = syscall.Close(ruleset)
	if err := os.Chown(s.Root, s.UID, s.GID); err != nil {
		return 1, err
	}
	if err := trust(s.Authority); err != nil {
		return 1, err
	}
	// What does not go through the proxy is refused, as if nobody listened.
	if out, err := exec.Command("ip", "route", "add", "local", "0.0.0.0/0", "dev", "lo").CombinedOutput(); err != nil {
		return 1, fmt.Errorf("close the network, with iproute2: %w: %s", err, out)
	}
	proxy, err := net.Listen("tcp", s.Proxy)
	if err != nil {
		return 1, err
	}
	socket := filepath.Join(relay.Dir, relay.Commands)
	_ = os.Remove(socket)
	commands, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		return 1, err
	}
	if err := os.Chmod(socket, 0o666); err != nil { //nolint:gosec // the gateway is not root; who else connects is sent away
		return 1, err
	}
	family := &family{waiting: map[int]chan syscall.WaitStatus{}}
	go family.reap()
	ended, err := family.start(s.Command, s.Env, s.Root, []*os.File{nil, os.Stdout, os.Stderr})
	if err != nil {
		return 1, err
	}
	go out(proxy)
	go serve(family, s, commands)
	return code(<-ended, 128), nil
}

// trust writes the certificates that programs of the sandbox trust.
func trust(authority string) error {
	if err := os.MkdirAll(filepath.Dir(relay.Authority), 0o755); err != nil { //nolint:gosec // everybody reads it
		return err
	}
	images, err := os.ReadFile("/etc/ssl/certs/ca-certificates.crt")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for name, content := range map[string][]byte{relay.Authority: []byte(authority), relay.Bundle: slices.Concat(images, []byte(authority))} {
		if err := os.WriteFile(name, content, 0o644); err != nil { //nolint:gosec // everybody reads it
			return err
		}
	}
	return nil
}

// code is an end as a number: of a death by a signal, the signal above beyond, or 1 where there is none.
func code(s syscall.WaitStatus, beyond int) int {
	switch {
	case !s.Signaled():
		return s.ExitStatus()
	case beyond > 0:
		return beyond + int(s.Signal())
	default:
		return 1
	}
}

// family are the processes of the container, all of which this one reaps.
type family struct {
	mu      sync.Mutex
	waiting map[int]chan syscall.WaitStatus
}

// start starts a process of the sandbox.
func (f *family) start(argv, env []string, dir string, files []*os.File) (<-chan syscall.WaitStatus, error) {
	fds := make([]uintptr, len(files))
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	for i, file := range files {
		if file == nil {
			file = null
		}
		fds[i] = file.Fd()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	pid, err := syscall.ForkExec(relay.Supervisor, append([]string{"supervisor"}, argv...), &syscall.ProcAttr{Dir: dir, Env: env, Files: fds, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return nil, err
	}
	ended := make(chan syscall.WaitStatus, 1)
	f.waiting[pid] = ended
	return ended, nil
}

func (f *family) reap() {
	children := make(chan os.Signal, 1)
	notifyChildren(children)
	for range children {
		for {
			var status syscall.WaitStatus
			pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
			if err != nil || pid <= 0 {
				break
			}
			f.mu.Lock()
			if ended := f.waiting[pid]; ended != nil {
				ended <- status
				delete(f.waiting, pid)
			}
			f.mu.Unlock()
		}
	}
}
