package command

import (
	"encoding/json"
	"strings"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/failure"
)

type lines struct {
	agent.Lines
	program      string
	conversation string // of the turn before, until the program names one
	named        bool   // the program named the conversation in this turn

	reply   string
	usage   *agent.Usage
	last    string // "done" or "failed"
	message string // of failed
}

// line is one answer line; Type says which fields count.
type line struct {
	Type    string  `json:"type"`
	ID      string  `json:"id"`
	Text    *string `json:"text"`
	Message string  `json:"message"`
	agent.Usage
}

func newLines(program, conversation string) *lines {
	r := &lines{program: program, conversation: conversation}
	r.Lines = agent.NewLines(r.line)
	return r
}

func (r *lines) line(b []byte) []agent.Event {
	if r.last != "" {
		r.Fail("line %d comes after %q, which is the last one: %s", r.Number(), r.last, agent.Quote(b))
		return nil
	}
	var l line
	if err := json.Unmarshal(b, &l); err != nil || b[0] != '{' {
		r.Fail("line %d is not a JSON object of the protocol: %s", r.Number(), agent.Quote(b))
		return nil
	}
	switch l.Type {
	case "conversation":
		return r.talk(l)
	case "message":
		if l.Text == nil {
			r.Fail("line %d is a message without text", r.Number())
			return nil
		}
		r.reply = *l.Text
		return []agent.Event{{Kind: "message", Text: r.reply}}
	case "usage":
		u := l.Usage
		if min(u.Input, u.Cached, u.Output, u.Reasoning) < 0 {
			r.Fail("line %d has a negative number of tokens", r.Number())
			return nil
		}
		r.usage = &u
		return []agent.Event{{Kind: "usage", Usage: &u}}
	case "done", "failed":
		r.last, r.message = l.Type, l.Message
	default:
		r.Fail("line %d has the unknown type %s", r.Number(), agent.Quote([]byte(l.Type)))
	}
	return nil
}

func (r *lines) talk(l line) []agent.Event {
	switch {
	case !agent.IsUUID(l.ID):
		r.Fail("line %d: expected a UUID as the id of the conversation, got %s", r.Number(), agent.Quote([]byte(l.ID)))
	case r.named && l.ID != r.conversation:
		r.Fail("line %d names a second conversation", r.Number())
	case !r.named:
		r.named, r.conversation = true, l.ID
		return []agent.Event{{Kind: "conversation", Text: l.ID}}
	}
	return nil
}

// End judges the turn. The conversation and the usage are told also of a turn that failed.
func (r *lines) End(exitCode int, stderrTail string) (agent.Reply, error) {
	broken := r.Close()
	out := agent.Reply{Conversation: r.conversation, Usage: r.usage}
	switch {
	case broken != "" && exitCode != 0:
		return out, agentError(exitCode, "%s exited with status %d%s; its output broke the protocol: %s", r.program, exitCode, outputText(stderrTail, ""), broken)
	case broken != "":
		return out, agentError(exitCode, "%s broke the protocol: %s", r.program, broken)
	case r.last == "failed":
		why := strings.TrimSpace(r.message)
		if why == "" {
			why = "it gave no reason"
		}
		return out, agentError(exitCode, "%s failed: %s", r.program, lastOf(why))
	case exitCode != 0 && r.last == "done":
		return out, agentError(exitCode, "%s reported that it was done and then exited with status %d%s", r.program, exitCode, outputText(stderrTail, ""))
	case exitCode != 0:
		return out, agentError(exitCode, "%s exited with status %d%s", r.program, exitCode, outputText(stderrTail, ""))
	case r.last == "":
		return out, agentError(exitCode, `%s exited with status 0 without a last line {"type":"done"}%s`, r.program, outputText(stderrTail, ""))
	}
	out.Text = strings.ToValidUTF8(r.reply, "\uFFFD")
	return out, nil
}

// maxReply bounds what is kept of a turn's stdout, in bytes; the supervisor keeps no more either.
const maxReply = 16 << 20

// text takes all of stdout as the reply.
type text struct {
	program string
	out     strings.Builder
	lost    int64
}

func (r *text) Feed(chunk []byte) []agent.Event {
	keep := min(len(chunk), maxReply-r.out.Len())
	r.out.Write(chunk[:keep])
	r.lost += int64(len(chunk) - keep)
	return nil
}

// End gives stdout without its last line ends, as a shell's command substitution does. A program that says nothing and
// exits with 0 has replied with nothing. Invalid UTF-8 becomes U+FFFD.
func (r *text) End(exitCode int, stderrTail string) (agent.Reply, error) {
	if exitCode != 0 {
		return agent.Reply{}, agentError(exitCode, "%s exited with status %d%s", r.program, exitCode, outputText(stderrTail, r.out.String()))
	}
	if r.lost > 0 {
		return agent.Reply{}, agentError(exitCode, "the reply of %s is longer than %d bytes", r.program, maxReply)
	}
	return agent.Reply{Text: strings.TrimRight(strings.ToValidUTF8(r.out.String(), "\uFFFD"), "\r\n")}, nil
}

func agentError(exitCode int, format string, args ...any) error {
	return failure.New(failure.AgentFailed, format, args...).WithField("exitCode", exitCode)
}

// outputText is the end of what a program wrote to stderr, or else to stdout.
func outputText(stderr, stdout string) string {
	for _, s := range []string{stderr, stdout} {
		if s = strings.TrimSpace(s); s != "" {
			return ": " + lastOf(s)
		}
	}
	return " and printed nothing"
}

// quoteLimit is how much of a program's words is repeated in a message, in bytes.
const quoteLimit = 400

func lastOf(s string) string {
	if len(s) > quoteLimit {
		s = "…" + s[len(s)-quoteLimit:]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
