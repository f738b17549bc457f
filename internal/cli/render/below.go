package render

import (
	"bytes"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/charmbracelet/lipgloss"

	"github.com/laufwerk/laufwerk/internal/redact"
)

// below is what is drawn under the last line of a terminal. The cursor is left at the beginning of the row under it, and
// nothing but plain lines is ever on the way: a process that is killed leaves a terminal in order.
type below struct {
	on    *Stream
	lines []string
	drawn int       // rows
	at    time.Time // when they were drawn
	now   func() time.Time
}

// stale is the age at which what is drawn is taken for gone: the process was stopped meanwhile, and others have written.
const stale = time.Second

// Below draws lines under everything that is written to the terminal, in place of those that were drawn before; without
// any, it clears them. The stream must be Live, and each line must fit into a row. They stay where they are unless they
// are drawn again within a second.
func (s *Stream) Below(lines []Styled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.below
	b.forgetStale()
	var out bytes.Buffer
	b.moveUp(&out)
	b.on, b.lines = s, b.lines[:0]
	for _, l := range lines {
		b.lines = append(b.lines, l.text)
	}
	b.draw(&out)
	s.put(out.Bytes())
}

func (b *below) forgetStale() {
	if b.drawn > 0 && b.now != nil && b.now().Sub(b.at) > stale {
		b.drawn, b.lines = 0, nil
	}
}

func (b *below) moveUp(out *bytes.Buffer) {
	if b.drawn > 0 {
		fmt.Fprintf(out, "\r\x1b[%dA", b.drawn)
	}
}

// draw writes over what was there, so that nothing flickers, and clears the rest.
func (b *below) draw(out *bytes.Buffer) {
	for _, l := range b.lines {
		out.WriteString("\r" + l + "\x1b[K\n")
	}
	if b.drawn > 0 || len(b.lines) > 0 {
		out.WriteString("\r\x1b[J")
	}
	b.drawn = len(b.lines)
	if b.now != nil {
		b.at = b.now()
	}
}

func (b *below) writeAbove(s *Stream, text []byte) {
	b.forgetStale()
	if b.drawn == 0 || !s.TTY {
		s.put(text)
		return
	}
	var out bytes.Buffer
	b.moveUp(&out)
	out.WriteString("\x1b[J")
	if s != b.on {
		b.on.put(out.Bytes())
		s.put(text)
		out.Reset()
	} else {
		out.Write(text)
	}
	at := b.at // only those who draw tell that the process goes on
	b.drawn = 0
	b.draw(&out)
	b.at = at
	b.on.put(out.Bytes())
}

// Fit is text on one line of at most so many columns; what had to be cut ends with "…".
func Fit(text string, columns int) string {
	if columns < 1 {
		return ""
	}
	if most := 8*columns + 64; len(text) > most { // no character that is wider than nothing takes more
		for most > 0 && !utf8.RuneStart(text[most]) {
			most--
		}
		text = text[:most]
	}
	text = redact.Line(strings.ReplaceAll(text, "\t", " "))
	if lipgloss.Width(text) <= columns {
		return text
	}
	end, width := 0, 0
	for i, r := range text {
		width += lipgloss.Width(string(r))
		if width > columns-1 {
			break
		}
		end = i + utf8.RuneLen(r)
	}
	for end > 0 && lipgloss.Width(text[:end]) > columns-1 { // characters that are wider together
		_, n := utf8.DecodeLastRuneInString(text[:end])
		end -= n
	}
	return text[:end] + "…"
}

// Joined are pieces of text as one.
func Joined(pieces ...any) Styled {
	var b strings.Builder
	for _, p := range sanitise(pieces) {
		fmt.Fprint(&b, p)
	}
	return Styled{b.String()}
}
