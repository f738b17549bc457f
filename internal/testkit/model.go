package testkit

import (
	"cmp"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Model is a model server that speaks as much of OpenAI's Responses API (server-sent events) as Codex needs. It plays a
// script: every conversation gets the same steps, one for each of its requests, whatever it sends.
//
// It serves {URL}/v1 and, as ChatGPT does, {URL}/backend-api/codex. Codex's requests name the conversation in the header
// thread-id; their bodies are kept.
type Model struct {
	URL string

	mu       sync.Mutex
	scripts  [][]Step // of the first conversation, the second, and all further ones
	requests []Request
	other    []string // further paths that were asked for
	server   *httptest.Server
	closing  chan struct{}
}

// Request is one request for a response.
type Request struct {
	Thread string
	Auth   string // the header Authorization
	Body   map[string]any
	Raw    string
	Path   string
}

// Step is the answer to one request.
type Step struct {
	items []map[string]any
	usage map[string]any
	gate  <-chan struct{}
	fault func(w http.ResponseWriter, gone <-chan struct{})
}

// NewModel starts a server that plays steps; it ends with the test.
func NewModel(t testing.TB, steps ...Step) *Model {
	t.Helper()
	return NewModelAt(t, "127.0.0.1:0", steps...)
}

// NewModelAt is NewModel at an address.
func NewModelAt(t testing.TB, address string, steps ...Step) *Model {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return newModel(t, l, nil, steps)
}

// NewTLSModelAt is NewModelAt with TLS, for clients elsewhere, who have to trust the certificate, which is PEM.
func NewTLSModelAt(t testing.TB, host string, steps ...Step) (m *Model, certificate []byte) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	pair, certificate := selfSigned(t, host)
	return newModel(t, l, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, steps), certificate
}

func newModel(t testing.TB, l net.Listener, with *tls.Config, steps []Step) *Model {
	m := &Model{scripts: [][]Step{steps}, closing: make(chan struct{})}
	m.server = &httptest.Server{Listener: l, TLS: with, Config: &http.Server{Handler: http.HandlerFunc(m.serve), ErrorLog: log.New(io.Discard, "", 0)}}
	if with == nil {
		m.server.Start()
	} else {
		m.server.StartTLS()
	}
	m.URL = m.server.URL
	t.Cleanup(func() {
		close(m.closing)
		m.server.CloseClientConnections()
		m.server.Close()
	})
	return m
}

// Play replaces the script. Conversations that are under way go on where they are, by the number of their requests.
func (m *Model) Play(steps ...Step) { m.PlayEach(steps) }

// PlayEach is Play with one script for the first conversation, one for the second and so on; the last is that of all further
// ones.
func (m *Model) PlayEach(scripts ...[]Step) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.scripts = scripts
}

// Requests are those for responses, in order; of one conversation where thread is not "".
func (m *Model) Requests(thread string) []Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Request
	for _, r := range m.requests {
		if thread == "" || r.Thread == thread {
			out = append(out, r)
		}
	}
	return out
}

// Threads counts the requests of each conversation.
func (m *Model) Threads() map[string]int {
	n := map[string]int{}
	for _, r := range m.Requests("") {
		n[r.Thread]++
	}
	return n
}

// Other are the requests for anything but a response.
func (m *Model) Other() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.other)
}

func (m *Model) serve(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	switch {
	case strings.EqualFold(r.Header.Get("Upgrade"), "websocket"):
		w.WriteHeader(http.StatusUpgradeRequired) // Codex goes on with HTTP at once
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/responses"):
		m.respond(w, r, raw)
	default:
		m.mu.Lock()
		m.other = append(m.other, r.Method+" "+r.URL.Path)
		m.mu.Unlock()
		if strings.HasSuffix(r.URL.Path, "/models") {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"models":[]}`)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/wham/accounts/check") && r.Host == "chatgpt.com" { // Codex asks ChatGPT alone where an account's model is
			account := cmp.Or(r.Header.Get("Chatgpt-Account-Id"), "acct-default")
			_ = json.NewEncoder(w).Encode(map[string]any{
				"accounts": []any{map[string]any{
					"id": account, "plan_type": "plus", "structure": "personal", "workspace_backend_origin": "https://" + r.Host, "account_routing_override": "NO_CONSTRAINT",
				}},
				"account_ordering": []string{account}, "default_account_id": account,
			})
			return
		}
		http.NotFound(w, r)
	}
}

func (m *Model) respond(w http.ResponseWriter, r *http.Request, raw []byte) {
	req := Request{Thread: r.Header.Get("thread-id"), Auth: r.Header.Get("Authorization"), Raw: string(raw), Path: r.URL.Path}
	_ = json.Unmarshal(raw, &req.Body)
	if req.Thread == "" {
		req.Thread, _ = req.Body["prompt_cache_key"].(string)
	}
	m.mu.Lock()
	m.requests = append(m.requests, req)
	n, threads := 0, []string(nil)
	for _, r := range m.requests {
		if !slices.Contains(threads, r.Thread) {
			threads = append(threads, r.Thread)
		}
		if r.Thread == req.Thread {
			n++
		}
	}
	var step Step
	if script := m.scripts[min(slices.Index(threads, req.Thread), len(m.scripts)-1)]; len(script) > 0 {
		step = script[min(n, len(script))-1] // the last one is repeated
	}
	m.mu.Unlock()
	if step.gate != nil {
		select {
		case <-step.gate:
		case <-r.Context().Done():
			return
		case <-m.closing:
			return
		}
	}
	if step.fault != nil {
		step.fault(w, either(r.Context().Done(), m.closing))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, item := range step.items {
		event(w, map[string]any{"type": "response.output_item.done", "item": item})
	}
	response := map[string]any{"id": fmt.Sprintf("resp_%d", n)}
	if step.usage != nil {
		response["usage"] = step.usage
	}
	event(w, map[string]any{"type": "response.completed", "response": response})
}

func either(a, b <-chan struct{}) <-chan struct{} {
	out := make(chan struct{})
	go func() {
		select {
		case <-a:
		case <-b:
		}
		close(out)
	}()
	return out
}

func event(w http.ResponseWriter, v any) {
	b, _ := json.Marshal(v)
	fmt.Fprintf(w, "event: message\ndata: %s\n\n", b)
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
}

// Say is a message of the agent.
func Say(text string) Step {
	return Step{usage: tokens(), items: []map[string]any{{
		"type": "message", "role": "assistant", "content": []any{map[string]any{"type": "output_text", "text": text}},
	}}}
}

// Shell asks for a command.
func Shell(command string) Step { return ShellWith(map[string]any{"cmd": command}) }

// ShellWith asks for a command with further arguments of the tool.
func ShellWith(args map[string]any) Step {
	b, _ := json.Marshal(args)
	return Step{usage: tokens(), items: []map[string]any{{"type": "function_call", "call_id": "call_" + id(), "name": "exec_command", "arguments": string(b)}}}
}

// Patch asks for changes of files, in the format of apply_patch.
func Patch(patch string) Step {
	return Step{usage: tokens(), items: []map[string]any{{"type": "custom_tool_call", "call_id": "call_" + id(), "name": "apply_patch", "input": patch}}}
}

// Think is a step with a summary of reasoning before it.
func Think(summary string, then Step) Step {
	then.items = append([]map[string]any{{
		"type": "reasoning", "encrypted_content": "x", "summary": []any{map[string]any{"type": "summary_text", "text": summary}},
	}}, then.items...)
	return then
}

// Gate holds a step back until the channel is closed.
func Gate(open <-chan struct{}, then Step) Step {
	then.gate = open
	return then
}

// Tokens are what every step says it cost.
const (
	InputTokens     = 1000
	CachedTokens    = 200
	OutputTokens    = 50
	ReasoningTokens = 7
)

func tokens() map[string]any {
	return map[string]any{
		"input_tokens": InputTokens, "input_tokens_details": map[string]any{"cached_tokens": CachedTokens},
		"output_tokens": OutputTokens, "output_tokens_details": map[string]any{"reasoning_tokens": ReasoningTokens},
		"total_tokens": InputTokens + OutputTokens,
	}
}

// Status answers with an HTTP status and a body.
func Status(code int, body string) Step {
	return Step{fault: func(w http.ResponseWriter, _ <-chan struct{}) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}}
}

// APIError is an error as OpenAI's servers write it.
func APIError(code int, kind, message string) Step {
	b, _ := json.Marshal(map[string]any{"error": map[string]any{"type": kind, "code": kind, "message": message}})
	return Status(code, string(b))
}

// Hang answers nothing until the client goes away.
func Hang() Step {
	return Step{fault: func(w http.ResponseWriter, gone <-chan struct{}) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		<-gone
	}}
}

// Drop closes the connection in the middle of an answer.
func Drop() Step {
	return Step{fault: func(w http.ResponseWriter, _ <-chan struct{}) {
		w.Header().Set("Content-Type", "text/event-stream")
		event(w, map[string]any{"type": "response.created", "response": map[string]any{"id": "resp_drop"}})
		if h, ok := w.(http.Hijacker); ok {
			if c, _, err := h.Hijack(); err == nil {
				_ = c.Close()
			}
		}
	}}
}

// Refuses is an address on loopback at which nobody listens.
func Refuses(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}
