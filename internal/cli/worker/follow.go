package worker

import (
	"strings"
	"sync"

	"github.com/laufwerk/laufwerk/internal/cli"
	"github.com/laufwerk/laufwerk/internal/cli/render"
	"github.com/laufwerk/laufwerk/internal/journal"
)

// follower tells on stderr what goes on, one line an event. Questions that are asked here show themselves.
type follower struct {
	d     *cli.Deps
	asked bool
	mu    sync.Mutex
}

func (f *follower) event(ev journal.Event) {
	if f.asked && ev.Kind == "question" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	line(f.d.UI, ev)
}

// line prints an event for people.
func line(ui *render.UI, ev journal.Event) {
	text := strings.TrimRight(ev.Text, "\n")
	switch ev.Kind {
	case "attempt":
	case "operation":
		mark := ui.Err.Faint("·")
		switch {
		case text == "done":
			mark = ui.Err.Good("✓")
		case strings.HasPrefix(text, "failed"):
			mark = ui.Err.Bad("✗")
		}
		ui.Talkf("%s %s %s\n", mark, ev.Op, text)
	case "agent", "output", "console":
		if text == "" {
			return
		}
		for line := range strings.SplitSeq(text, "\n") {
			ui.Talkf("  %s %s\n", ui.Err.Faint("|"), line)
		}
	case "question":
		ui.Talkf("%s %s\n", ui.Err.Bold("?"), text)
	default:
		ui.Talkf("%s %s\n", ui.Err.Bold("!"), text)
	}
}
