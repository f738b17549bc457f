package render

import (
	"fmt"
	"slices"
	"strings"

	"github.com/charmbracelet/lipgloss"

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
