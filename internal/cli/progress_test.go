package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/lipgloss"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/cli/render"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/workflow"
)

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC) //nolint:gochecknoglobals // a time like any other

func newTestDisplay(vars map[string]string, live bool) (*progressDisplay, *bytes.Buffer) {
	out := &bytes.Buffer{}
	env := &system.Env{Vars: vars, Err: out, Out: out, ErrTTY: live, Now: func() time.Time { return noon }}
	f := newProgressDisplay(&Deps{Env: env, UI: render.New(env, func() string { return "auto" })}, "261129-k3f9x2ab", false)
	f.live = live
	return f, out
}

func (f *progressDisplay) feed(after time.Duration, kind, op, text string, data any) {
	ev := journal.Event{At: noon.Add(after), Kind: kind, Op: op, Text: text}
	if data != nil {
		ev.Data, _ = json.Marshal(data)
	}
	f.show(ev)
}

func actionEvent(phase, command, text string) agent.Event {
	payload, _ := json.Marshal(agentAction{Phase: phase, Command: command})
	return agent.Event{Kind: "action", Text: text, Payload: payload}
}

// feedOperations begins an agent's turn and a command side by side.
func (f *progressDisplay) feedOperations() {
	f.feed(0, "operation", "clock.now", "begins", nil)
	f.feed(0, "operation", "clock.now", "done", nil)
	f.feed(0, "operation", "session.ask[writer]:fix", "begins", nil)
	f.feed(0, "attempt", "session.ask[writer]:fix", "", nil)
	f.feed(0, "agent", "session.ask[writer]:fix", "Looking.\nAnd thinking.", agent.Event{Kind: "message", Text: "Looking.\nAnd thinking."})
	f.feed(0, "agent", "session.ask[writer]:fix", "", agent.Event{Kind: "usage", Usage: &agent.Usage{Input: 3000, Output: 100}})
	f.feed(0, "agent", "session.ask[writer]:fix", "$ go test ./...", actionEvent("started", "/bin/bash -lc 'go test ./...'", ""))
	f.feed(0, "operation", "session.exec[審査員]:check\x1b[2J", "begins", nil)
	f.feed(0, "output", "session.exec[審査員]:check\x1b[2J", "one\ntwo\x1b]0;owned\a\nthr", nil)
	f.feed(0, "output", "session.exec[審査員]:check\x1b[2J", "ee\n10%\r90%\n\x1b[32m漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字\x1b[0m\nunfinished", nil)
}

func (f *progressDisplay) feedEnds() {
	f.feed(2*time.Second, "agent", "session.ask[writer]:fix", "$ go test ./... → exit 0", actionEvent("completed", "", ""))
	f.feed(62*time.Second, "operation", "session.ask[writer]:fix", "done", map[string]any{"millis": 62000, "usage": agent.Usage{Input: 12000, Output: 400}})
	f.feed(90*time.Second, "operation", "session.exec[審査員]:check\x1b[2J", "done", map[string]any{"millis": 80, "exitCode": 1})
	f.feed(90*time.Second, "operation", "workspace.writeBack", "failed: no", nil)
}

func TestTheViewFitsEveryScreen(t *testing.T) {
	f, out := newTestDisplay(map[string]string{"TERM": "xterm"}, true)
	f.feedOperations()
	for columns := range 120 {
		for rows := range 12 {
			view := f.rows(noon.Add(12*time.Second), columns, rows)
			if len(view) > rows {
				t.Fatalf("%d rows for %d", len(view), rows)
			}
			for _, l := range view {
				if w := lipgloss.Width(l.String()); w > columns || strings.ContainsAny(l.String(), "\n\r\t\a") || strings.Contains(l.String(), "\x1b[2J") || strings.Contains(l.String(), "\x1b]") {
					t.Fatalf("%d columns for %d: %q", w, columns, l.String())
				}
			}
		}
	}
	var text string
	for _, l := range f.rows(noon.Add(12*time.Second), 79, 20) {
		text += styleSequence.ReplaceAllString(l.String(), "") + "\n"
	}
	for _, want := range []string{
		" writer · fix             12s  running go test ./...  3.1k tokens\n",
		` 審査員 · check\x1b[2J    12s` + "\n", "  | three\n", "  | 90%\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if narrow := f.rows(noon, 20, 20); !strings.HasSuffix(styleSequence.ReplaceAllString(narrow[len(narrow)-1].String(), ""), "漢字漢字漢字漢…") {
		t.Errorf("wide characters: %q", narrow[len(narrow)-1].String())
	}
	if strings.Contains(text, "one") || strings.Contains(text, "clock") {
		t.Errorf("too much:\n%s", text)
	}
	if one := f.rows(noon, 79, 1); len(one) != 1 || !strings.Contains(one[0].String(), "… and 2 more") {
		t.Errorf("one row: %v", one)
	}
	before := out.Len()
	if f.feed(0, "operation", "workspace.diff", "begins", nil); len(f.rows(noon.Add(showAfter/2), 79, 20)) != len(f.rows(noon.Add(2*showAfter), 79, 20))-1 {
		t.Error("what takes a moment is shown at once, or what takes longer never is")
	}
	if out.Len() != before {
		t.Errorf("lines of what has not ended: %q", out.String()[before:])
	}
}

func TestTheViewLeavesWhatIsWorthIt(t *testing.T) {
	f, out := newTestDisplay(map[string]string{"TERM": "xterm"}, true)
	f.feedOperations()
	f.feedEnds()
	text := styleSequence.ReplaceAllString(out.String(), "")
	text = strings.NewReplacer("\r", "", "\x1b[K", "", "\x1b[J", "").Replace(text)
	want := `✓ writer · fix  1m02s  12.4k tokens
  | Looking.
  | And thinking.
✗ 審査員 · check\x1b[2J  exit 1  80ms
  | one
  | two\x1b]0;owned\x07
  | three
  | 90%
  | 漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字
  | unfinished
✗ write back: no
`
	if text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

func TestLinesWithoutATerminal(t *testing.T) {
	for name, vars := range map[string]map[string]string{
		"a pipe": {"TERM": "xterm"}, "NO_COLOR": {"TERM": "xterm", "NO_COLOR": ""}, "a dumb terminal": {"TERM": "dumb"}, "CI": {"TERM": "xterm", "CI": "1"},
	} {
		f, out := newTestDisplay(vars, false)
		f.d.UI.Err.TTY = name != "a pipe"
		f.feedOperations()
		f.feedEnds()
		want := `· writer · fix
  | Looking.
  | And thinking.
· 審査員 · check\x1b[2J
  審査員 · check\x1b[2J | one
  審査員 · check\x1b[2J | two\x1b]0;owned\x07
  審査員 · check\x1b[2J | three
  審査員 · check\x1b[2J | 90%
  審査員 · check\x1b[2J | 漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字
  writer · fix | $ go test ./... → exit 0
✓ writer · fix  1m02s  12.4k tokens
  | unfinished
✗ 審査員 · check\x1b[2J  exit 1  80ms
✗ write back: no
`
		if out.String() != want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, out, want)
		}
		if f.d.UI.Err.Live() && name != "a pipe" {
			t.Errorf("%s may be drawn over", name)
		}
	}
}

// Why an operation stops is what the command ends with, and is not said twice.
func TestAnOperationThatStopsIsNamed(t *testing.T) {
	f, out := newTestDisplay(map[string]string{"TERM": "xterm"}, false)
	f.feed(0, "operation", "workspace.open", "begins", nil)
	f.feed(0, "notice", "workspace.open", workflow.NotReady+"there is no engine", nil)
	if want := "! open workspace stops: not ready\n"; out.String() != want {
		t.Errorf("%q, want %q", out, want)
	}
}

// What an operation does before its program is told, and what a command that fails has on stderr, wherever that is shown.
func TestWhatComesBeforeAndWhyItFails(t *testing.T) {
	for live, want := range map[bool]string{
		false: "· writer · fix\n  | installing Codex\\x1b[2J\n✓ writer · fix  1.0s\n· writer · check\n  | begun\n  | stderr: no such\n  | stderr: \\x1b[2Jfile\n✗ writer · check  exit 2  1.0s\n",
		true:  "✓ writer · fix  1.0s\n✗ writer · check  exit 2  1.0s\n  | begun\n  | stderr: no such\n  | stderr: \\x1b[2Jfile\n",
	} {
		f, out := newTestDisplay(map[string]string{"TERM": "xterm"}, live)
		f.feed(0, "operation", "session.ask[writer]:fix", "begins", nil)
		f.feed(0, "progress", "session.ask[writer]:fix", "installing Codex\x1b[2J", nil)
		if row := f.rows(noon.Add(time.Second), 79, 9); !strings.Contains(row[0].String(), `installing Codex\x1b[2J`) {
			t.Errorf("it does not show what it does: %q", row[0].String())
		}
		f.feed(0, "attempt", "session.ask[writer]:fix", "", nil)
		f.feed(time.Second, "operation", "session.ask[writer]:fix", "done", nil)
		f.feed(time.Second, "operation", "session.exec[writer]:check", "begins", nil)
		f.feed(time.Second, "output", "session.exec[writer]:check", "begun", nil)
		f.feed(time.Second, "stderr", "session.exec[writer]:check", "no such\n\x1b[2Jfile", nil)
		f.feed(2*time.Second, "operation", "session.exec[writer]:check", "done", map[string]any{"exitCode": 2})
		if text := strings.NewReplacer("\r", "", "\x1b[K", "", "\x1b[J", "").Replace(styleSequence.ReplaceAllString(out.String(), "")); text != want {
			t.Errorf("got\n%s\nwant\n%s", text, want)
		}
	}
}

func TestLinesWaitForAnAnswer(t *testing.T) {
	f, out := newTestDisplay(nil, false)
	release := f.pause()
	for range maxDeferredLines + 5 {
		f.feed(0, "console", "", "line", nil)
	}
	if out.Len() > 0 {
		t.Fatalf("drawn over the question: %q", out)
	}
	release()
	if n := strings.Count(out.String(), "  | line\n"); n != maxDeferredLines || !strings.Contains(out.String(), "… 5 lines before this: laufwerk runs logs 261129-k3f9x2ab") {
		t.Errorf("%d lines: %.200q", n, out)
	}
	f.feed(0, "console", "", "after", nil)
	if !strings.HasSuffix(out.String(), "  | after\n") {
		t.Errorf("%q", out)
	}
}

func TestNothingIsWrittenWithJSON(t *testing.T) {
	f, out := newTestDisplay(nil, false)
	f.d.UI.JSON = true
	f.feedOperations()
	f.feedEnds()
	if out.Len() > 0 {
		t.Errorf("%q", out)
	}
}

func TestWords(t *testing.T) {
	for id, want := range map[string]string{
		"session.ask[main]:fix":        "main · fix",
		"session.ask[a%5Db%25]:x":      "a]b% · x",
		"session.exec[main]:check":     "main · check",
		"session.readFile[main]:a":     "main · read a",
		"session.open:main":            "open session main",
		"session.close[main]":          "close session main",
		"host.exec:build":              "host · build",
		"workspace.open":               "open workspace",
		"workspace.open:two":           "open workspace two",
		"workspace.writeBack#3":        "write back #3",
		"workspace.diff@0.1.2#3":       "compare workspace #3",
		"human:write-back":             "question write-back",
		"clock.sleep:nap":              "sleep nap",
		"something.new[x]:y":           "something.new[x]:y",
		"session.ask[main]:with#a:]@b": "main · with#a:]@b",
	} {
		if got := parseOperationID(id).describe(); got != want {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
}
