package main

import (
	"encoding/gob"
	"errors"
	"io"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laufwerk/laufwerk/internal/testkit/gateway/relay"
)

func notifyChildren(c chan<- os.Signal) {
	signal.Notify(c, syscall.SIGCHLD)
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
}

// peer is the other end of a connection as this process sees it: nobody outside of the container has a number here.
func peer(conn *net.UnixConn) (pid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var credentials *unix.Ucred
	failed := raw.Control(func(fd uintptr) { credentials, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(failed, err); err != nil {
		return 0, err
	}
	return int(credentials.Pid), nil
}

func serve(f *family, s relay.Sandbox, l *net.UnixListener) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return
		}
		if pid, err := peer(conn); err != nil || pid != 0 {
			_ = conn.Close()
			continue
		}
		go execute(f, s, conn)
	}
}

// execute runs a command to its end, whether or not anybody listens.
func execute(f *family, s relay.Sandbox, conn net.Conn) {
	defer conn.Close()
	var req relay.Request
	if err := gob.NewDecoder(conn).Decode(&req); err != nil {
		return // somebody who only wanted to know whether there is a supervisor
	}
	var mu sync.Mutex
	to, over := gob.NewEncoder(conn), false
	tell := func(e relay.Event) {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			over = to.Encode(e) != nil || e.Done
		}
	}
	var ours, theirs [3]*os.File
	for i := range ours {
		r, w, err := os.Pipe()
		if err != nil {
			tell(relay.Event{Done: true, Error: err.Error()})
			return
		}
		ours[i], theirs[i] = r, w
	}
	ours[0], theirs[0] = theirs[0], ours[0]
	ended, err := f.start([]string{"/bin/bash", "-lc", req.Shell}, req.Env, s.Root, theirs[:])
	for _, file := range theirs {
		_ = file.Close()
	}
	if err != nil {
		tell(relay.Event{Done: true, Error: err.Error()})
		return
	}
	go func() {
		_, _ = ours[0].Write(req.Stdin)
		_ = ours[0].Close()
	}()
	var readers sync.WaitGroup
	for i, file := range ours[1:] {
		readers.Go(func() {
			defer file.Close()
			for {
				buf := make([]byte, 4096)
				n, err := file.Read(buf)
				if n > 0 {
					tell(relay.Event{Stderr: i == 1, Data: buf[:n]})
				}
				if err != nil {
					return
				}
			}
		})
	}
	drained := make(chan struct{})
	go func() { readers.Wait(); close(drained) }()
	status := <-ended
	select { // those that it has left behind may have the pipes
	case <-drained:
	case <-time.After(3 * time.Second):
	}
	tell(relay.Event{Done: true, Code: code(status, 0)})
	<-drained
}

// splice passes on both ways, until both ends have said all.
func splice(a, b interface {
	io.ReadWriteCloser
	CloseWrite() error
}) {
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(a, b); _ = a.CloseWrite() })
	both.Go(func() { _, _ = io.Copy(b, a); _ = b.CloseWrite() })
	both.Wait()
}
