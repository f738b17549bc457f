// Package system is the boundary between laufwerk and the operating system: arguments, environment, clock, streams, signals.
// Together with the packages below it (files, lock, process, projectfs, safefs) it is the only door: the linter refuses the
// operating system's packages everywhere else. Tests build an Env of their own and call the same entry as main.
package system

import (
	"context"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/laufwerk/laufwerk/internal/system/fault"
)

// Env is what a process knows of its surroundings.
type Env struct {
	Args   []string          // without the program's name
	Vars   map[string]string // the environment
	Dir    string            // the working directory, absolute
	In     io.Reader
	Out    io.Writer // data
	Err    io.Writer // talk
	InTTY  bool
	OutTTY bool
	ErrTTY bool
	Now    func() time.Time
}

// FromOS is the Env of this process.
func FromOS() *Env {
	environ := os.Environ()
	vars := make(map[string]string, len(environ))
	for _, kv := range environ {
		if k, v, ok := strings.Cut(kv, "="); ok {
			vars[k] = v
		}
	}
	dir, _ := os.Getwd()
	return &Env{
		Args: os.Args[1:], Vars: vars, Dir: dir, In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		InTTY: term.IsTerminal(0), OutTTY: term.IsTerminal(1), ErrTTY: term.IsTerminal(2),
		Now: fault.Now,
	}
}

// Var is an environment variable, "" where it is not set.
func (e *Env) Var(name string) string { return e.Vars[name] }

// Home is the user's home directory: HOME, else the one that the user database names; "" where there is none.
func (e *Env) Home() string {
	if h := e.Vars["HOME"]; h != "" {
		return h
	}
	return userHome()
}

// Width is the width of the terminal on stderr or stdout in columns, at least 1; COLUMNS wins, 80 where nothing is known.
func (e *Env) Width() int {
	if n := atoi(e.Vars["COLUMNS"]); n > 0 {
		return n
	}
	for _, w := range []io.Writer{e.Err, e.Out} {
		if f, ok := w.(*os.File); ok {
			if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
				return n
			}
		}
	}
	return 80
}

func atoi(s string) int {
	n := 0
	for _, c := range s {
		if c < '0' || c > '9' || n > 1<<20 {
			return 0
		}
		n = n*10 + int(c-'0')
	}
	return n
}

// Executable is a path that starts this very binary again, also after it was replaced or removed on disk.
func Executable() string {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe"
	}
	p, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return p
}

// Program is the path of this binary as a person would type it.
func Program() string {
	p, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return strings.TrimSuffix(p, " (deleted)")
}

// Signals delivers SIGINT, SIGTERM and SIGHUP until ctx ends, and is closed then. From now on no write of this process ends
// it: see IgnorePipe, which costs nothing more here.
func Signals(ctx context.Context) <-chan syscall.Signal {
	IgnorePipe()
	in := make(chan os.Signal, 8)
	out := make(chan syscall.Signal, 8)
	signal.Notify(in, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		defer close(out)
		defer signal.Stop(in)
		for {
			select {
			case s := <-in:
				if sig, ok := s.(syscall.Signal); ok {
					out <- sig
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// SetDeterministic prepares a process that evaluates user code: the engine caches the time zone at its first use.
func SetDeterministic() { _ = os.Setenv("TZ", "UTC") }

// Exit ends the process.
func Exit(code int) { os.Exit(code) }

// UID is the effective user.
func UID() int { return os.Geteuid() }

// GID is the effective group.
func GID() int { return os.Getegid() }

// Groups are the supplementary groups.
func Groups() []int {
	groups, err := os.Getgroups()
	if err != nil {
		return nil
	}
	return groups
}

// Screen is the size of the terminal on stderr; COLUMNS can make it narrower. ok is false where the size is not known, and
// while the terminal is somebody else's: this process runs in the background.
func (e *Env) Screen() (columns, rows int, ok bool) {
	f, isFile := e.Err.(*os.File)
	if !isFile {
		return 0, 0, false
	}
	columns, rows, err := term.GetSize(int(f.Fd()))
	if err != nil || columns < 1 || rows < 1 {
		return 0, 0, false
	}
	if n := atoi(e.Vars["COLUMNS"]); n > 0 {
		columns = min(columns, n)
	}
	// It fails on a terminal that is not the controlling one: nobody else is told to be in its foreground.
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return columns, rows, err != nil || group == unix.Getpgrp()
}
