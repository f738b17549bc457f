package codex

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/laufwerk/laufwerk/internal/harness"
)

// maxLine bounds one event, in bytes. Codex cuts the output of a command at 1 MiB, which JSON's escapes make up to six
// times as long.
const maxLine = 16 << 20

// reader reads the events of one turn. What they say is the agent's: only their order is relied on. After the first line
// that breaks it nothing more is read: what was wrong is told at the end.
type reader struct {
	asked  string // the thread that was to be continued
	before state

	partial []byte
	count   int
	thread  string
	began   bool // turn.started
	last    string
	message string // of turn.failed
	notice  string // the last error that was no end
	reply   string
	total   *tokens
	broken  string
}

// tokens are Codex's counters. They count for the whole thread.
type tokens struct {
	Input     int64 `json:"input_tokens"`
	Cached    int64 `json:"cached_input_tokens"`
	Output    int64 `json:"output_tokens"`
	Reasoning int64 `json:"reasoning_output_tokens"`
}

// state is what a turn leaves for the next one: what the thread had cost by then.
type state struct {
	Thread string `json:"thread"`
	Total  tokens `json:"total"`
}

// Reader reads one turn.
func (*Harness) Reader(t harness.Turn) harness.Reader {
	r := &reader{asked: t.Conversation}
	_ = json.Unmarshal(t.State, &r.before) // none at the beginning
	return r
}

// line is one event; Type says which fields count.
type line struct {
	Type     string  `json:"type"`
	ThreadID string  `json:"thread_id"`
	Item     item    `json:"item"`
	Usage    *tokens `json:"usage"`
	Message  string  `json:"message"`
	Error    struct {
		Message string `json:"message"`
	} `json:"error"`
}

func (r *reader) Feed(chunk []byte) (events []harness.Event) {
	for len(chunk) > 0 && r.broken == "" {
		i := bytes.IndexByte(chunk, '\n')
		end := i
		if i < 0 {
			end = len(chunk)
		}
		if len(r.partial)+end > maxLine {
			r.breaks("line %d is longer than %d bytes", r.count+1, maxLine)
			r.partial = nil
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

func (r *reader) breaks(format string, args ...any) { r.broken = fmt.Sprintf(format, args...) }

func (r *reader) line(b []byte) []harness.Event {
	r.count++
	if b = bytes.TrimSpace(b); len(b) == 0 {
		return nil
	}
	var l line
	if b[0] != '{' || json.Unmarshal(b, &l) != nil || l.Type == "" {
		r.breaks("line %d is not an event: %s", r.count, quoted(b))
		return nil
	}
	switch {
	case r.last != "":
		r.breaks("%q comes after %q, which is the last one", l.Type, r.last)
		return nil
	case r.thread == "" && l.Type != "thread.started" && l.Type != "error":
		r.breaks("%q comes before the thread has started", l.Type)
		return nil
	}
	switch l.Type {
	case "thread.started":
		return r.started(l.ThreadID)
	case "turn.started":
		if r.began {
			r.breaks("a second turn started")
		}
		r.began = true
	case "item.started", "item.updated", "item.completed":
		if l.Item.Type == "agent_message" && l.Type == "item.completed" {
			r.reply = l.Item.Text
		}
		return l.Item.event(l.Type)
	case "turn.completed":
		r.last = l.Type
		if l.Usage == nil {
			return nil
		}
		if min(l.Usage.Input, l.Usage.Cached, l.Usage.Output, l.Usage.Reasoning) < 0 {
			r.breaks("the turn cost less than nothing")
			return nil
		}
		r.total = l.Usage
		return []harness.Event{{Kind: "usage", Usage: r.usage()}}
	case "turn.failed":
		r.last, r.message = l.Type, l.Error.Message
	case "error": // "Reconnecting… 2/5": no end
		r.notice = l.Message
		return []harness.Event{{Kind: "notice", Text: l.Message}}
	}
	return nil // what newer versions say in addition
}

func (r *reader) started(id string) []harness.Event {
	switch {
	case r.thread != "":
		r.breaks("a second thread started")
	case !isUUID(id):
		r.breaks("expected a UUID as the thread's id, got %s", quoted([]byte(id)))
	case r.asked != "" && id != r.asked:
		r.breaks("it continued the thread %s instead of %s", id, r.asked)
	default:
		r.thread = id
		return []harness.Event{{Kind: "conversation", Text: id}}
	}
	return nil
}

// usage is what this turn added, and what turns added that were cut before it.
func (r *reader) usage() *harness.Usage {
	if r.total == nil {
		return nil
	}
	was := r.before.Total
	if r.before.Thread != r.thread || was.Input > r.total.Input || was.Cached > r.total.Cached || was.Output > r.total.Output || was.Reasoning > r.total.Reasoning {
		was = tokens{}
	}
	return &harness.Usage{
		Input: r.total.Input - was.Input, Cached: r.total.Cached - was.Cached,
		Output: r.total.Output - was.Output, Reasoning: r.total.Reasoning - was.Reasoning,
	}
}

// isUUID: ids come back as arguments.
func isUUID(s string) bool {
	return regexp.MustCompile(`^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`).MatchString(s)
}

// End judges the turn.
func (r *reader) End(exitCode int, stderrTail string) (harness.Reply, error) {
	if len(bytes.TrimSpace(r.partial)) > 0 && r.broken == "" {
		r.line(r.partial)
	}
	out := harness.Reply{Conversation: r.thread, Usage: r.usage()}
	if r.total != nil {
		out.State, _ = json.Marshal(state{Thread: r.thread, Total: *r.total})
	}
	switch {
	case r.broken != "":
		return out, failed(exitCode, "Codex broke its protocol: %s", r.broken)
	case r.last == "turn.failed":
		return out, judge(exitCode, r.message)
	case r.last == "" && r.asked != "" && r.thread == "" && strings.Contains(stderrTail, "no rollout found"):
		return out, fmt.Errorf("there is no thread %s: %w", r.asked, harness.ErrConversationLost)
	case r.last == "" && exitCode != 0 && r.notice != "" && r.thread == "":
		return out, judge(exitCode, r.notice)
	case r.last == "" && exitCode != 0:
		return out, failed(exitCode, "Codex exited with status %d%s", exitCode, said(stderrTail))
	case r.last == "":
		return out, failed(exitCode, "Codex exited with status 0 without having ended its turn%s", said(stderrTail))
	case exitCode != 0:
		return out, failed(exitCode, "Codex ended its turn and then exited with status %d%s", exitCode, said(stderrTail))
	}
	out.Text = r.reply
	return out, nil
}
