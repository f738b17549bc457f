package worker

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/cli"
	"github.com/laufwerk/laufwerk/internal/cli/render"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/workflow"
)

// follower tells on stderr what goes on: a line when an operation ends, and meanwhile what it says, either as lines too or,
// on a terminal that can be drawn on, below them (see live.go). Questions that are asked here show themselves.
type follower struct {
	d     *cli.Deps
	run   string
	asked bool
	looks *regexp.Regexp

	mu     sync.Mutex
	flying []*flight // in the order in which they began
	asking bool      // the terminal belongs to a question
	held   []said    // meanwhile
	lost   int       // lines that were too many to be held

	live bool
	stop func()
}

// flight is an operation under way.
type flight struct {
	op      operation
	since   time.Time
	action  string       // what its agent does now
	message string       // what its agent said last
	usage   *agent.Usage // so far
	line    []byte       // the unfinished last line of its output
	tail    []string     // the last lines before that
}

type said struct {
	format string
	args   []any
}

const (
	heldLines   = 1000
	tailLines   = 10      // kept of an output
	lineBytes   = 4 << 10 // kept of a line of it
	outputBytes = 64 << 10
)

func newFollower(d *cli.Deps, run string, asked bool) *follower {
	f := &follower{d: d, run: run, asked: asked, looks: looks(), stop: func() {}}
	if !d.UI.JSON && d.UI.Err.Live() {
		f.animate()
	}
	return f
}

// hold gives the terminal to a question: nothing is drawn, and lines wait, until the function that it returns is called.
func (f *follower) hold() (release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asking = true
	f.draw()
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.asking = false
		if f.lost > 0 {
			f.d.UI.Talkf("  %s\n", f.d.UI.Err.Faint("… "+plural(f.lost, "line")+" before this: laufwerk runs logs "+f.run))
		}
		for _, s := range f.held {
			f.d.UI.Talkf(s.format, s.args...)
		}
		f.held, f.lost = nil, 0
		f.draw()
	}
}

func (f *follower) say(format string, args ...any) {
	if !f.asking {
		f.d.UI.Talkf(format, args...)
		return
	}
	if len(f.held) == heldLines {
		f.held = f.held[1:]
		f.lost++
	}
	f.held = append(f.held, said{format, args})
}

func (f *follower) event(ev journal.Event) {
	if f.d.UI.JSON {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	ui := f.d.UI
	fl := f.flight(ev)
	switch ev.Kind {
	case "operation":
		if ev.Text == workflow.Begins {
			f.begins(fl)
		} else {
			f.ends(fl, ev)
		}
	case "attempt":
		fl.action, fl.line, fl.tail = "", nil, nil
	case "agent":
		f.agent(fl, ev)
	case "progress":
		f.progress(fl, ev.Text)
	case "output":
		f.output(fl, ev.Text)
	case "stderr":
		f.stderr(fl, ev.Text)
	case "console":
		f.lines("", ev.Text)
	case "question":
		fl.action = "waits for an answer"
		if !f.asked {
			f.say("%s %s\n", ui.Err.Bold("?"), ev.Text)
		}
	default:
		if strings.HasPrefix(ev.Text, workflow.NotReady) { // the reason is what the command ends with
			f.say("%s %s stops: not ready\n", ui.Err.Bold("!"), render.Name(fl.op.words()))
			return
		}
		f.say("%s %s\n", ui.Err.Bold("!"), strings.TrimRight(ev.Text, "\n"))
	}
}

// flight is the operation that an event is about. What is nobody's, or begins with this event, is on none of the lists.
func (f *follower) flight(ev journal.Event) *flight {
	for _, fl := range f.flying {
		if fl.op.id == ev.Op {
			return fl
		}
	}
	return &flight{op: operationOf(ev.Op), since: ev.At}
}

func (f *follower) begins(fl *flight) {
	f.flying = append(f.flying, fl)
	if !f.live && fl.op.long() {
		f.say("%s %s\n", f.d.UI.Err.Faint("·"), render.Name(fl.op.words()))
	}
}

func (f *follower) ends(fl *flight, ev journal.Event) {
	f.flying = slices.DeleteFunc(f.flying, func(o *flight) bool { return o == fl })
	f.draw()
	var m workflow.Measured
	_ = json.Unmarshal(ev.Data, &m)
	if len(fl.line) > 0 {
		f.finishLine(fl)
	}
	why, failed := strings.CutPrefix(ev.Text, workflow.FailedWith)
	cancelled := strings.HasPrefix(why, "cancelled")
	bad := failed || m.ExitCode != nil && *m.ExitCode != 0
	if fl.op.silent() && !bad {
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
		facts = append(facts, "exit "+itoa(*m.ExitCode))
	}
	if fl.op.long() || took >= time.Second {
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
	f.say("%s %s%s\n", mark, render.Name(fl.op.words()), text)
	if f.live {
		f.leave(fl, bad && !cancelled)
	}
}

// leave keeps on the terminal what is worth it of what was drawn: the end of what an agent answered, or of what failed.
func (f *follower) leave(fl *flight, bad bool) {
	switch lines := strings.Split(strings.TrimSpace(fl.message), "\n"); {
	case fl.message != "" && len(lines) > tailLines:
		f.lines("", strings.Join(lines[:tailLines-1], "\n"))
		f.say("  %s\n", f.d.UI.Err.Faint("| … "+plural(len(lines)-tailLines+1, "more line")+": laufwerk runs logs "+f.run))
	case fl.message != "":
		f.lines("", strings.Join(lines, "\n"))
	case bad && len(fl.tail) > 0:
		f.lines("", strings.Join(fl.tail, "\n"))
	}
}

// action is what harnesses tell of an action, as far as all of them do.
type action struct {
	Phase   string `json:"phase"`
	Command string `json:"command"`
}

func (f *follower) agent(fl *flight, ev journal.Event) {
	said := agent.Event{Kind: "message", Text: ev.Text}
	if len(ev.Data) > 0 {
		_ = json.Unmarshal(ev.Data, &said)
	}
	if said.Usage != nil {
		fl.usage = said.Usage
	}
	if ev.Text == "" {
		return
	}
	switch said.Kind {
	case "message":
		fl.action, fl.message = ev.Text, ev.Text
	case "reasoning":
		fl.action = strings.Trim(ev.Text, "* \n")
		return
	case "action":
		fl.action = ev.Text
		var a action
		if json.Unmarshal(said.Payload, &a) == nil && a.Phase == "started" {
			fl.action = "running " + unwrapped(a.Command)
			return
		}
	default:
		fl.action = ev.Text
	}
	if !f.live {
		f.lines(f.whose(fl), ev.Text)
	}
}

// shell is how agents start a command line.
func shell() *regexp.Regexp {
	return regexp.MustCompile(`(?s)^(?:/\S*/)?(?:ba|z|da)?sh -l?c (.*)$`)
}

func unwrapped(command string) string {
	if m := shell().FindStringSubmatch(command); m != nil {
		command = m[1]
		if n := len(command); n > 1 && (command[0] == '\'' || command[0] == '"') && command[n-1] == command[0] {
			command = command[1 : n-1]
		}
	}
	return command
}

// output takes a piece of what a command prints. It is shown by whole lines.
func (f *follower) output(fl *flight, piece string) {
	for piece != "" {
		line, rest, whole := strings.Cut(piece, "\n")
		if f.live { // only its beginning can be seen
			line = line[:min(len(line), lineBytes-min(lineBytes, len(fl.line)))]
		}
		fl.line = append(fl.line, line...)
		if whole || len(fl.line) > outputBytes {
			f.finishLine(fl)
		}
		piece = rest
	}
}

// looks are the sequences that change how text looks, and nothing else.
func looks() *regexp.Regexp { return regexp.MustCompile(`\x1b\[[0-9;:]*m`) }

func (f *follower) finishLine(fl *flight) {
	line := f.looks.ReplaceAll(bytes.TrimRight(fl.line, "\r"), nil)
	if i := bytes.LastIndexByte(line, '\r'); i >= 0 { // what it has written over, nobody is to see
		line = line[i+1:]
	}
	text := string(line)
	fl.line = fl.line[:0]
	if !f.live {
		f.lines(f.whose(fl), text)
		return
	}
	if len(fl.tail) == tailLines {
		fl.tail = slices.Delete(fl.tail, 0, 1)
	}
	fl.tail = append(fl.tail, text)
}

// progress is what the operation does beside its program.
func (f *follower) progress(fl *flight, text string) {
	fl.action = text
	if !f.live {
		f.lines(f.whose(fl), text)
	}
}

// stderr is what a command that failed has printed there.
func (f *follower) stderr(fl *flight, text string) {
	if len(fl.line) > 0 {
		f.finishLine(fl)
	}
	for line := range strings.SplitSeq(text, "\n") {
		fl.line = append(fl.line, "stderr: "+line...)
		f.finishLine(fl)
	}
}

// whose names the operation that says something, where several might.
func (f *follower) whose(fl *flight) string {
	for _, o := range f.flying {
		if o != fl && o.op.long() {
			return fl.op.words() + " "
		}
	}
	return ""
}

func (f *follower) lines(whose, text string) {
	text = strings.TrimRight(text, "\n")
	if text == "" {
		return
	}
	for line := range strings.SplitSeq(text, "\n") {
		f.say("  %s %s\n", f.d.UI.Err.Faint(render.Name(whose+"|")), line)
	}
}
