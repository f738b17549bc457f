package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"sync"

	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/runs"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/workflow"
)

// terminal asks the person at it, one question at a time. Input from before a question is dropped, and the default answer is no.
type terminal struct {
	d       *Deps
	s       *runs.Service
	run     string
	once    sync.Once
	want    chan struct{}
	lines   chan string // closed at the end of input
	reading bool        // a line was wanted and has not come
}

func newTerminal(d *Deps, s *runs.Service, run string) *terminal {
	return &terminal{d: d, s: s, run: run, want: make(chan struct{}, 1), lines: make(chan string, 1)}
}

// read takes a line from stdin whenever one is wanted, and never ahead: what nobody has read yet can still be dropped. A read
// cannot be taken back, so one goroutine serves all questions.
func (t *terminal) read() {
	defer close(t.lines)
	in := bufio.NewScanner(t.d.Env.In)
	for range t.want {
		if !in.Scan() {
			return
		}
		t.lines <- in.Text()
	}
}

// dropTypedAhead drops input from before this question, such as an answer to the last one after that was answered elsewhere.
func (t *terminal) dropTypedAhead() {
	system.DiscardTypeahead(t.d.Env.In)
	if !t.reading {
		return
	}
	select {
	case _, open := <-t.lines:
		t.reading = !open
	default:
	}
}

func (t *terminal) ask(ctx context.Context, q workflow.Question) (json.RawMessage, journal.Sender, error) {
	ui := t.d.UI
	if q.Workspace != "" {
		text, err := t.s.Difference(ctx, t.run, q.Digest)
		if err != nil {
			return nil, journal.Sender{}, err
		}
		ui.Talkf("\n%s\n", text)
	}
	if q.Description != "" {
		ui.Talkf("%s\n", q.Description)
	}
	for i, o := range q.Options {
		ui.Talkf("  %d) %s%s\n", i+1, o.Label, withColon(o.Description))
	}
	t.dropTypedAhead()
	t.once.Do(func() { go t.read() })
	for {
		ui.Talkf("%s %s ", ui.Err.Bold(q.Title), answerChoices(q))
		if !t.reading {
			t.reading = true
			t.want <- struct{}{}
		}
		select {
		case <-ctx.Done():
			ui.Talkf("\n")
			return nil, journal.Sender{}, context.Cause(ctx)
		case line, ok := <-t.lines:
			if !ok {
				ui.Talkf("\n")
				return nil, journal.Sender{}, workflow.ErrNobody
			}
			t.reading = false
			value, fits := parseAnswer(q, strings.TrimSpace(line))
			if fits {
				return value, currentPerson(), nil
			}
			ui.Talkf("%s\n", expectedAnswer(q))
		}
	}
}

func withColon(s string) string {
	if s == "" {
		return ""
	}
	return ": " + s
}

func answerChoices(q workflow.Question) string {
	switch q.Type {
	case workflow.Confirm:
		return "[y/N]"
	case workflow.Select:
		return "[1-" + strconv.Itoa(len(q.Options)) + "]"
	default:
		if q.Placeholder != "" {
			return "(" + q.Placeholder + ")"
		}
		return ""
	}
}

func expectedAnswer(q workflow.Question) string {
	if q.Type == workflow.Select {
		return "answer a number from 1 to " + strconv.Itoa(len(q.Options)) + ", or the text of an option"
	}
	return "answer y or n"
}

func parseAnswer(q workflow.Question, line string) (json.RawMessage, bool) {
	switch q.Type {
	case workflow.Confirm:
		switch strings.ToLower(line) {
		case "y", "yes":
			return json.RawMessage("true"), true
		case "", "n", "no":
			return json.RawMessage("false"), true
		}
		return nil, false
	case workflow.Select:
		if n, err := strconv.Atoi(line); err == nil && n >= 1 && n <= len(q.Options) {
			line = q.Options[n-1].Value
		}
	}
	value, err := json.Marshal(line)
	return value, err == nil && q.Check(value) == nil
}

// currentPerson identifies the person who runs this process, as an approval records it.
func currentPerson() journal.Sender {
	chain, _ := system.Ancestry("")
	return journal.Sender{UID: system.UID(), User: system.UserName(), Terminal: system.Terminal(), Chain: chain}
}
