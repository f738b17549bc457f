package agent

import (
	"bytes"
	"fmt"

	"github.com/laufwerk/laufwerk/internal/lazyregexp"
)

// MaxLine is the most of a line that a program may need, in bytes. Codex cuts the output of a command at 1 MiB, which JSON's
// escapes make up to six times as long.
const MaxLine = 16 << 20

// Lines splits a program's stdout into lines, for readers of a protocol of JSON lines. After the first line that breaks the
// protocol nothing more is read: what was wrong is told at the end.
type Lines struct {
	each    func(line []byte) []Event
	partial []byte
	count   int
	broken  string
}

// NewLines has each called with every line that is not blank, without the space around it; it is valid until each returns.
func NewLines(each func(line []byte) []Event) Lines { return Lines{each: each} }

// Feed takes more of stdout and returns the events of the lines that became whole.
func (l *Lines) Feed(chunk []byte) (events []Event) {
	for len(chunk) > 0 && l.broken == "" {
		i := bytes.IndexByte(chunk, '\n')
		end := i
		if i < 0 {
			end = len(chunk)
		}
		if len(l.partial)+end > MaxLine {
			l.Fail("line %d is longer than %d bytes", l.count+1, MaxLine)
			l.partial = nil
			break
		}
		if i < 0 {
			l.partial = append(l.partial, chunk...)
			break
		}
		full := chunk[:i]
		if len(l.partial) > 0 {
			full = append(l.partial, full...)
			l.partial = l.partial[:0]
		}
		chunk = chunk[i+1:]
		events = append(events, l.line(full)...)
	}
	return events
}

func (l *Lines) line(b []byte) []Event {
	l.count++
	if b = bytes.TrimSpace(b); len(b) == 0 {
		return nil
	}
	return l.each(b)
}

// Number is that of the line that is being read, from 1.
func (l *Lines) Number() int { return l.count }

// Fail says what is wrong with the line that is being read.
func (l *Lines) Fail(format string, args ...any) { l.broken = fmt.Sprintf(format, args...) }

// Close reads what is left, since a last line needs no end, and returns what broke the protocol, "" if nothing did.
func (l *Lines) Close() (broken string) {
	if len(l.partial) > 0 && l.broken == "" {
		l.line(l.partial)
		l.partial = nil
	}
	return l.broken
}

var uuid = lazyregexp.Regexp{Pattern: `^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`}

// IsUUID is the only form that the id of a conversation may have: it comes back as an argument or a field of a later turn.
func IsUUID(s string) bool {
	return uuid.MatchString(s)
}

// Quote is the beginning of a line of a program, for messages.
func Quote(b []byte) string {
	const most = 200
	if len(b) > most {
		return fmt.Sprintf("%q…", b[:most])
	}
	return fmt.Sprintf("%q", b)
}
