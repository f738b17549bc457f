package codex

import (
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/laufwerk/laufwerk/internal/agent"
)

// The names under which an OpenShell gateway holds a login of Codex: those of its built-in profile codex.
const (
	GatewayAccess  = "CODEX_AUTH_ACCESS_TOKEN"
	GatewayRefresh = "CODEX_AUTH_REFRESH_TOKEN"
	GatewayAccount = "CODEX_AUTH_ACCOUNT_ID"
	GatewayID      = "CODEX_AUTH_ID_TOKEN" // optional
)

// Profile is the profile of providers that hold Codex logins for our sandboxes.
const Profile = "laufwerk-codex"

func profile() *agent.Profile {
	return &agent.Profile{
		ID: Profile, Own: "codex", Required: []string{GatewayAccess, GatewayRefresh, GatewayAccount}, Optional: []string{GatewayID},
		Access: GatewayAccess, Shown: []string{GatewayAccess, GatewayAccount},
		Read: readGatewayLogin,
		Expires: func(values map[string]string) (at time.Time) {
			if c, err := claimsOf(values[GatewayAccess]); err == nil && c.Expires > 0 {
				at = time.Unix(c.Expires, 0).UTC()
			}
			return at
		},
		Placeholders: placeholders,
	}
}

// readGatewayLogin is the user's own login for a gateway.
func readGatewayLogin(u agent.User) (agent.GatewayLogin, error) {
	a, path, err := openLogin(u)
	if err != nil {
		return agent.GatewayLogin{}, err
	}
	t := a.Tokens
	h := agent.GatewayLogin{Origin: path, Values: map[string]string{GatewayAccess: t.Access, GatewayRefresh: t.Refresh, GatewayAccount: t.Account, GatewayID: t.ID}}
	if missing := profile().Complete(&h); missing != "" {
		field := map[string]string{GatewayAccess: "access_token", GatewayRefresh: "refresh_token", GatewayAccount: "account_id"}[missing]
		return agent.GatewayLogin{}, notReady(path, "Codex's login in %s has no %s, which the gateway needs as %s", path, field, missing)
	}
	return h, nil
}

// placeholders are an auth.json with placeholders in place of the access token and the account, which the gateway replaces on the
// way to the server. Codex reads the identity token: that is one without a signature, which says only what has to be there.
// Nothing in it can be renewed.
func placeholders(shown map[string]string, now time.Time) ([]agent.File, error) {
	claims := map[string]any{
		"email": "agent@localhost", "iat": now.Unix(), "exp": now.AddDate(1, 0, 0).Unix(),
		"https://api.openai.com/auth": map[string]string{"chatgpt_plan_type": "plus", "chatgpt_user_id": "agent", "chatgpt_account_id": shown[GatewayAccount]},
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		return nil, err
	}
	enc := base64.RawURLEncoding.EncodeToString
	id := enc([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + enc(payload) + "." + enc([]byte("unsigned"))
	b, err := json.Marshal(auth{
		AuthMode: "chatgpt", LastRefresh: now.UTC().Format(time.RFC3339),
		Tokens: &authTokens{ID: id, Access: shown[GatewayAccess], Account: shown[GatewayAccount]},
	})
	return []agent.File{{Path: loginFile, Content: append(b, '\n'), Mode: 0o600}}, err
}
