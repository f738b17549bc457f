package codex

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/lazyregexp"
)

// reader reads the events of one turn. What they say is the agent's: only their order is relied on.
type reader struct {
	agent.Lines
	resumedThread string // the thread that was to be continued
	before        state

	thread  string
	began   bool // turn.started
	last    string
	message string // of turn.failed
	notice  string // the last error that was no end
	reply   string
	total   *tokens
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
func (*Program) Reader(t agent.Turn) agent.Reader {
	r := &reader{resumedThread: t.Conversation}
	r.Lines = agent.NewLines(r.line)
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

func (r *reader) line(b []byte) []agent.Event {
	var l line
	if b[0] != '{' || json.Unmarshal(b, &l) != nil || l.Type == "" {
		r.Fail("line %d is not an event: %s", r.Number(), agent.Quote(b))
		return nil
	}
	switch {
	case r.last != "":
		r.Fail("%q comes after %q, which is the last one", l.Type, r.last)
		return nil
	case r.thread == "" && l.Type != "thread.started" && l.Type != "error":
		r.Fail("%q comes before the thread has started", l.Type)
		return nil
	}
	switch l.Type {
	case "thread.started":
		return r.startedEvents(l.ThreadID)
	case "turn.started":
		if r.began {
			r.Fail("a second turn started")
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
			r.Fail("the turn has a negative number of tokens")
			return nil
		}
		r.total = l.Usage
		return []agent.Event{{Kind: "usage", Usage: r.usage()}}
	case "turn.failed":
		r.last, r.message = l.Type, l.Error.Message
	case "error": // "Reconnecting… 2/5": no end
		r.notice = l.Message
		return []agent.Event{{Kind: "notice", Text: l.Message}}
	}
	return nil // what newer versions say in addition
}

func (r *reader) startedEvents(id string) []agent.Event {
	switch {
	case r.thread != "":
		r.Fail("a second thread started")
	case !agent.IsUUID(id):
		r.Fail("expected a UUID as the thread's id, got %s", agent.Quote([]byte(id)))
	case r.resumedThread != "" && id != r.resumedThread:
		r.Fail("it continued the thread %s instead of %s", id, r.resumedThread)
	default:
		r.thread = id
		return []agent.Event{{Kind: "conversation", Text: id}}
	}
	return nil
}

// usage is what this turn added, and what turns added that were cut before it.
func (r *reader) usage() *agent.Usage {
	if r.total == nil {
		return nil
	}
	was := r.before.Total
	if r.before.Thread != r.thread || was.Input > r.total.Input || was.Cached > r.total.Cached || was.Output > r.total.Output || was.Reasoning > r.total.Reasoning {
		was = tokens{}
	}
	return &agent.Usage{
		Input: r.total.Input - was.Input, Cached: r.total.Cached - was.Cached,
		Output: r.total.Output - was.Output, Reasoning: r.total.Reasoning - was.Reasoning,
	}
}

// End judges the turn.
func (r *reader) End(exitCode int, stderrTail string) (agent.Reply, error) {
	broken := r.Close()
	out := agent.Reply{Conversation: r.thread, Usage: r.usage()}
	if r.total != nil {
		out.State, _ = json.Marshal(state{Thread: r.thread, Total: *r.total})
	}
	switch {
	case broken != "":
		return out, agentError(exitCode, "Codex broke its protocol: %s", broken)
	case r.last == "turn.failed":
		return out, judge(exitCode, r.message)
	case r.last == "" && r.resumedThread != "" && r.thread == "" && strings.Contains(stderrTail, "no rollout found"):
		return out, fmt.Errorf("there is no thread %s: %w", r.resumedThread, agent.ErrConversationLost)
	case r.last == "" && exitCode != 0 && r.notice != "" && r.thread == "":
		return out, judge(exitCode, r.notice)
	case r.last == "" && exitCode != 0:
		return out, agentError(exitCode, "Codex exited with status %d%s", exitCode, stderrText(stderrTail))
	case r.last == "":
		return out, agentError(exitCode, "Codex exited with status 0 without having ended its turn%s", stderrText(stderrTail))
	case exitCode != 0:
		return out, agentError(exitCode, "Codex ended its turn and then exited with status %d%s", exitCode, stderrText(stderrTail))
	}
	out.Text = r.reply
	return out, nil
}

// cause is a reason outside of the turn for which Codex gave up. The turn can go on once it was mended.
type cause struct {
	says lazyregexp.Regexp // in Codex's message
	what string
	hint string
}

// later is the hint where only time helps.
const later = "laufwerk resume RUN   # later: the turn continues"

// causes are recognised by words, since Codex 0.171 says nothing else in its events. What is not recognised is the agent's
// own failure.
var causes = [...]cause{
	{lazyregexp.Regexp{Pattern: `(?i)usage limit|quota exceeded|insufficient_quota|out of credits|spend cap`}, "the subscription's limit is reached", later},
	{lazyregexp.Regexp{Pattern: `(?i)\b401\b|refresh.{0,20} token|could not be refreshed|log ?out and (sign|log) in|sign in again|not logged in|authentication (is )?required|token.*(expired|revoked)|\b403 forbidden`}, "the model server does not accept the login", "codex login\nlaufwerk resume RUN"},
	{lazyregexp.Regexp{Pattern: `(?i)\b429\b|too many requests|rate limit`}, "the model server limits the rate of requests", later},
	{lazyregexp.Regexp{Pattern: `(?i)high demand|at capacity|overloaded|\b50[0-9]\b|\b529\b|internal server error|bad gateway|unavailable`}, "the model server fails", later},
	{lazyregexp.Regexp{Pattern: `(?i)idle timeout|stream (disconnected|closed)|error sending request|connection (refused|reset|failed)|waiting for network|timed? ?out|dns error|network error|request failed`}, "the model server cannot be reached", "laufwerk resume RUN   # when the network works again: the turn continues"},
}

func judge(exitCode int, message string) error {
	message = strings.TrimSpace(message)
	if message == "" {
		return agentError(exitCode, "Codex failed without a reason")
	}
	for i := range causes {
		c := &causes[i]
		if c.says.MatchString(message) {
			return failure.New(failure.NotReady, "%s: Codex says: %s", c.what, tail(message, quoteLimit)).WithHint("%s", c.hint)
		}
	}
	return agentError(exitCode, "Codex failed: %s", tail(message, quoteLimit))
}

func agentError(exitCode int, format string, args ...any) error {
	return failure.New(failure.AgentFailed, format, args...).WithField("exitCode", exitCode)
}

// quoteLimit is how much of a program's words is repeated in a message, in bytes.
const quoteLimit = 600

func stderrText(stderr string) string {
	if stderr = strings.TrimSpace(stderr); stderr == "" {
		return " and printed nothing"
	}
	return ": " + tail(stderr, quoteLimit)
}

// item is a part of a turn; Type says which fields count.
type item struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Message  string `json:"message"`
	Command  string `json:"command"`
	Output   string `json:"aggregated_output"`
	ExitCode *int   `json:"exit_code"`
	Status   string `json:"status"`
	Query    string `json:"query"`
	Server   string `json:"server"`
	Tool     string `json:"tool"`
	Changes  []struct {
		Path string `json:"path"`
		Kind string `json:"kind"`
	} `json:"changes"`
}

// action is what the event log keeps of an item: the end of its output only.
type action struct {
	Type     string       `json:"type"`
	Phase    string       `json:"phase"` // started, completed
	Command  string       `json:"command,omitempty"`
	ExitCode *int         `json:"exitCode,omitempty"`
	Status   string       `json:"status,omitempty"`
	Output   string       `json:"output,omitempty"`
	Paths    []fileChange `json:"paths,omitempty"`
}

type fileChange struct {
	Path string `json:"path"`
	Kind string `json:"kind"`
}

// Bounds of what an event repeats, in bytes and paths.
const (
	keptOutput = 2 << 10
	keptText   = 400
	keptPaths  = 50
)

// event is an item as people follow it. Only commands are told twice: they are what takes time.
func (i item) event(kind string) []agent.Event {
	done := kind == "item.completed"
	switch i.Type {
	case "agent_message":
		if done {
			return []agent.Event{{Kind: "message", Text: i.Text}}
		}
	case "reasoning":
		if done {
			return []agent.Event{{Kind: "reasoning", Text: i.Text}}
		}
	case "error": // a warning: the turn goes on
		return []agent.Event{{Kind: "notice", Text: i.Message}}
	case "command_execution":
		if kind == "item.updated" {
			return nil
		}
		text := "$ " + firstLine(i.Command)
		a := action{Type: i.Type, Phase: "started", Command: head(i.Command, keptOutput), Status: i.Status}
		if done {
			a.Phase, a.ExitCode, a.Output = "completed", i.ExitCode, tail(i.Output, keptOutput)
			if i.ExitCode != nil {
				text += fmt.Sprintf(" → exit %d", *i.ExitCode)
			}
		}
		return actionEvent(text, a)
	case "file_change":
		if !done {
			return nil
		}
		a := action{Type: i.Type, Phase: "completed", Status: i.Status}
		var names []string
		for n, c := range i.Changes {
			if n == keptPaths {
				names = append(names, fmt.Sprintf("and %d more", len(i.Changes)-n))
				break
			}
			a.Paths = append(a.Paths, fileChange{Path: c.Path, Kind: c.Kind})
			names = append(names, c.Kind+" "+c.Path)
		}
		return actionEvent(strings.Join(names, ", "), a)
	case "web_search", "mcp_tool_call":
		if !done {
			return nil
		}
		text := "search: " + firstLine(i.Query)
		if i.Type == "mcp_tool_call" {
			text = "tool: " + firstLine(i.Server+"/"+i.Tool)
		}
		return actionEvent(text, action{Type: i.Type, Phase: "completed", Status: i.Status})
	}
	return nil
}

func actionEvent(text string, a action) []agent.Event {
	b, err := json.Marshal(a)
	if err != nil {
		return nil
	}
	return []agent.Event{{Kind: "action", Text: text, Payload: b}}
}

func firstLine(s string) string {
	s, _, more := strings.Cut(strings.TrimSpace(s), "\n")
	if more {
		s += " …"
	}
	return head(s, keptText)
}

func head(s string, n int) string {
	if len(s) > n {
		s = strings.ToValidUTF8(s[:n], "") + "…"
	}
	return s
}

func tail(s string, n int) string {
	if len(s) > n {
		s = "…" + strings.ToValidUTF8(s[len(s)-n:], "")
	}
	return s
}
