package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/laufwerk/laufwerk/internal/harness"
)

// lines reads the JSON protocol. After the first line that breaks it nothing more is read: what was wrong is told at the end.
type lines struct {
	program      string
	conversation string // of the turn before, until the program names one
	named        bool   // the program named the conversation in this turn

	partial []byte
	count   int
	reply   string
	usage   *harness.Usage
	last    string // "done" or "failed"
	message string // of failed
	broken  string // what was wrong
}

// line is one answer line; Type says which fields count.
type line struct {
	Type    string  `json:"type"`
	ID      string  `json:"id"`
	Text    *string `json:"text"`
	Message string  `json:"message"`
	harness.Usage
}

func (r *lines) Feed(chunk []byte) (events []harness.Event) {
	for len(chunk) > 0 && r.broken == "" {
		i := bytes.IndexByte(chunk, '\n')
		end := i
		if i < 0 {
			end = len(chunk)
		}
		if len(r.partial)+end > maxReply {
			r.breaks("line %d is longer than %d bytes", r.count+1, maxReply)
			break
		}
		if i < 0 {
			r.partial = append(r.partial, chunk...)
			return events
		}
		full := chunk[:i]
		if len(r.partial) > 0 {
			full = append(r.partial, full...)
			r.partial = r.partial[:0]
		}
		chunk = chunk[i+1:]
		events = append(events, r.line(full)...)
	}
	return events
}

func (r *lines) breaks(format string, args ...any) { r.broken = fmt.Sprintf(format, args...) }

// line takes one whole line. Empty ones mean nothing.
func (r *lines) line(b []byte) []harness.Event {
	r.count++
	b = bytes.TrimSpace(b)
	if len(b) == 0 {
		return nil
	}
	if r.last != "" {
		r.breaks("line %d comes after %q, which is the last one: %s", r.count, r.last, quoted(b))
		return nil
	}
	var l line
	if err := json.Unmarshal(b, &l); err != nil || b[0] != '{' {
		r.breaks("line %d is not a JSON object of the protocol: %s", r.count, quoted(b))
		return nil
	}
	switch l.Type {
	case "conversation":
		return r.talk(l)
	case "message":
		if l.Text == nil {
			r.breaks("line %d is a message without text", r.count)
			return nil
		}
		r.reply = *l.Text
		return []harness.Event{{Kind: "message", Text: r.reply}}
	case "usage":
		u := l.Usage
		if min(u.Input, u.Cached, u.Output, u.Reasoning) < 0 {
			r.breaks("line %d counts less than no tokens", r.count)
			return nil
		}
		r.usage = &u
		return []harness.Event{{Kind: "usage", Usage: &u}}
	case "done", "failed":
		r.last, r.message = l.Type, l.Message
	default:
		r.breaks("line %d has the unknown type %s", r.count, quoted([]byte(l.Type)))
	}
	return nil
}

// uuid is the only form of an id: it comes back as an argument or a field of a later turn.
func uuid() *regexp.Regexp {
	return regexp.MustCompile(`^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}$`)
}

func (r *lines) talk(l line) []harness.Event {
	switch {
	case !uuid().MatchString(l.ID):
		r.breaks("line %d: expected a UUID as the id of the conversation, got %s", r.count, quoted([]byte(l.ID)))
	case r.named && l.ID != r.conversation:
		r.breaks("line %d names a second conversation", r.count)
	case !r.named:
		r.named, r.conversation = true, l.ID
		return []harness.Event{{Kind: "conversation", Text: l.ID}}
	}
	return nil
}

// End judges the turn. The conversation and the usage are told also of a turn that failed.
func (r *lines) End(exitCode int, stderrTail string) (harness.Reply, error) {
	if len(bytes.TrimSpace(r.partial)) > 0 && r.broken == "" {
		r.line(r.partial) // the last line needs no line end
	}
	out := harness.Reply{Conversation: r.conversation, Usage: r.usage}
	switch {
	case r.broken != "" && exitCode != 0:
		return out, failed(exitCode, "%s exited with status %d%s; its output broke the protocol: %s", r.program, exitCode, said(stderrTail, ""), r.broken)
	case r.broken != "":
		return out, failed(exitCode, "%s broke the protocol: %s", r.program, r.broken)
	case r.last == "failed":
		why := strings.TrimSpace(r.message)
		if why == "" {
			why = "it did not say why"
		}
		return out, failed(exitCode, "%s failed: %s", r.program, lastOf(why))
	case exitCode != 0 && r.last == "done":
		return out, failed(exitCode, "%s said that it was done and then exited with status %d%s", r.program, exitCode, said(stderrTail, ""))
	case exitCode != 0:
		return out, failed(exitCode, "%s exited with status %d%s", r.program, exitCode, said(stderrTail, ""))
	case r.last == "":
		return out, failed(exitCode, `%s exited with status 0 without a last line {"type":"done"}%s`, r.program, said(stderrTail, ""))
	}
	out.Text = strings.ToValidUTF8(r.reply, "\uFFFD")
	return out, nil
}
