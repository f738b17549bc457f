package codex

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/testkit"
)

// hang bounds a turn that does not end.
const hang = 90 * time.Second

// station is a workspace and a home for turns of the real Codex against the model server.
type station struct {
	t       *testing.T
	model   *testkit.Model
	binary  string
	work    string
	home    string
	secrets []string
	env     []string
	stdout  []byte
}

func newStation(t *testing.T, steps ...testkit.Step) *station {
	t.Helper()
	s := &station{t: t, binary: testkit.CodexBinary(t), model: testkit.NewModel(t, steps...), work: t.TempDir(), home: t.TempDir()}
	login, secrets := testkit.CodexLogin("canary", time.Now().Add(time.Hour))
	s.secrets = secrets
	s.write(filepath.Join(s.home, "auth.json"), string(login))
	s.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "DATABASE_PASSWORD_TOKEN=canary-variable", "LAUFWERK_MARK=s/o",
		"CODEX_REFRESH_TOKEN_URL_OVERRIDE=" + s.model.URL + "/oauth/token"}
	return s
}

func (s *station) write(path, content string) {
	s.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// options point Codex at the model server, as a user could with any server that takes ChatGPT's logins.
func (s *station) options(more map[string]any) json.RawMessage {
	s.t.Helper()
	return optionsFor(s.t, s.model.URL, more)
}

func optionsFor(t *testing.T, url string, more map[string]any) json.RawMessage {
	t.Helper()
	config := map[string]any{
		"model_provider": "loop", "model_providers.loop.name": "loop", "model_providers.loop.base_url": url + "/backend-api/codex",
		"model_providers.loop.requires_openai_auth": true, "chatgpt_base_url": url + "/backend-api/",
	}
	given := map[string]any{"model": "gpt-5.5", "config": config}
	for k, v := range more {
		if c, ok := v.(map[string]any); ok && k == "config" {
			for k, v := range c {
				config[k] = v
			}
			continue
		}
		given[k] = v
	}
	b, _ := json.Marshal(given)
	normal, err := New().Validate(b)
	if err != nil {
		t.Fatal(err)
	}
	return normal
}

// turn runs one turn.
func (s *station) turn(t agent.Turn) (agent.Reply, []agent.Event, error) {
	s.t.Helper()
	cmd, reader := s.command(t)
	return s.finish(cmd, reader)
}

func (s *station) command(t agent.Turn) (*exec.Cmd, agent.Reader) {
	s.t.Helper()
	t.Binary, t.Home, t.Workdir = s.binary, s.home, s.work
	if t.Options == nil {
		t.Options = s.options(nil)
	}
	if t.PermissionMode == "" {
		t.PermissionMode = agent.AllowAll
	}
	c, err := New().Turn(t)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range c.Files {
		s.write(filepath.Join(s.home, f.Path), string(f.Content))
	}
	cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdin = s.work, append(s.env, c.Env...), bytes.NewReader(c.Stdin)
	return cmd, New().Reader(t)
}

func (s *station) finish(cmd *exec.Cmd, reader agent.Reader) (agent.Reply, []agent.Event, error) {
	s.t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	stop := time.AfterFunc(hang, func() { _ = cmd.Process.Kill() })
	defer stop.Stop()
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	s.stdout = out.Bytes()
	s.t.Logf("exit %d\n%s\n%s", cmd.ProcessState.ExitCode(), limited(out.String()), limited(errs.String()))
	events := reader.Feed(out.Bytes())
	reply, err := reader.End(cmd.ProcessState.ExitCode(), errs.String())
	return reply, events, err
}

func limited(s string) string {
	if len(s) > 4000 {
		return s[:2000] + "\n…\n" + s[len(s)-2000:]
	}
	return s
}

func TestTurnsOfTheRealCodex(t *testing.T) {
	s := newStation(t,
		testkit.Think("looking", testkit.Shell("env > env.txt; cat hello.txt")),
		testkit.Patch("*** Begin Patch\n*** Add File: new.txt\n+hello\n*** Delete File: hello.txt\n*** End Patch\n"),
		testkit.Say("first"), testkit.Say(`{"answer":42}`))
	s.write(filepath.Join(s.work, "hello.txt"), "hello\n")
	s.write(filepath.Join(strings.TrimPrefix(s.env[1], "HOME="), ".profile"), "export FROM_PROFILE=canary\n")
	s.write(filepath.Join(strings.TrimPrefix(s.env[1], "HOME="), ".bashrc"), "export FROM_RC=canary\n")
	schema := json.RawMessage(`{"type":"object","properties":{"answer":{"type":"number"}},"required":["answer"],"additionalProperties":false}`)

	first, events, err := s.turn(agent.Turn{Prompt: "do it", Instructions: "be \"terse\"\n\tand kind\u007f", Options: s.options(map[string]any{"reasoningEffort": "high"})})
	if err != nil || first.Text != "first" || !agent.IsUUID(first.Conversation) {
		t.Fatalf("reply %+v, %v", first, err)
	}
	want := agent.Usage{Input: 3 * testkit.InputTokens, Cached: 3 * testkit.CachedTokens, Output: 3 * testkit.OutputTokens, Reasoning: 3 * testkit.ReasoningTokens}
	if first.Usage == nil || *first.Usage != want {
		t.Errorf("usage %+v, want %+v", first.Usage, want)
	}
	kinds := map[string]int{}
	for _, e := range events {
		kinds[e.Kind]++
	}
	if kinds["conversation"] != 1 || kinds["action"] != 3 || kinds["message"] != 1 || kinds["reasoning"] != 1 || kinds["usage"] != 1 {
		t.Errorf("events %v", events)
	}

	second, _, err := s.turn(agent.Turn{Prompt: "again", Conversation: first.Conversation, State: first.State, Schema: schema})
	if err != nil || second.Text != `{"answer":42}` || second.Conversation != first.Conversation {
		t.Fatalf("reply %+v, %v", second, err)
	}
	if second.Usage == nil || second.Usage.Input != testkit.InputTokens || second.Usage.Output != testkit.OutputTokens {
		t.Errorf("the second turn cost %+v", second.Usage)
	}

	sent := s.model.Requests("")
	if len(sent) != 4 || len(s.model.Threads()) != 1 {
		t.Fatalf("%d requests of %v", len(sent), s.model.Threads())
	}
	for i, r := range sent {
		if r.Auth != "Bearer "+s.secrets[1] {
			t.Errorf("request %d has the authorization %q", i, r.Auth)
		}
		for _, secret := range append(s.secrets, "canary-variable") {
			if strings.Contains(r.Raw, secret) {
				t.Errorf("a secret is in the body of request %d", i)
			}
		}
		if strings.Contains(r.Raw, `"web_search"`) {
			t.Errorf("request %d offers a web search", i)
		}
	}
	if !strings.Contains(sent[0].Raw, `be \"terse\"\n\tand kind`) {
		t.Error("the instructions were not sent")
	}
	if effort := sent[0].Body["reasoning"].(map[string]any)["effort"]; effort != "high" {
		t.Errorf("effort %v", effort)
	}
	format, _ := sent[3].Body["text"].(map[string]any)["format"].(map[string]any)
	if got, _ := json.Marshal(format["schema"]); !sameJSON(got, schema) {
		t.Errorf("schema %s", got)
	}
	env, err := os.ReadFile(filepath.Join(s.work, "env.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, kept := range []string{"PATH=", "LAUFWERK_MARK=s/o", "HOME="} {
		if !strings.Contains(string(env), kept) {
			t.Errorf("tools do not see %s", kept)
		}
	}
	for _, hidden := range []string{"canary", "CODEX_HOME", "CODEX_REFRESH"} {
		if strings.Contains(string(env), hidden) {
			t.Errorf("tools see %s:\n%s", hidden, env)
		}
	}
	if b, err := os.ReadFile(filepath.Join(s.work, "new.txt")); err != nil || string(b) != "hello\n" {
		t.Errorf("the patch: %q, %v", b, err)
	}
	for _, o := range s.model.Other() {
		t.Logf("also asked for: %s", o)
	}
}

func sameJSON(a, b []byte) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	p, _ := json.Marshal(x)
	q, _ := json.Marshal(y)
	return bytes.Equal(p, q)
}

func TestWebSearchIsOfferedWhereItIsAsked(t *testing.T) {
	s := newStation(t, testkit.Say("ok"))
	if _, _, err := s.turn(agent.Turn{Prompt: "x", Options: s.options(map[string]any{"webSearch": true})}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(s.model.Requests("")[0].Raw, `"web_search"`) {
		t.Error("the request offers no web search")
	}
}

// What Codex tells the model of skills that were put into its home: enough to read them.
func TestSkillsAreOfferedToTheModel(t *testing.T) {
	s := newStation(t, testkit.Say("ok"))
	skill := agent.Skill{
		Name: "release-notes", Description: `For "release notes": what they hold`, Content: "Write xylophone.\n",
		Files: map[string]string{"scripts/list.sh": "#!/bin/sh\necho list\n", "example.md": "e\n"},
	}
	if _, _, err := s.turn(agent.Turn{Prompt: "x", Skills: []agent.Skill{skill}}); err != nil {
		t.Fatal(err)
	}
	sent := s.model.Requests("")[0].Raw
	at := filepath.Join(s.home, "skills/release-notes/SKILL.md")
	for _, want := range []string{"release-notes", `For \"release notes\": what they hold`, "release-notes/SKILL.md", filepath.Join(s.home, "skills")} {
		if !strings.Contains(sent, want) {
			t.Errorf("the request does not say %q", want)
		}
	}
	if strings.Contains(sent, "xylophone") {
		t.Error("the skill is sent whole")
	}
	for name, want := range map[string]string{
		at: "---\nname: release-notes\ndescription: \"For \\\"release notes\\\": what they hold\"\n---\n\nWrite xylophone.\n",
		filepath.Join(filepath.Dir(at), "scripts/list.sh"): "#!/bin/sh\necho list\n",
	} {
		if b, err := os.ReadFile(name); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}
