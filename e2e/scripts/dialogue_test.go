package scripts_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"

	"github.com/laufwerk/laufwerk/e2e"
)

// onTerminalCommand is the program that scripts start as
//
//	exits CODE onterminal DIALOGUE COMMAND...
//
// It runs the command on a terminal of its own, plays the person at it, prints what the terminal showed, and ends with the
// command's exit code. The lines of the file DIALOGUE are
//
//	expect REGEXP   wait until the terminal shows it, after what was expected before
//	type TEXT       type it as it stands; Go escapes such as \r and \x04 (end of file) are understood
//	await PATH      wait until the file is there
//	make PATH       make a file
//	run COMMAND     run a shell command elsewhere; it must succeed
//	hangup          close the terminal
func onTerminalCommand() {
	code, err := onTerminalPlay(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "onterminal:", err)
		code = 99
	}
	os.Exit(code)
}

// screen is what a terminal showed so far.
type screen struct {
	mu   sync.Mutex
	text []byte
	over bool
}

func (s *screen) read(tty *os.File) {
	in := bufio.NewReader(tty)
	buf := make([]byte, 4096)
	for {
		n, err := in.Read(buf) // ends with EIO when the last process has closed the terminal
		s.mu.Lock()
		s.text = append(s.text, buf[:n]...)
		s.over = err != nil
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// find waits for a match behind position from, and returns its end.
func (s *screen) find(re *regexp.Regexp, from int) (int, error) {
	for deadline := time.Now().Add(e2e.HangLimit); ; time.Sleep(5 * time.Millisecond) {
		s.mu.Lock()
		at, over, rest := re.FindIndex(s.text[from:]), s.over, string(s.text[from:])
		s.mu.Unlock()
		switch {
		case at != nil:
			return from + at[1], nil
		case over:
			return 0, fmt.Errorf("the terminal never showed %q after\n%s", re, rest)
		case time.Now().After(deadline):
			return 0, fmt.Errorf("the terminal did not show %q within %s, but\n%s", re, e2e.HangLimit, rest)
		}
	}
}

func onTerminalPlay(args []string) (int, error) {
	if len(args) < 2 {
		return 0, errors.New("usage: onterminal DIALOGUE COMMAND...")
	}
	dialogue, err := os.ReadFile(args[0])
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(args[1], args[2:]...)
	blocking, err := pty.Start(cmd)
	if err != nil {
		return 0, err
	}
	tty, err := pollable(blocking)
	if err != nil {
		return 0, err
	}
	defer tty.Close()
	var s screen
	read := make(chan struct{})
	go func() { s.read(tty); close(read) }()
	played := play(tty, &s, string(dialogue))
	if played != nil {
		_ = cmd.Process.Kill()
	}
	err = cmd.Wait()
	<-read
	fmt.Print(strings.ReplaceAll(string(s.text), "\r\n", "\n"))
	var exit *exec.ExitError
	if played == nil && err != nil && !errors.As(err, &exit) {
		played = err
	}
	return cmd.ProcessState.ExitCode(), played
}

// pollable is a terminal that can be closed while it is read.
func pollable(tty *os.File) (*os.File, error) {
	defer tty.Close()
	fd, err := syscall.Dup(int(tty.Fd()))
	if err != nil {
		return nil, err
	}
	syscall.CloseOnExec(fd)
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "terminal"), nil
}

func play(tty *os.File, s *screen, dialogue string) error {
	at := 0
	for line := range strings.Lines(dialogue) {
		verb, rest, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
		var err error
		switch verb {
		case "":
		case "expect":
			var re *regexp.Regexp
			if re, err = regexp.Compile(rest); err == nil {
				at, err = s.find(re, at)
			}
		case "type":
			var text string
			if text, err = strconv.Unquote(`"` + strings.ReplaceAll(rest, `"`, `\"`) + `"`); err == nil {
				_, err = tty.WriteString(text)
			}
		case "await":
			err = e2e.AwaitFile(rest)
		case "make":
			err = os.WriteFile(rest, nil, 0o600)
		case "run":
			var out []byte
			if out, err = exec.Command("sh", "-c", rest).CombinedOutput(); err != nil {
				err = fmt.Errorf("%s: %w\n%s", rest, err, out)
			}
		case "hangup":
			err = tty.Close()
		default:
			err = fmt.Errorf("%q is no line of a dialogue", verb)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
