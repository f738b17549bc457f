package render

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/lipgloss"

	"github.com/laufwerk/laufwerk/internal/lazyregexp"
	"github.com/laufwerk/laufwerk/internal/redact"
)

// Table writes rows for people: on a terminal in columns under their titles, with long ids shortened, elsewhere separated by
// tabs and without titles, for cut and awk. A cell is text, or Styled. With --json it writes nothing.
func (u *UI) Table(titles []string, rows [][]any) {
	if u.JSON || len(rows) == 0 {
		return
	}
	cells := make([][]string, 0, len(rows)+1)
	if u.Out.TTY {
		head := make([]string, len(titles))
		for i, t := range titles {
			head[i] = u.Out.Faint(t).text
		}
		cells = append(cells, head)
	}
	for _, row := range rows {
		line := make([]string, len(row))
		for i, c := range row {
			if s, ok := c.(Styled); ok {
				line[i] = s.text
			} else {
				line[i] = redact.Line(fmt.Sprint(c))
			}
		}
		cells = append(cells, line)
	}
	var b strings.Builder
	if !u.Out.TTY {
		for _, line := range cells {
			b.WriteString(strings.Join(line, "\t") + "\n")
		}
		u.Out.raw([]byte(b.String()))
		return
	}
	brief := Brief(slices.Concat(cells...))
	for _, line := range cells {
		copy(line, brief)
		brief = brief[len(line):]
	}
	width := make([]int, len(titles))
	for _, line := range cells {
		for i, c := range line[:min(len(line), len(width))] {
			if w := lipgloss.Width(c); w <= maxColumn {
				width[i] = max(width[i], w)
			}
		}
	}
	for _, line := range cells {
		for i, c := range line {
			b.WriteString(c)
			if i < len(line)-1 && i < len(width) {
				b.WriteString(strings.Repeat(" ", max(width[i]-lipgloss.Width(c), 0)+2))
			}
		}
		b.WriteString("\n")
	}
	u.Out.raw([]byte(b.String()))
}

// maxColumn is how wide a column gets: a longer cell moves what follows in its own row, and no other row is filled up for it.
const maxColumn = 40

var longID = lazyregexp.Regexp{Pattern: `\b(?:sha256:)?[0-9a-f]{64}\b|\b[0-9A-Z]{4}(?::[0-9A-Z]{4}){11}\b`}

// Brief shortens the long ids in texts that people read: of containers and images (64 hexadecimal digits) and of engines
// (twelve groups of four). What is left of ids that differ differs too.
func Brief(texts []string) []string {
	var ids []string
	for _, t := range texts {
		ids = append(ids, longID.FindAllString(t, -1)...)
	}
	n := 12
	for !distinguishes(ids, n) {
		n++
	}
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = longID.ReplaceAllStringFunc(t, func(id string) string { return beginning(id, n) })
	}
	return out
}

// distinguishes says whether beginnings of n characters tell ids apart.
func distinguishes(ids []string, n int) bool {
	of := map[string]string{}
	for _, id := range ids {
		short := beginning(id, n)
		if other, ok := of[short]; ok && other != id {
			return false
		}
		of[short] = id
	}
	return true
}

// beginning is what engines take for the whole of an id of theirs, and "…" after that of an engine, which nothing takes.
func beginning(id string, n int) string {
	hash, isHash := strings.CutPrefix(id, "sha256:")
	switch {
	case n >= len(hash):
		return id
	case isHash:
		return "sha256:" + hash[:n]
	case strings.Contains(id, ":"):
		return id[:min(len(id), (n+4)/5*5-1)] + "…" // whole groups
	}
	return id[:n]
}

// Duration is how long something took, to two or three digits: 6ms, 1.2s, 12s, 1m02s, 1h02m.
func Duration(d time.Duration) string {
	switch {
	case d < 0:
		return "0ms"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	case d < 9950*time.Millisecond:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	default:
		return Elapsed(d.Round(time.Second))
	}
}

// Elapsed is how long something takes so far, in whole seconds.
func Elapsed(d time.Duration) string {
	switch s := int64(d.Seconds()); {
	case s < 60:
		return strconv.FormatInt(s, 10) + "s"
	case s < 60*60:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	default:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	}
}

// Tokens is a number of tokens: 312 tokens, 12.4k tokens, 1.2M tokens.
func Tokens(n int64) string {
	switch {
	case n == 1:
		return "1 token"
	case n < 1000:
		return strconv.FormatInt(n, 10) + " tokens"
	case n < 999_950:
		return strconv.FormatFloat(float64(n)/1e3, 'f', 1, 64) + "k tokens"
	default:
		return strconv.FormatFloat(float64(n)/1e6, 'f', 1, 64) + "M tokens"
	}
}
