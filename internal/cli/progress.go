package cli

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/cli/render"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/lazyregexp"
	"github.com/laufwerk/laufwerk/internal/workflow"
)

// progressDisplay prints the progress of a run on stderr: a line when an operation ends and, until then, its output, either as
// lines or, on a terminal that can be drawn on, in rows below them (see progress_screen.go).
type progressDisplay struct {
	d    *Deps
	run  string
	asks bool

	mu       sync.Mutex
	active   []*activeOperation // in the order in which they began
	paused   bool               // the terminal belongs to a question
	deferred []deferredLine     // meanwhile
	dropped  int                // lines that were too many to be held

	live bool
	stop func()
}

type activeOperation struct {
	op      operationID
	since   time.Time
	action  string       // what its agent does now
	message string       // what its agent said last
	usage   *agent.Usage // so far
	line    []byte       // the unfinished last line of its output
	tail    []string     // the last lines before that
}

type deferredLine struct {
	format string
	args   []any
}

const (
	maxDeferredLines = 1000
	maxTailLines     = 10      // kept of an output
	maxLineBytes     = 4 << 10 // kept of a line of it
	maxOutputBytes   = 64 << 10
)

func newProgressDisplay(d *Deps, run string, interactive bool) *progressDisplay {
	f := &progressDisplay{d: d, run: run, asks: interactive, stop: func() {}}
	if !d.UI.JSON && d.UI.Err.Live() {
		f.animate()
	}
	return f
}

// pause leaves the terminal to a question: until the function that it returns is called nothing is drawn, and lines are deferred.
func (f *progressDisplay) pause() (release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.paused = true
	f.draw()
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.paused = false
		if f.dropped > 0 {
			f.d.UI.Talkf("  %s\n", f.d.UI.Err.Faint("… "+plural(f.dropped, "line")+" before this: laufwerk runs logs "+f.run))
		}
		for _, s := range f.deferred {
			f.d.UI.Talkf(s.format, s.args...)
		}
		f.deferred, f.dropped = nil, 0
		f.draw()
	}
}

func (f *progressDisplay) printLine(format string, args ...any) {
	if !f.paused {
		f.d.UI.Talkf(format, args...)
		return
	}
	if len(f.deferred) == maxDeferredLines {
		f.deferred = f.deferred[1:]
		f.dropped++
	}
	f.deferred = append(f.deferred, deferredLine{format, args})
}

func (f *progressDisplay) show(ev journal.Event) {
	if f.d.UI.JSON {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	ui := f.d.UI
	fl := f.operation(ev)
	switch ev.Kind {
	case "operation":
		if ev.Text == workflow.OperationBegan {
			f.begin(fl)
		} else {
			f.end(fl, ev)
		}
	case "attempt":
		fl.action, fl.line, fl.tail = "", nil, nil
	case "agent":
		f.showAgent(fl, ev)
	case "progress":
		f.showProgress(fl, ev.Text)
	case "output":
		f.addOutput(fl, ev.Text)
	case "stderr":
		f.addStderr(fl, ev.Text)
	case "console":
		f.printLines("", ev.Text)
	case "question":
		fl.action = "waits for an answer"
		if !f.asks {
			f.printLine("%s %s\n", ui.Err.Bold("?"), ev.Text)
		}
	default:
		if strings.HasPrefix(ev.Text, workflow.NotReady) { // the reason is what the command ends with
			f.printLine("%s %s stops: not ready\n", ui.Err.Bold("!"), render.Name(fl.op.describe()))
			return
		}
		f.printLine("%s %s\n", ui.Err.Bold("!"), strings.TrimRight(ev.Text, "\n"))
	}
}

// operation returns the active operation of an event, or a new one that is on no list.
func (f *progressDisplay) operation(ev journal.Event) *activeOperation {
	for _, fl := range f.active {
		if fl.op.id == ev.Op {
			return fl
		}
	}
	return &activeOperation{op: parseOperationID(ev.Op), since: ev.At}
}

func (f *progressDisplay) begin(fl *activeOperation) {
	f.active = append(f.active, fl)
	if !f.live && fl.op.mayTakeLong() {
		f.printLine("%s %s\n", f.d.UI.Err.Faint("·"), render.Name(fl.op.describe()))
	}
}

func (f *progressDisplay) end(fl *activeOperation, ev journal.Event) {
	f.active = slices.DeleteFunc(f.active, func(o *activeOperation) bool { return o == fl })
	f.draw()
	var m workflow.Measurements
	_ = json.Unmarshal(ev.Data, &m)
	if len(fl.line) > 0 {
		f.endLine(fl)
	}
	why, failed := strings.CutPrefix(ev.Text, workflow.FailedWith)
	cancelled := strings.HasPrefix(why, "cancelled")
	bad := failed || m.ExitCode != nil && *m.ExitCode != 0
	if fl.op.isSilent() && !bad {
		return
	}
	mark := f.d.UI.Err.Good("✓")
	if bad {
		mark = f.d.UI.Err.Bad("✗")
	}
	took := time.Duration(m.Millis) * time.Millisecond
	if took == 0 {
		took = ev.At.Sub(fl.since)
	}
	var facts []string
	if m.ExitCode != nil && *m.ExitCode != 0 {
		facts = append(facts, "exit "+strconv.Itoa(*m.ExitCode))
	}
	if fl.op.mayTakeLong() || took >= time.Second {
		facts = append(facts, render.Duration(took))
	}
	if m.Usage != nil {
		facts = append(facts, render.Tokens(m.Usage.Input+m.Usage.Output))
	}
	text := ""
	if len(facts) > 0 {
		text = "  " + strings.Join(facts, "  ")
	}
	if failed {
		text += ": " + why
	}
	f.printLine("%s %s%s\n", mark, render.Name(fl.op.describe()), text)
	if f.live {
		f.printRest(fl, bad && !cancelled)
	}
}

// printRest prints, of what was drawn, what should stay on the terminal: an agent's answer, or the last output of a failed command.
func (f *progressDisplay) printRest(fl *activeOperation, bad bool) {
	switch lines := strings.Split(strings.TrimSpace(fl.message), "\n"); {
	case fl.message != "" && len(lines) > maxTailLines:
		f.printLines("", strings.Join(lines[:maxTailLines-1], "\n"))
		f.printLine("  %s\n", f.d.UI.Err.Faint("| … "+plural(len(lines)-maxTailLines+1, "more line")+": laufwerk runs logs "+f.run))
	case fl.message != "":
		f.printLines("", strings.Join(lines, "\n"))
	case bad && len(fl.tail) > 0:
		f.printLines("", strings.Join(fl.tail, "\n"))
	}
}

// agentAction are the fields of an action's payload that all agent programs have.
type agentAction struct {
	Phase   string `json:"phase"`
	Command string `json:"command"`
}

func (f *progressDisplay) showAgent(fl *activeOperation, ev journal.Event) {
	message := agent.Event{Kind: "message", Text: ev.Text}
	if len(ev.Data) > 0 {
		_ = json.Unmarshal(ev.Data, &message)
	}
	if message.Usage != nil {
		fl.usage = message.Usage
	}
	if ev.Text == "" {
		return
	}
	switch message.Kind {
	case "message":
		fl.action, fl.message = ev.Text, ev.Text
	case "reasoning":
		fl.action = strings.Trim(ev.Text, "* \n")
		return
	case "action":
		fl.action = ev.Text
		var a agentAction
		if json.Unmarshal(message.Payload, &a) == nil && a.Phase == "started" {
			fl.action = "running " + unwrapShell(a.Command)
			return
		}
	default:
		fl.action = ev.Text
	}
	if !f.live {
		f.printLines(f.prefix(fl), ev.Text)
	}
}

var shellCommand = lazyregexp.Regexp{Pattern: `(?s)^(?:/\S*/)?(?:ba|z|da)?sh -l?c (.*)$`}

func unwrapShell(command string) string {
	if m := shellCommand.FindStringSubmatch(command); m != nil {
		command = m[1]
		if n := len(command); n > 1 && (command[0] == '\'' || command[0] == '"') && command[n-1] == command[0] {
			command = command[1 : n-1]
		}
	}
	return command
}

// addOutput adds a piece of a command's output, which is shown in whole lines.
func (f *progressDisplay) addOutput(fl *activeOperation, piece string) {
	for piece != "" {
		line, rest, whole := strings.Cut(piece, "\n")
		if f.live { // only its beginning can be seen
			line = line[:min(len(line), maxLineBytes-min(maxLineBytes, len(fl.line)))]
		}
		fl.line = append(fl.line, line...)
		if whole || len(fl.line) > maxOutputBytes {
			f.endLine(fl)
		}
		piece = rest
	}
}

// styleSequence matches the terminal sequences that only change the style of text.
var styleSequence = lazyregexp.Regexp{Pattern: `\x1b\[[0-9;:]*m`}

func (f *progressDisplay) endLine(fl *activeOperation) {
	line := styleSequence.ReplaceAll(bytes.TrimRight(fl.line, "\r"), nil)
	if i := bytes.LastIndexByte(line, '\r'); i >= 0 { // what it has written over, nobody is to see
		line = line[i+1:]
	}
	text := string(line)
	fl.line = fl.line[:0]
	if !f.live {
		f.printLines(f.prefix(fl), text)
		return
	}
	if len(fl.tail) == maxTailLines {
		fl.tail = slices.Delete(fl.tail, 0, 1)
	}
	fl.tail = append(fl.tail, text)
}

func (f *progressDisplay) showProgress(fl *activeOperation, text string) {
	fl.action = text
	if !f.live {
		f.printLines(f.prefix(fl), text)
	}
}

func (f *progressDisplay) addStderr(fl *activeOperation, text string) {
	if len(fl.line) > 0 {
		f.endLine(fl)
	}
	for line := range strings.SplitSeq(text, "\n") {
		fl.line = append(fl.line, "stderr: "+line...)
		f.endLine(fl)
	}
}

// prefix names the operation of a line, if several operations may print.
func (f *progressDisplay) prefix(fl *activeOperation) string {
	for _, o := range f.active {
		if o != fl && o.op.mayTakeLong() {
			return fl.op.describe() + " "
		}
	}
	return ""
}

func (f *progressDisplay) printLines(whose, text string) {
	text = strings.TrimRight(text, "\n")
	if text == "" {
		return
	}
	for line := range strings.SplitSeq(text, "\n") {
		f.printLine("  %s %s\n", f.d.UI.Err.Faint(render.Name(whose+"|")), line)
	}
}
