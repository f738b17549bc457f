package codex

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/testkit"
)

func put(t *testing.T, content string) (vars map[string]string, path string) {
	t.Helper()
	dir := t.TempDir()
	path = filepath.Join(dir, loginFile)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string]string{"CODEX_HOME": dir}, path
}

func TestALoginThatIsFitForUse(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	content, secrets := testkit.CodexLogin("me", now.Add(3*time.Hour))
	vars, path := put(t, string(content))
	c, err := readLogin(agent.User{Vars: vars, Home: "/nowhere", Now: now})
	if err != nil || c.Plan != "plus" || c.Remaining(now) != 3*time.Hour || c.Path != path {
		t.Fatalf("%+v, %v", c, err)
	}
	if len(c.Private) != 1 || c.Private[0].Path != "auth.json" || c.Private[0].Mode != 0o600 || !c.Private[0].Secret {
		t.Fatalf("%+v", c.Private)
	}
	private := c.Private[0].Content
	if strings.Contains(string(private), secrets[2]) {
		t.Error("the copy can be renewed")
	}
	var was, is map[string]any
	_ = json.Unmarshal(content, &was)
	_ = json.Unmarshal(private, &is)
	was["tokens"].(map[string]any)["refresh_token"] = ""
	a, _ := json.Marshal(was)
	b, _ := json.Marshal(is)
	if string(a) != string(b) {
		t.Errorf("the copy is %s, want %s", b, a)
	}
	if len(c.Secrets) != 3 {
		t.Errorf("%d secrets", len(c.Secrets))
	}
	if b, _ := os.ReadFile(path); string(b) != string(content) {
		t.Error("the user's own was changed")
	}
}

func TestLoginsThatAreRefused(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	login := func(expires time.Duration, change func(m map[string]any)) string {
		content, _ := testkit.CodexLogin("me", now.Add(expires))
		m := map[string]any{}
		_ = json.Unmarshal(content, &m)
		if change != nil {
			change(m)
		}
		b, _ := json.Marshal(m)
		return string(b)
	}
	tokens := func(name string, value any) func(map[string]any) {
		return func(m map[string]any) { m["tokens"].(map[string]any)[name] = value }
	}
	cases := map[string]struct{ content, says string }{
		"empty":        {"", "damaged"},
		"null":         {"null", "damaged"},
		"a string":     {`""`, "damaged"},
		"BOM":          {"\uFEFF" + login(time.Hour, nil), "damaged"},
		"torn":         {login(time.Hour, nil)[:100], "damaged"},
		"no members":   {"{}", "does not say"},
		"API key":      {`{"auth_mode":"apikey","OPENAI_API_KEY":"sk-secret-0123456789"}`, "API key"},
		"old API key":  {`{"OPENAI_API_KEY":"sk-secret-0123456789"}`, "API key"},
		"other":        {`{"auth_mode":"agentIdentity"}`, `"agentIdentity"`},
		"no tokens":    {login(time.Hour, func(m map[string]any) { m["tokens"] = nil }), "no tokens"},
		"no access":    {login(time.Hour, tokens("access_token", "")), "no tokens"},
		"opaque":       {login(time.Hour, tokens("access_token", "opaque-secret-0123")), "damaged"},
		"garbage":      {login(time.Hour, tokens("id_token", "a.!.c")), "damaged"},
		"expired":      {login(-26*time.Hour, nil), "expired 26h0m0s ago"},
		"expires soon": {login(3*time.Minute, nil), "expires in 3m0s"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			vars, _ := put(t, c.content)
			_, err := readLogin(agent.User{Vars: vars, Home: "/nowhere", Now: now})
			f := failure.As(err)
			if f == nil || f.Kind != failure.NotReady || f.Hint != "codex login" || !strings.Contains(f.Message, c.says) {
				t.Fatalf("%+v, want …%s…", err, c.says)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("it shows the secret: %v", err)
			}
		})
	}
	if _, err := readLogin(agent.User{Home: t.TempDir(), Now: now}); failure.KindOf(err) != failure.NotReady || !strings.Contains(err.Error(), "not logged in") {
		t.Errorf("none at all: %v", err)
	}
	if _, err := readLogin(agent.User{Vars: map[string]string{"CODEX_HOME": "/dev"}, Now: now}); failure.KindOf(err) != failure.NotReady {
		t.Errorf("no file: %v", err)
	}
}
