package codex

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/failure"
)

const (
	thread    = `{"type":"thread.started","thread_id":"01a2286d-63f4-7870-8060-b2e9c0a7cad7"}`
	other     = `{"type":"thread.started","thread_id":"01a2286d-63f4-7870-8060-b2e9c0a7cad8"}`
	started   = `{"type":"turn.started"}`
	reconnect = `{"type":"error","message":"Reconnecting... 2/5 (stream disconnected)"}`
	message   = `{"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":"hello"}}`
	better    = `{"type":"item.completed","item":{"id":"item_1","type":"agent_message","text":"bye"}}`
	completed = `{"type":"turn.completed","usage":{"input_tokens":30,"cached_input_tokens":5,"output_tokens":7,"reasoning_output_tokens":1}}`
	gave      = `{"type":"turn.failed","error":{"message":"context window exceeded"}}`
	limited2  = `{"type":"turn.failed","error":{"message":"You've hit your usage limit."}}`
	unknown   = `{"type":"item.completed","item":{"id":"item_9","type":"hologram"}}`
	newer     = `{"type":"turn.paused","why":"no reason"}`
)

func TestEnds(t *testing.T) {
	cases := map[string]struct {
		lines  []string
		asked  string
		exit   int
		stderr string
		kind   failure.Kind
		says   string // of the reply or of the failure
	}{
		"whole":             {lines: []string{thread, started, reconnect, message, unknown, newer, better, completed}, says: "bye"},
		"no answer":         {lines: []string{thread, started, completed}, says: ""},
		"failed":            {lines: []string{thread, started, gave}, exit: 1, kind: failure.AgentFailed, says: "context window"},
		"limit":             {lines: []string{thread, started, limited2}, exit: 1, kind: failure.NotReady, says: "limit is reached"},
		"nothing":           {exit: 1, stderr: "bad config", kind: failure.AgentFailed, says: "status 1: bad config"},
		"cut":               {lines: []string{thread, started, message}, exit: 137, kind: failure.AgentFailed, says: "status 137"},
		"early end":         {lines: []string{thread, started, message}, kind: failure.AgentFailed, says: "without having ended its turn"},
		"exit does not fit": {lines: []string{thread, started, completed}, exit: 101, kind: failure.AgentFailed, says: "then exited with status 101"},
		"after the end":     {lines: []string{thread, started, completed, message}, kind: failure.AgentFailed, says: "comes after"},
		"two ends":          {lines: []string{thread, started, completed, gave}, exit: 1, kind: failure.AgentFailed, says: "comes after"},
		"two starts":        {lines: []string{thread, thread, started, completed}, kind: failure.AgentFailed, says: "second thread"},
		"two turns":         {lines: []string{thread, started, started, completed}, kind: failure.AgentFailed, says: "second turn"},
		"no start":          {lines: []string{started, completed}, kind: failure.AgentFailed, says: "before the thread"},
		"no JSON":           {lines: []string{thread, "hello"}, kind: failure.AgentFailed, says: "is not an event"},
		"an array":          {lines: []string{thread, "[1]"}, kind: failure.AgentFailed, says: "is not an event"},
		"no id":             {lines: []string{`{"type":"thread.started","thread_id":"--help"}`, completed}, kind: failure.AgentFailed, says: "UUID"},
		"another thread":    {lines: []string{other, started, completed}, asked: "01a2286d-63f4-7870-8060-b2e9c0a7cad7", kind: failure.AgentFailed, says: "instead of"},
		"counts backwards":  {lines: []string{thread, `{"type":"turn.completed","usage":{"input_tokens":-1}}`}, kind: failure.AgentFailed, says: "negative number of tokens"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := New().Reader(agent.Turn{Conversation: c.asked})
			r.Feed([]byte(strings.Join(c.lines, "\n")))
			reply, err := r.End(c.exit, c.stderr)
			if failure.KindOf(err) != c.kind {
				t.Fatalf("%+v, %v; want %s", reply, err, c.kind)
			}
			if err == nil && reply.Text != c.says || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%q, %v; want %q", reply.Text, err, c.says)
			}
		})
	}
	r := New().Reader(agent.Turn{Conversation: "01a2286d-63f4-7870-8060-b2e9c0a7cad7"})
	if _, err := r.End(1, "Error: thread/resume failed: no rollout found for thread id 01a2"); !errors.Is(err, agent.ErrConversationLost) {
		t.Errorf("a lost thread: %v", err)
	}
}

func TestUsageIsThatOfTheTurn(t *testing.T) {
	turn := func(state string, lines ...string) agent.Reply {
		t.Helper()
		r := New().Reader(agent.Turn{State: json.RawMessage(state)})
		r.Feed([]byte(strings.Join(lines, "\n")))
		reply, err := r.End(0, "")
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	first := turn("", thread, started, completed)
	if *first.Usage != (agent.Usage{Input: 30, Cached: 5, Output: 7, Reasoning: 1}) {
		t.Errorf("first %+v", first.Usage)
	}
	more := strings.NewReplacer(":30,", ":100,", ":7,", ":9,").Replace(completed)
	if second := turn(string(first.State), thread, started, more); *second.Usage != (agent.Usage{Input: 70, Output: 2}) {
		t.Errorf("second %+v", second.Usage)
	}
	if anew := turn(string(first.State), other, started, more); anew.Usage.Input != 100 {
		t.Errorf("another thread begins anew: %+v", anew.Usage)
	}
}

func TestALineThatIsTooLong(t *testing.T) {
	r := New().Reader(agent.Turn{})
	r.Feed([]byte(thread + "\n"))
	chunk := []byte(strings.Repeat("x", 1<<20))
	for range 20 {
		r.Feed(chunk)
	}
	if _, err := r.End(0, ""); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("%v", err)
	}
}

// However the stream is split, and whatever is in it, the reader says the same and does not fail.
func TestAnyStreamInAnyPieces(t *testing.T) {
	lines := []string{thread, other, started, reconnect, message, better, completed, gave, unknown, "", "{", `{"type":"item.completed","item":{"type":"file_change","changes":[{"path":"a","kind":"add"}]}}`}
	rapid.Check(t, func(t *rapid.T) {
		stream := strings.Join(rapid.SliceOfN(rapid.SampledFrom(lines), 0, 8).Draw(t, "lines"), "\n")
		whole, pieces := New().Reader(agent.Turn{}), New().Reader(agent.Turn{})
		want := whole.Feed([]byte(stream))
		var got []agent.Event
		for rest := stream; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			got = append(got, pieces.Feed([]byte(rest[:n]))...)
			rest = rest[n:]
		}
		a, aErr := whole.End(0, "")
		b, bErr := pieces.End(0, "")
		x, _ := json.Marshal([]any{want, a})
		y, _ := json.Marshal([]any{got, b})
		if string(x) != string(y) || (aErr == nil) != (bErr == nil) {
			t.Fatalf("%s %v\n%s %v", x, aErr, y, bErr)
		}
	})
}
