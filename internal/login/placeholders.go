package login

import (
	"encoding/base64"
	"encoding/json"
	"time"
)

// OfPlaceholders is an auth.json with placeholders in place of the access token and the account, which somebody else replaces on
// the way to the server. Codex reads the identity token: that is one without a signature, which says only what has to be there.
// Nothing in it can be renewed.
func OfPlaceholders(access, account string, now time.Time) ([]byte, error) {
	claims := map[string]any{
		"email": "agent@localhost", "iat": now.Unix(), "exp": now.AddDate(1, 0, 0).Unix(),
		"https://api.openai.com/auth": map[string]string{"chatgpt_plan_type": "plus", "chatgpt_user_id": "agent", "chatgpt_account_id": account},
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		return nil, err
	}
	enc := base64.RawURLEncoding.EncodeToString
	id := enc([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + enc(payload) + "." + enc([]byte("unsigned"))
	b, err := json.Marshal(codexFile{
		AuthMode: "chatgpt", LastRefresh: now.UTC().Format(time.RFC3339),
		Tokens: &codexTokens{ID: id, Access: access, Account: account},
	})
	return append(b, '\n'), err
}
