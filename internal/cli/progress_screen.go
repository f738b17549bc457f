package cli

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/lipgloss"

	"github.com/laufwerk/laufwerk/internal/cli/render"
)

const (
	frameInterval    = 100 * time.Millisecond
	showAfter        = 200 * time.Millisecond // an operation is not drawn before it has taken that long
	maxRows          = 16
	tailRows         = 3  // of the output of each command
	minActionColumns = 10 // an action is not drawn in fewer columns
)

// animate draws until stop is called. Where the size of the screen is not known, or is a single column, there are lines alone.
func (f *progressDisplay) animate() {
	if columns, _, _ := f.d.Env.Screen(); columns < 2 {
		return
	}
	f.live = true
	over := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(frameInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				f.mu.Lock()
				f.draw()
				f.mu.Unlock()
			case <-over:
				return
			}
		}
	}()
	f.stop = sync.OnceFunc(func() {
		close(over)
		<-done
		f.mu.Lock()
		defer f.mu.Unlock()
		f.live, f.active = false, nil
		f.d.UI.Err.Below(nil)
	})
}

// draw draws the active operations below the lines. The lock is held.
func (f *progressDisplay) draw() {
	if !f.live {
		return
	}
	columns, rows, ok := f.d.Env.Screen()
	if !ok || f.paused {
		f.d.UI.Err.Below(nil)
		return
	}
	f.d.UI.Err.Below(f.rows(f.d.Env.Now(), columns-1, min(rows-1, maxRows))) // a full last column would wrap on some terminals
}

// rows are the active operations, in at most so many rows of so many columns.
func (f *progressDisplay) rows(now time.Time, columns, rows int) []render.Styled {
	if columns < 1 || rows < 1 {
		return nil
	}
	var shown []*activeOperation
	names := 0
	for _, fl := range f.active {
		if fl.op.isSilent() || !fl.op.mayTakeLong() && now.Sub(fl.since) < showAfter {
			continue
		}
		shown = append(shown, fl)
		names = max(names, lipgloss.Width(render.Fit(fl.op.describe(), columns/2)))
	}
	var out []render.Styled
	for i, fl := range shown {
		if len(out) == rows-1 && i < len(shown)-1 {
			return append(out, f.d.UI.Err.Faint(render.Fit("… and "+strconv.Itoa(len(shown)-i)+" more", columns)))
		}
		out = append(out, f.operationRow(fl, now, columns, names))
		tail := fl.tail[max(0, len(fl.tail)-tailRows):]
		for _, line := range tail[max(0, len(tail)-(rows-len(out)-(len(shown)-i-1))):] {
			out = append(out, f.d.UI.Err.Faint(render.Fit("  | "+line, columns)))
		}
	}
	return out
}

// operationRow is one operation: its name, elapsed time, current action and tokens. What does not fit is left out, the least
// important first.
func (f *progressDisplay) operationRow(fl *activeOperation, now time.Time, columns, names int) render.Styled {
	err := f.d.UI.Err
	frames := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
	spinner := string(frames[int(now.UnixMilli()/frameInterval.Milliseconds())%len(frames)])
	name := render.Fit(fl.op.describe(), max(names, 1))
	name += strings.Repeat(" ", max(0, names-lipgloss.Width(name)))
	elapsed := render.Elapsed(max(0, now.Sub(fl.since)))
	elapsed = strings.Repeat(" ", max(0, 5-len(elapsed))) + elapsed
	room := columns - lipgloss.Width(spinner+" "+name+"  "+elapsed)
	if room < 0 {
		return render.Name(render.Fit(spinner+" "+name, columns))
	}
	tokens := ""
	if fl.usage != nil {
		if t := "  " + render.Tokens(fl.usage.Input+fl.usage.Output); lipgloss.Width(t) <= room {
			tokens = t
			room -= lipgloss.Width(t)
		}
	}
	action := ""
	if first, _, _ := strings.Cut(strings.TrimSpace(fl.action), "\n"); first != "" && room >= minActionColumns {
		action = "  " + render.Fit(first, room-2)
	}
	return render.Joined(err.Command(spinner), " ", name, "  ", err.Faint(elapsed), action, err.Faint(tokens))
}
