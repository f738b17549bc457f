package testkit

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// CodexBinary is the real Codex that `.ci/parts codex` puts into .tools, of the version that laufwerk is made for.
func CodexBinary(t testing.TB) string {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	path := filepath.Join(filepath.Dir(file), "../..", ".tools/codex/node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex")
	info, err := os.Stat(path)
	Need(t, "the Codex CLI", err == nil && info.Mode().IsRegular(), "there is no "+path+"; run .ci/parts codex")
	return path
}

// CodexLogin is what Codex writes into auth.json after a login with ChatGPT; the tokens are not signed and hold the given
// word, so that tests can look for them. Secrets are the tokens.
func CodexLogin(word string, expires time.Time) (content []byte, secrets []string) {
	auth := map[string]any{"chatgpt_plan_type": "plus", "chatgpt_user_id": "user-" + word, "chatgpt_account_id": "acct-" + word}
	token := func(kind string) string {
		return jwt(map[string]any{
			"iat": expires.Add(-240 * time.Hour).Unix(), "exp": expires.Unix(), "email": "someone@example.com", "kind": kind,
			"jti": word + "-" + id(), "https://api.openai.com/auth": auth,
		})
	}
	secrets = []string{token("id"), token("access"), "refresh-" + word + "-" + id()}
	content, _ = json.MarshalIndent(map[string]any{
		"auth_mode": "chatgpt", "OPENAI_API_KEY": nil, "last_refresh": expires.Add(-240 * time.Hour).UTC().Format(time.RFC3339),
		"tokens": map[string]any{"id_token": secrets[0], "access_token": secrets[1], "refresh_token": secrets[2], "account_id": "acct-" + word},
	}, "", "  ")
	return content, secrets
}

func jwt(claims map[string]any) string {
	enc := func(v any) string {
		b, _ := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(b)
	}
	return enc(map[string]string{"alg": "none", "typ": "JWT"}) + "." + enc(claims) + "." + id()
}

func id() string {
	b := make([]byte, 12)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}
