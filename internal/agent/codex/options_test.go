package codex

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/failure"
)

func TestOptions(t *testing.T) {
	good := map[string]string{
		``:   `{}`,
		`{}`: `{}`,
		`{"model":"gpt-6.2-sol","reasoningEffort":"xhigh","webSearch":true,"config":{}}`:                        `{"model":"gpt-6.2-sol","reasoningEffort":"xhigh","webSearch":true}`,
		`{"config":{"model_verbosity":"low","tool_output_token_limit":5000,"features.goals":false}}`:            `{"config":{"features.goals":false,"model_verbosity":"low","tool_output_token_limit":5000}}`,
		`{"config":{"model_provider":"mine","model_providers.mine.base_url":"https://gateway.example.com/v1"}}`: `{"config":{"model_provider":"mine","model_providers.mine.base_url":"https://gateway.example.com/v1"}}`,
		`{"config":{"openai_base_url":"http://127.0.0.1:8080/v1"}}`:                                             `{"config":{"openai_base_url":"http://127.0.0.1:8080/v1"}}`,
	}
	for given, want := range good {
		got, err := New().Validate(json.RawMessage(given))
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; want %s", given, got, err, want)
			continue
		}
		if again, err := New().Validate(got); err != nil || string(again) != want {
			t.Errorf("the normalised form %s became %s, %v", got, again, err)
		}
	}
}

func TestRefusedOptions(t *testing.T) {
	bad := []struct{ given, path, says string }{
		{`{"modell":"x"}`, "modell", "did you mean `model`"},
		{`{"model":7}`, "model", "expected the name of a model"},
		{`{"model":"-c"}`, "model", "expected the name of a model"},
		{`{"reasoningEffort":"bogus"}`, "reasoningEffort", `"high"`},
		{`{"webSearch":"yes"}`, "webSearch", "true or false"},
		{`{"config":[]}`, "config", "expected an object"},
		{`{"config":{"a":{"b":1}}}`, "config.a", "expected a string, a number or a boolean"},
		{`{"config":{"a=b":1}}`, "config", "expected names"},
		{`{"config":{"\"sandbox_mode\"":"x"}}`, "config", "expected names"},
		{`{"config":{"model":"x"}}`, "config.model", "option of its own"},
		{`{"config":{"approval_policy":"never"}}`, "config.approval_policy", "permissionMode"},
		{`{"config":{"sandbox_workspace_write.network_access":true}}`, "config.sandbox_workspace_write.network_access", "permissionMode"},
		{`{"config":{"allow_login_shell":true}}`, "config.allow_login_shell", "permissionMode"},
		{`{"config":{"shell_environment_policy.inherit":"all"}}`, "config.shell_environment_policy.inherit", "secrets"},
		{`{"config":{"projects.x.trust_level":"trusted"}}`, "config.projects.x.trust_level", "never trusted"},
		{`{"config":{"mcp_servers.x.command":"sh"}}`, "config.mcp_servers.x.command", "outside of its permissions"},
		{`{"config":{"notify":"sh"}}`, "config.notify", "outside of its permissions"},
		{`{"config":{"features.hooks":true}}`, "config.features.hooks", "switches it off"},
		{`{"config":{"features.unbounded_connection_retries":true}}`, "config.features.unbounded_connection_retries", "retried for ever"},
		{`{"config":{"forced_login_method":"api"}}`, "config.forced_login_method", "subscription"},
		{`{"config":{"profile":"x"}}`, "config.profile", "private"},
		{`{"config":{"model_provider":"amazon-bedrock"}}`, "config.model_provider", "logins of their own"},
		{`{"config":{"model_providers.x.env_key":"OPENAI_API_KEY"}}`, "config.model_providers.x.env_key", "never falls back to billing"},
		{`{"config":{"model_providers.x.experimental_bearer_token":"t"}}`, "config.model_providers.x.experimental_bearer_token", "never falls back to billing"},
		{`{"config":{"model_providers.x.http_headers.authorization":"t"}}`, "config.model_providers.x.http_headers.authorization", "never falls back to billing"},
		{`{"config":{"model_providers.x.auth.command":"sh"}}`, "config.model_providers.x.auth.command", "never falls back to billing"},
		{`{"config":{"model_providers.x.base_url":"http://example.com/v1"}}`, "config.model_providers.x.base_url", "https"},
		{`{"config":{"model_providers.x.base_url":"https://user:pass@example.com/v1"}}`, "config.model_providers.x.base_url", "https"},
		{`{"config":{"chatgpt_base_url":"http://127.0.0.1.example.com/"}}`, "config.chatgpt_base_url", "https"},
	}
	for _, c := range bad {
		_, err := New().Validate(json.RawMessage(c.given))
		f := failure.As(err)
		if f == nil || f.Kind != failure.ProjectInvalid || !slices.Contains(f.Paths, c.path) || !strings.Contains(f.Message, c.says) {
			t.Errorf("%s: %v at %v; want …%s… at %s", c.given, err, f, c.says, c.path)
		}
	}
}

func TestWhatAnAgentMayNotAsk(t *testing.T) {
	for path, a := range map[string]agent.Requirements{
		"activeTools":  {PermissionMode: agent.AllowAll, ActiveTools: []string{"x"}},
		"instructions": {PermissionMode: agent.AllowAll, Instructions: strings.Repeat("x", maxInstructions+1)},
	} {
		if f := failure.As(New().Accept(a)); f == nil || !slices.Equal(f.Paths, []string{path}) {
			t.Errorf("%s: %v", path, f)
		}
	}
	for _, mode := range []string{agent.AllowAll, agent.AllowEdits, agent.AllowReads} {
		if err := New().Accept(agent.Requirements{PermissionMode: mode, Instructions: "be kind"}); err != nil {
			t.Error(err)
		}
	}
}

// With a login of placeholders Codex's own provider is not used, and one of the user's is.
func TestProviderForPlaceholders(t *testing.T) {
	for given, want := range map[string]string{
		`{}`:                          `model_providers.chatgpt.base_url="https://chatgpt.com/backend-api/codex"`,
		`{"model_provider":"openai"}`: `model_provider="chatgpt"`,
		`{"chatgpt_base_url":"https://x.example/api/"}`:                                    `model_providers.chatgpt.base_url="https://x.example/api/codex"`,
		`{"model_provider":"mine","model_providers.mine.base_url":"https://x.example/v1"}`: `model_provider="mine"`,
	} {
		turn := agent.Turn{Options: json.RawMessage(`{"config":` + given + `}`), Prompt: "p", PermissionMode: agent.AllowAll, Binary: "/codex", Home: "/h", Workdir: "/w"}
		for _, turn.Placeholders = range []bool{false, true} {
			c, err := New().Turn(turn)
			if err != nil {
				t.Fatal(err)
			}
			mine := strings.Contains(given, "mine")
			if line := strings.Join(c.Argv, " "); strings.Contains(line, want) != (turn.Placeholders || mine) || strings.Contains(line, "model_providers.chatgpt") != (turn.Placeholders && !mine) {
				t.Errorf("%s, %t: %s", given, turn.Placeholders, line)
			}
		}
	}
}

// The rules come after what the user has set, and the conversation is no option.
func TestArguments(t *testing.T) {
	turn := agent.Turn{
		Options: json.RawMessage(`{"model":"m","config":{"a.b":"x\"y\\\n","n":1}}`), Prompt: "-p", PermissionMode: agent.AllowReads,
		Binary: "/codex", Home: "/home/x", Workdir: "/work", Conversation: "01a2286d-63f4-7870-8060-b2e9c0a7cad7", Schema: json.RawMessage(`{}`),
	}
	c, err := New().Turn(turn)
	if err != nil {
		t.Fatal(err)
	}
	line := strings.Join(c.Argv, " ")
	for _, want := range []string{
		"/codex exec --json", "-C /work", `-c a.b="x\"y\\\u000a"`, "-c n=1", "-m m", "-s read-only", "--ignore-user-config", "--ignore-rules",
		"--output-schema /home/x/output-schema.json", "features.unbounded_connection_retries=false",
	} {
		if !strings.Contains(line, want) {
			t.Errorf("no %s in %s", want, line)
		}
	}
	if tail := c.Argv[len(c.Argv)-3:]; !slices.Equal(tail, []string{"resume", turn.Conversation, "-"}) {
		t.Errorf("it ends with %q", tail)
	}
	if strings.Contains(line, "bypass") || string(c.Stdin) != "-p" {
		t.Errorf("%s < %q", line, c.Stdin)
	}
	turn.Conversation = "--dangerously-bypass-approvals-and-sandbox"
	if _, err := New().Turn(turn); err == nil {
		t.Error("an id that is none was taken")
	}
	for _, prompt := range []string{" \n", strings.Repeat("ü", maxPrompt+1)} {
		turn.Conversation, turn.Prompt = "", prompt
		if _, err := New().Turn(turn); failure.KindOf(err) != failure.AgentFailed {
			t.Errorf("a prompt of %d bytes: %v", len(prompt), err)
		}
	}
}
