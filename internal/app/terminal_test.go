package app_test

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// onTerminal runs laufwerk with all streams on a terminal and returns what came out of it.
func onTerminal(t *testing.T, vars []string, args ...string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Args[0] = "laufwerk" // TestMain looks at it
	cmd.Env = append([]string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}, vars...)
	tty, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	out, _ := io.ReadAll(tty) // ends with EIO when the last process has closed the terminal
	_ = cmd.Wait()
	return string(out)
}

// C61: colour is for terminals that want it, and nothing is asked of a terminal: an answer would arrive as typed input.
func TestTerminal(t *testing.T) {
	const color = "\x1b["
	for _, c := range []struct {
		name  string
		vars  []string
		args  []string
		color bool
	}{
		{"a terminal", []string{"TERM=xterm-256color"}, nil, true},
		{"NO_COLOR", []string{"TERM=xterm", "NO_COLOR=1"}, nil, false},
		{"NO_COLOR, empty", []string{"TERM=xterm", "NO_COLOR="}, nil, false},
		{"a dumb terminal", []string{"TERM=dumb"}, nil, false},
		{"CI", []string{"TERM=xterm", "CI=true"}, nil, false},
		{"CI that says no", []string{"TERM=xterm", "CI=false"}, nil, true},
		{"the setting never", []string{"TERM=xterm", "LAUFWERK_COLOR=never"}, nil, false},
		{"the flag is stronger than NO_COLOR", []string{"TERM=xterm", "NO_COLOR=1"}, []string{"--set", "color=always"}, true},
		{"JSON", []string{"TERM=xterm", "LAUFWERK_COLOR=always"}, []string{"--json"}, false},
		{"one column", []string{"TERM=xterm", "COLUMNS=1", "NO_COLOR="}, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := onTerminal(t, c.vars, append([]string{"help", "recovery"}, c.args...)...)
			if !strings.Contains(out, "laufwerk resume RUN") {
				t.Fatalf("no output: %q", out)
			}
			if strings.Contains(out, color) != c.color {
				t.Errorf("colour: %t, want %t: %.200q", !c.color, c.color, out)
			}
			for _, query := range []string{"\x1b]", "\x1b[6n", "\x1b[c", "\x1b[?", "\x1bP"} {
				if strings.Contains(out, query) {
					t.Errorf("the terminal was asked %q", query)
				}
			}
			if !c.color && !strings.HasPrefix(out, "What to do") && !strings.HasPrefix(out, "{") {
				t.Errorf("something came before the output: %.40q", out)
			}
		})
	}
}

func TestErrorsOnATerminalAreSanitised(t *testing.T) {
	out := onTerminal(t, []string{"TERM=xterm"}, "\x1b]0;owned\x07nosuch\u202e")
	if strings.ContainsAny(out, "\x07\u202e") || strings.Contains(out, "\x1b]") {
		t.Errorf("%q", out)
	}
}
