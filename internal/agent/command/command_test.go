package command

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/failure"
)

const id = "0190b5a0-9c5a-7cc2-8f5c-0a1b2c3d4e5f"

func normal(t *testing.T, given string) json.RawMessage {
	t.Helper()
	o, err := New(nil).Validate(json.RawMessage(given))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestValidate(t *testing.T) {
	for _, c := range []struct{ given, path, message string }{
		{`{"command":["agent"]}`, "", ""},
		{`{"command":["agent","--x",""],"protocol":"json","env":{"A":"1","B":{"fromHost":"C"}}}`, "", ""},
		{`{}`, "command", "expected a list of strings, the program and its arguments, got nothing"},
		{`{"command":"agent"}`, "command", `got "agent"`},
		{`{"command":[]}`, "command", "got no program"},
		{`{"command":[""]}`, "command", "got no program"},
		{`{"command":["a",2]}`, "command[1]", "expected a string, got 2"},
		{`{"command":["a","b\u0000"]}`, "command[1]", "no NUL"},
		{`{"command":["a"],"protocol":"xml"}`, "protocol", `expected "text" or "json", got "xml"`},
		{`{"command":["a"],"protocoll":"json"}`, "protocoll", "did you mean `protocol`?"},
		{`{"command":["a"],"env":{"OPENAI_API_KEY":"x"}}`, "env.OPENAI_API_KEY", "billing"},
		{`7`, "", "expected an object, got 7"},
	} {
		got, err := New(nil, "OPENAI_API_KEY").Validate(json.RawMessage(c.given))
		if c.message == "" {
			again, err2 := New(nil).Validate(got)
			if err != nil || err2 != nil || string(again) != string(got) {
				t.Errorf("%s: %v; the normalised form changed: %s %v", c.given, err, again, err2)
			}
			continue
		}
		f := failure.As(err)
		if f == nil || len(f.Paths) != 1 || f.Paths[0] != c.path || !strings.Contains(f.Message, c.message) {
			t.Errorf("%s: %v at %v", c.given, err, f)
		}
	}
}

func TestTurn(t *testing.T) {
	h := New(map[string]string{"HOST": "h"})
	text := normal(t, `{"command":["agent","-x"],"env":{"A":"1","B":{"fromHost":"HOST"}}}`)
	lines := normal(t, `{"command":["agent"],"protocol":"json"}`)
	for _, c := range []struct {
		name  string
		turn  agent.Turn
		stdin string
	}{
		{"text", agent.Turn{Options: text, Prompt: "do it\n"}, "do it\n"},
		{"instructions", agent.Turn{Options: text, Prompt: "do", Instructions: "be kind"}, "be kind\n\ndo"},
		{"json", agent.Turn{Options: lines, Prompt: "a\n\"b\"", Conversation: id, Schema: json.RawMessage(`{"type":"string"}`)},
			`{"prompt":"a\n\"b\"","conversation":"` + id + `","output":{"type":"string"}}` + "\n"},
		{"json, first", agent.Turn{Options: lines, Prompt: "a"}, `{"prompt":"a"}` + "\n"},
	} {
		got, err := h.Turn(c.turn)
		if err != nil || string(got.Stdin) != c.stdin {
			t.Errorf("%s: %q %v", c.name, got.Stdin, err)
		}
	}
	got, err := h.Turn(agent.Turn{Options: text, Prompt: "do", Continued: true, Schema: json.RawMessage(`{"type":"array"}`)})
	if err != nil || !slices.Equal(got.Argv, []string{"agent", "-x"}) || !slices.Equal(got.Env, []string{"A=1", "B=h"}) {
		t.Fatalf("%+v %v", got, err)
	}
	for _, want := range []string{"cut off", "\n\ndo\n\n", `{"type":"array"}`} {
		if !strings.Contains(string(got.Stdin), want) {
			t.Errorf("%q is not in %q", want, got.Stdin)
		}
	}
	if _, err := New(nil).Turn(agent.Turn{Options: text, Prompt: "do"}); !failure.Is(err, failure.NotReady) {
		t.Errorf("%v", err)
	}
}

func TestTextReply(t *testing.T) {
	for _, c := range []struct {
		out, stderr string
		code        int
		reply, err  string
	}{
		{"", "", 0, "", ""},
		{"hello\nworld\n\n", "noise", 0, "hello\nworld", ""},
		{"  x \r\n", "", 0, "  x ", ""},
		{"a\xffb", "", 0, "a\uFFFDb", ""},
		{"partial", "boom\n", 3, "", "agent exited with status 3: boom"},
		{"only this", "", 1, "", "agent exited with status 1: only this"},
		{"", "", 137, "", "agent exited with status 137 and printed nothing"},
		{"", strings.Repeat("x", 1000), 1, "", "…x"},
		{strings.Repeat("x", maxReply+1), "", 0, "", "longer than 16777216 bytes"},
	} {
		r := New(nil).Reader(agent.Turn{Options: normal(t, `{"command":["agent"]}`)})
		for _, b := range [][]byte{[]byte(c.out)[:len(c.out)/2], []byte(c.out)[len(c.out)/2:]} {
			if ev := r.Feed(b); len(ev) > 0 {
				t.Errorf("events %v", ev)
			}
		}
		got, err := r.End(c.code, c.stderr)
		check(t, c.out, got.Text, c.reply, err, c.err)
	}
}

func check(t *testing.T, what, reply, want string, err error, wantErr string) {
	t.Helper()
	if len(what) > 200 {
		what = what[:200]
	}
	switch {
	case wantErr == "" && (err != nil || reply != want):
		t.Errorf("%q: %q, want %q (%v)", what, reply, want, err)
	case wantErr != "" && (!failure.Is(err, failure.AgentFailed) || !strings.Contains(err.Error(), wantErr)):
		t.Errorf("%q: %v, want %q", what, err, wantErr)
	}
}

func TestJSONLines(t *testing.T) {
	const (
		conv = `{"type":"conversation","id":"` + id + `"}`
		done = `{"type":"done"}`
		msg  = `{"type":"message","text":"hi"}`
	)
	long := strings.Repeat("ä", 300<<10)
	for _, c := range []struct {
		out   []string
		code  int
		reply string
		err   string
	}{
		{[]string{done}, 0, "", ""},
		{[]string{conv, msg, `{"type":"message","text":"last"}`, done}, 0, "last", ""},
		{[]string{conv, conv, "", " \t\r", msg, done, "", " "}, 0, "hi", ""},
		{[]string{`{"type":"message","text":"` + long + `"}`, done}, 0, long, ""},
		{[]string{`{"type":"message","text":"","extra":[1]}`, done}, 0, "", ""},
		{nil, 0, "", `without a last line {"type":"done"}`},
		{[]string{msg}, 0, "", "without a last line"},
		{[]string{msg}, 7, "", "agent exited with status 7: oops"},
		{[]string{msg, done}, 7, "", "reported that it was done and then exited with status 7"},
		{[]string{`{"type":"failed","message":"no luck"}`}, 0, "", "agent failed: no luck"},
		{[]string{`{"type":"failed","message":"no luck"}`}, 1, "", "agent failed: no luck"},
		{[]string{`{"type":"failed"}`}, 1, "", "it gave no reason"},
		{[]string{done, done}, 0, "", `line 2 comes after "done"`},
		{[]string{done, msg}, 0, "", `line 2 comes after "done"`},
		{[]string{`{"type":"failed","message":"x"}`, done}, 0, "", `line 2 comes after "failed"`},
		{[]string{"hello <b>", done}, 0, "", `line 1 is not a JSON object of the protocol: "hello <b>"`},
		{[]string{"[1]", done}, 0, "", "line 1 is not a JSON object"},
		{[]string{"null", done}, 0, "", "line 1 is not a JSON object"},
		{[]string{`{"type":"message"}`, done}, 0, "", "line 1 is a message without text"},
		{[]string{`{"type":"message","text":3}`, done}, 0, "", "line 1 is not a JSON object"},
		{[]string{`{"type":"started"}`, done}, 0, "", `line 1 has the unknown type "started"`},
		{[]string{`{"type":"conversation","id":"--resume"}`, done}, 0, "", `expected a UUID as the id of the conversation, got "--resume"`},
		{[]string{`{"type":"conversation"}`, done}, 0, "", "expected a UUID"},
		{[]string{`{"type":"conversation","id":"` + id + `\n"}`, done}, 0, "", "expected a UUID"},
		{[]string{conv, `{"type":"conversation","id":"1190b5a0-9c5a-7cc2-8f5c-0a1b2c3d4e5f"}`, done}, 0, "", "line 2 names a second conversation"},
		{[]string{`{"type":"usage","inputTokens":-1}`, done}, 0, "", "negative number of tokens"},
		{[]string{"junk"}, 9, "", "agent exited with status 9: oops; its output broke the protocol: line 1"},
	} {
		for _, size := range []int{1, 7, 1 << 20} {
			if size == 1 && len(c.out) > 0 && len(c.out[0]) > 10000 {
				continue
			}
			for _, end := range []string{"\n", ""} {
				r := New(nil).Reader(agent.Turn{Options: normal(t, `{"command":["agent"],"protocol":"json"}`)})
				out := strings.Join(c.out, "\n")
				if out != "" {
					out += end
				}
				for b := []byte(out); len(b) > 0; b = b[min(size, len(b)):] {
					r.Feed(slices.Clone(b[:min(size, len(b))]))
				}
				got, err := r.End(c.code, "oops\n")
				check(t, fmt.Sprintf("%d %q %s", size, end, out), got.Text, c.reply, err, c.err)
			}
		}
	}
}

func TestJSONEvents(t *testing.T) {
	r := New(nil).Reader(agent.Turn{Options: normal(t, `{"command":["agent"],"protocol":"json"}`), Conversation: "1190b5a0-9c5a-7cc2-8f5c-0a1b2c3d4e5f"})
	u := &agent.Usage{Input: 5, Cached: 2, Output: 7, Reasoning: 1}
	var got []agent.Event
	for _, chunk := range []string{`{"type":"conversation","id":"` + id + `"}` + "\n" + `{"type":"mess`, `age","text":"a"}` + "\n", `{"type":"usage","inputTokens":5,"cachedInputTokens":2,"outputTokens":7,"reasoningOutputTokens":1}` + "\n" + `{"type":"failed","message":"no"}`} {
		got = append(got, r.Feed([]byte(chunk))...)
	}
	want := []agent.Event{{Kind: "conversation", Text: id}, {Kind: "message", Text: "a"}, {Kind: "usage", Usage: u}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	reply, err := r.End(1, "")
	if err == nil || reply.Conversation != id || !reflect.DeepEqual(reply.Usage, u) {
		t.Errorf("a failed turn keeps conversation and usage: %+v %v", reply, err)
	}
}

func TestAConversationThatIsNotNamedAgainIsKept(t *testing.T) {
	r := New(nil).Reader(agent.Turn{Options: normal(t, `{"command":["agent"],"protocol":"json"}`), Conversation: id})
	r.Feed([]byte(`{"type":"done"}`))
	if reply, err := r.End(0, ""); err != nil || reply.Conversation != id {
		t.Errorf("%+v %v", reply, err)
	}
}
