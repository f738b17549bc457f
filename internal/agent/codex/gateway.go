package codex

import (
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/laufwerk/laufwerk/internal/agent"
)

// The names under which an OpenShell gateway holds a login of Codex: those of its built-in profile codex.
const (
	HeldAccess  = "CODEX_AUTH_ACCESS_TOKEN"
	HeldRefresh = "CODEX_AUTH_REFRESH_TOKEN"
	HeldAccount = "CODEX_AUTH_ACCOUNT_ID"
	HeldID      = "CODEX_AUTH_ID_TOKEN" // optional
)

// Profile is the profile of providers that hold Codex logins for our sandboxes.
const Profile = "laufwerk-codex"

func profile() *agent.Profile {
	return &agent.Profile{
		ID: Profile, Own: "codex", Required: []string{HeldAccess, HeldRefresh, HeldAccount}, Optional: []string{HeldID},
		Access: HeldAccess, Shown: []string{HeldAccess, HeldAccount},
		Read: heldLogin,
		Expires: func(values map[string]string) (at time.Time) {
			if c, err := claimsOf(values[HeldAccess]); err == nil && c.Expires > 0 {
				at = time.Unix(c.Expires, 0).UTC()
			}
			return at
		},
		Placeholders: placeholders,
	}
}

// heldLogin is the user's own login for a gateway.
func heldLogin(u agent.User) (agent.Held, error) {
	a, path, err := openLogin(u)
	if err != nil {
		return agent.Held{}, err
	}
	t := a.Tokens
	h := agent.Held{Origin: path, Values: map[string]string{HeldAccess: t.Access, HeldRefresh: t.Refresh, HeldAccount: t.Account, HeldID: t.ID}}
	if missing := profile().Complete(&h); missing != "" {
		field := map[string]string{HeldAccess: "access_token", HeldRefresh: "refresh_token", HeldAccount: "account_id"}[missing]
		return agent.Held{}, notReady(path, "Codex's login in %s has no %s, which the gateway needs as %s", path, field, missing)
	}
	return h, nil
}

// placeholders are an auth.json with placeholders in place of the access token and the account, which the gateway replaces on the
// way to the server. Codex reads the identity token: that is one without a signature, which says only what has to be there.
// Nothing in it can be renewed.
func placeholders(shown map[string]string, now time.Time) ([]agent.File, error) {
	claims := map[string]any{
		"email": "agent@localhost", "iat": now.Unix(), "exp": now.AddDate(1, 0, 0).Unix(),
		"https://api.openai.com/auth": map[string]string{"chatgpt_plan_type": "plus", "chatgpt_user_id": "agent", "chatgpt_account_id": shown[HeldAccount]},
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		return nil, err
	}
	enc := base64.RawURLEncoding.EncodeToString
	id := enc([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + enc(payload) + "." + enc([]byte("unsigned"))
	b, err := json.Marshal(auth{
		AuthMode: "chatgpt", LastRefresh: now.UTC().Format(time.RFC3339),
		Tokens: &authTokens{ID: id, Access: shown[HeldAccess], Account: shown[HeldAccount]},
	})
	return []agent.File{{Path: loginFile, Content: append(b, '\n'), Mode: 0o600}}, err
}
