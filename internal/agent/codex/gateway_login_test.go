package codex

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/testkit"
)

func TestALoginForAGateway(t *testing.T) {
	expires := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	content, secrets := testkit.CodexLogin("me", expires)
	vars, path := put(t, string(content))
	h, err := readGatewayLogin(agent.User{Vars: vars, Home: "/nowhere"})
	if err != nil || h.Origin != path || !h.Expires.Equal(expires) {
		t.Fatalf("%s %s %v", h.Origin, h.Expires, err)
	}
	if got := slices.Sorted(maps.Keys(h.Values)); !slices.Equal(got, []string{GatewayAccess, GatewayAccount, GatewayID, GatewayRefresh}) {
		t.Errorf("%v", got)
	}
	// The identity token is optional, and nothing else.
	for field, name := range map[string]string{"id_token": "", "access_token": GatewayAccess, "refresh_token": GatewayRefresh, "account_id": GatewayAccount} {
		for _, without := range []func(tokens map[string]any){func(m map[string]any) { delete(m, field) }, func(m map[string]any) { m[field] = "" }} {
			var m map[string]any
			if err := json.Unmarshal(content, &m); err != nil {
				t.Fatal(err)
			}
			tokens, _ := m["tokens"].(map[string]any)
			without(tokens)
			b, _ := json.Marshal(m)
			vars, _ := put(t, string(b))
			h, err := readGatewayLogin(agent.User{Vars: vars, Home: "/nowhere"})
			if name == "" {
				if _, has := h.Values[GatewayID]; err != nil || has {
					t.Errorf("without %s: %v", field, err)
				}
				continue
			}
			if !failure.Is(err, failure.NotReady) || !strings.Contains(err.Error(), field) || !strings.Contains(err.Error(), name) {
				t.Errorf("without %s: %v", field, err)
			}
			for _, secret := range secrets {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("without %s: it tells a token", field)
				}
			}
		}
	}
	// Only a subscription is handed over: never what would be billed by use.
	for given, says := range map[string]string{
		`{"OPENAI_API_KEY":"sk-x"}`:                              "never falls back to billing by use",
		`{"auth_mode":"apikey","OPENAI_API_KEY":"sk-x"}`:         "never falls back to billing by use",
		`{"auth_mode":"apikey","tokens":{"access_token":"abc"}}`: "never falls back to billing by use",
		`{"tokens":{"access_token":"abc","refresh_token":"b"}}`:  "does not say that it is one with ChatGPT",
		`{"auth_mode":"chatgpt"}`:                                "has no tokens",
		`null`:                                                   "is damaged",
		``:                                                       "is damaged",
	} {
		vars, _ := put(t, given)
		if _, err := readGatewayLogin(agent.User{Vars: vars, Home: "/nowhere"}); !failure.Is(err, failure.NotReady) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "sk-x") {
			t.Errorf("%s: %v", given, err)
		}
	}
}

func TestALoginForAGatewayFromVariables(t *testing.T) {
	whole := func() map[string]string {
		return map[string]string{GatewayAccess: "canary-a", GatewayRefresh: "canary-r", GatewayAccount: "me", "HOME": "/home/me"}
	}
	h, err := New().Credential().FromVars(whole())
	if err != nil || len(h.Values) != 3 || h.Values[GatewayRefresh] != "canary-r" || !h.Expires.IsZero() || h.Origin != "the environment" {
		t.Errorf("%+v %v", h, err)
	}
	for _, name := range profile().Required {
		vars := whole()
		vars[name] = ""
		_, err := New().Credential().FromVars(vars)
		if !failure.Is(err, failure.NotReady) || !strings.Contains(err.Error(), "the variable "+name+" is not set") || strings.Contains(err.Error(), "canary") || failure.As(err).Hint == "" {
			t.Errorf("without %s: %v", name, err)
		}
	}
}
