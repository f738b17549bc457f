package process

import (
	"errors"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Stream reads the output pipe of a process to its end and hands every chunk on, in order and never two at once.
type Stream struct {
	raw  syscall.RawConn
	r    *File
	mu   sync.Mutex
	buf  []byte
	sink func([]byte)
	done chan struct{}
}

// NewStream makes a pipe. The write end is for the process: close it once that was started, then call Run.
func NewStream(sink func([]byte)) (s *Stream, write *File, err error) {
	r, w, err := filePipe()
	if err != nil {
		return nil, nil, err
	}
	raw, err := r.SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	return &Stream{raw: raw, r: r, buf: make([]byte, 64<<10), sink: sink, done: make(chan struct{})}, w, nil
}

// Run reads until all write ends are closed.
func (s *Stream) Run() {
	defer close(s.done)
	defer s.r.Close()
	for end := false; !end; {
		if s.raw.Read(func(fd uintptr) bool {
			n, err := s.step(int(fd), len(s.buf))
			again := errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)
			end = n == 0 && !again
			return end || n > 0
		}) != nil {
			return
		}
	}
}

// step reads once, without blocking, and hands on what came.
func (s *Stream) step(fd, limit int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := unix.Read(fd, s.buf[:min(limit, len(s.buf))])
	if n > 0 {
		s.sink(s.buf[:n])
	}
	return max(n, 0), err
}

// Drain hands on everything that was in the pipe when it was called: all that a process has written which has ended by
// then, however fast others go on writing.
func (s *Stream) Drain() {
	_ = s.raw.Control(func(fd uintptr) {
		left, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		for err == nil && left > 0 {
			var n int
			n, err = s.step(int(fd), left)
			left -= n
			if n == 0 {
				return
			}
		}
	})
}

// Done is closed at the end of the stream.
func (s *Stream) Done() <-chan struct{} { return s.done }
