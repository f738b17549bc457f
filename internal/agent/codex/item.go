package codex

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/laufwerk/laufwerk/internal/agent"
)

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
