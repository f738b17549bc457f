package render

import (
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/charmbracelet/lipgloss"
	"github.com/muesli/termenv"

	"github.com/laufwerk/laufwerk/internal/redact"
)

// Stream is stdout or stderr.
type Stream struct {
	TTY    bool
	w      io.Writer
	mu     *sync.Mutex // one for both streams: lines do not mix on a terminal
	below  *below      // likewise
	failed error       // of the first write that failed; nothing is written after it
	style  func() *lipgloss.Renderer
}

func newStream(w io.Writer, tty bool, vars map[string]string, mode func() string, mu *sync.Mutex, b *below) *Stream {
	return &Stream{TTY: tty, w: w, mu: mu, below: b, style: sync.OnceValue(func() *lipgloss.Renderer {
		if !colored(mode(), tty, vars) {
			return nil
		}
		// Profile and background are given, so that nothing asks the terminal: its answer would arrive as typed input.
		r := lipgloss.NewRenderer(io.Discard)
		r.SetColorProfile(termenv.ANSI)
		r.SetHasDarkBackground(true)
		return r
	})}
}

// colored decides about colour. NO_COLOR counts even when it is empty (https://no-color.org); only an explicit "always"
// is stronger than the environment.
func colored(mode string, tty bool, vars map[string]string) bool {
	switch mode {
	case "always":
		return true
	case "never":
		return false
	}
	_, no := vars["NO_COLOR"]
	ci := vars["CI"]
	return tty && !no && vars["TERM"] != "dumb" && (ci == "" || ci == "false" || ci == "0")
}

// Live says whether lines may be drawn over: the stream is a terminal that can move its cursor, and nobody keeps a log.
func (s *Stream) Live() bool { return s.TTY && s.style() != nil }

// Bold is for headings. Like the other looks it sanitises what is not Styled yet, and without colour it only does that.
func (s *Stream) Bold(v any) Styled {
	return s.paint(v, func(l lipgloss.Style) lipgloss.Style { return l.Bold(true) })
}

// Faint is for what can be skipped.
func (s *Stream) Faint(v any) Styled {
	return s.paint(v, func(l lipgloss.Style) lipgloss.Style { return l.Faint(true) })
}

// Good is for what went well.
func (s *Stream) Good(v any) Styled { return s.color(v, "2") }

// Warn is for what wants a look.
func (s *Stream) Warn(v any) Styled { return s.color(v, "3") }

// Bad is for what failed.
func (s *Stream) Bad(v any) Styled { return s.color(v, "1") }

// Command is for what can be typed.
func (s *Stream) Command(v any) Styled { return s.color(v, "6") }

func (s *Stream) color(v any, ansi string) Styled {
	return s.paint(v, func(l lipgloss.Style) lipgloss.Style { return l.Foreground(lipgloss.Color(ansi)) })
}

func (s *Stream) paint(v any, apply func(lipgloss.Style) lipgloss.Style) Styled {
	plain := redact.Terminal(fmt.Sprint(v))
	if done, ok := v.(Styled); ok {
		plain = done.text
	}
	r := s.style()
	if r == nil {
		return Styled{plain}
	}
	style := apply(r.NewStyle().TabWidth(lipgloss.NoTabConversion))
	lines := strings.Split(plain, "\n") // one by one: a block would be padded to its widest line
	for i, line := range lines {
		if line != "" {
			lines[i] = style.Render(line)
		}
	}
	return Styled{strings.Join(lines, "\n")}
}

func (s *Stream) write(format string, args []any) {
	s.raw([]byte(fmt.Sprintf(format, sanitise(args)...)))
}

// raw writes bytes that are safe already. What goes wrong is kept for the end of the command, which decides about it.
func (s *Stream) raw(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.below.writeAbove(s, b)
}

func (s *Stream) put(b []byte) {
	if s.failed == nil && len(b) > 0 {
		_, s.failed = s.w.Write(b)
	}
}
