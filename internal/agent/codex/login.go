package codex

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// Subscription is what targets call a login of Codex with a ChatGPT subscription.
const Subscription = "codex-subscription"

const loginFile = "auth.json"

const renew = "codex login"

// Credential is a ChatGPT subscription: logins by API key are refused.
func (*Program) Credential() *agent.Credential {
	return &agent.Credential{
		Kind: Subscription, Title: title, Renew: renew, File: loginFile, APIKeys: []string{"OPENAI_API_KEY", "CODEX_API_KEY"},
		Read: readLogin, Secrets: func(content []byte) []string {
			var a auth
			if json.Unmarshal(content, &a) != nil {
				return nil
			}
			return a.secrets()
		},
		Profile: profile(),
	}
}

// auth is auth.json as Codex 0.171 writes it.
type auth struct {
	AuthMode    string      `json:"auth_mode"`
	APIKey      *string     `json:"OPENAI_API_KEY"`
	Tokens      *authTokens `json:"tokens"`
	LastRefresh string      `json:"last_refresh"`
}

type authTokens struct {
	ID      string `json:"id_token"`
	Access  string `json:"access_token"`
	Refresh string `json:"refresh_token"`
	Account string `json:"account_id,omitempty"`
}

// loginPath is the user's own login: in CODEX_HOME, else in .codex of the home directory.
func loginPath(u agent.User) string {
	if dir := u.Vars["CODEX_HOME"]; dir != "" {
		return filepath.Join(dir, loginFile)
	}
	return filepath.Join(u.Home, ".codex", loginFile)
}

// maxLogin bounds what is read of a login, in bytes; real ones have about 5 KB.
const maxLogin = 1 << 20

// readLogin reads the user's own login. Its failures are of kind NotReady.
func readLogin(u agent.User) (agent.Login, error) {
	a, path, err := openLogin(u)
	if err != nil {
		return agent.Login{}, err
	}
	if a.Tokens.Access == "" || a.Tokens.ID == "" {
		return agent.Login{}, notReady(path, "Codex's login in %s has no tokens", path)
	}
	access, err := claimsOf(a.Tokens.Access)
	if err == nil && access.Expires == 0 {
		err = errors.New("it does not say when it expires")
	}
	if err != nil {
		return agent.Login{}, notReady(path, "the access token in %s is damaged: %v", path, err)
	}
	id, err := claimsOf(a.Tokens.ID)
	if err != nil {
		return agent.Login{}, notReady(path, "the identity token in %s is damaged: %v", path, err)
	}
	l := agent.Login{Path: path, Plan: id.Auth.Plan, Expires: time.Unix(access.Expires, 0).UTC(), Secrets: a.secrets()}
	if l.Plan == "" {
		l.Plan = access.Auth.Plan
	}
	if l.Private, err = a.sessionFiles(); err != nil {
		return agent.Login{}, err
	}
	switch left := l.Remaining(u.Now); {
	case left <= 0:
		return l, notReady(path, "Codex's login expired %s ago (using Codex yourself renews it)", roundDuration(-left))
	case left < agent.LeastValidity:
		return l, notReady(path, "Codex's login expires in %s, which is too short for a turn (using Codex yourself renews it)", roundDuration(left))
	}
	return l, nil
}

// openLogin reads the user's own login, which is one with ChatGPT, whatever its tokens are.
func openLogin(u agent.User) (a auth, path string, err error) {
	path = loginPath(u)
	b, err := readFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return a, path, notReady(path, "Codex is not logged in: there is no %s", path)
	case err != nil:
		return a, path, notReady(path, "Codex's login cannot be read: %v", err)
	}
	if !isObject(b) || json.Unmarshal(b, &a) != nil {
		return a, path, notReady(path, "Codex's login in %s is damaged: it is not what Codex writes", path)
	}
	switch {
	case a.AuthMode == "" && a.Tokens == nil && a.APIKey != nil, a.AuthMode != "" && a.AuthMode != "chatgpt":
		return a, path, notReady(path, "Codex is logged in with %s, which is refused: a run uses your subscription and never falls back to billing by use", a.method())
	case a.AuthMode == "":
		return a, path, notReady(path, "Codex's login in %s does not say that it is one with ChatGPT", path)
	case a.Tokens == nil:
		return a, path, notReady(path, "Codex's login in %s has no tokens", path)
	}
	return a, path, nil
}

func readFile(path string) ([]byte, error) {
	info, err := files.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file", path)
	case info.Size() > maxLogin:
		return nil, fmt.Errorf("%s has %d bytes", path, info.Size())
	}
	return files.Read(path)
}

func isObject(b []byte) bool {
	var m map[string]json.RawMessage
	return json.Unmarshal(b, &m) == nil && m != nil
}

func notReady(path, format string, args ...any) error {
	return failure.New(failure.NotReady, format, args...).WithPaths(path).WithHint(renew)
}

func roundDuration(d time.Duration) time.Duration {
	if d > time.Minute {
		return d.Round(time.Minute)
	}
	return d.Round(time.Second)
}

func (a auth) method() string {
	if a.AuthMode == "" || a.AuthMode == "apikey" {
		return "an API key"
	}
	return fmt.Sprintf("the method %q", a.AuthMode)
}

// sessionFiles is the login for a session: auth.json without the token that renews it and without a key.
func (a auth) sessionFiles() ([]agent.File, error) {
	tokens := *a.Tokens
	tokens.Refresh = ""
	a.Tokens, a.APIKey = &tokens, nil
	if a.LastRefresh == "" { // without it Codex sends no authorization
		a.LastRefresh = time.Unix(0, 0).UTC().Format(time.RFC3339)
	}
	b, err := json.Marshal(a)
	return []agent.File{{Path: loginFile, Content: append(b, '\n'), Mode: 0o600, Secret: true}}, err
}

func (a auth) secrets() (out []string) {
	values := []*string{a.APIKey}
	if t := a.Tokens; t != nil {
		values = append(values, &t.Access, &t.ID, &t.Refresh)
	}
	for _, v := range values {
		if v != nil && *v != "" {
			out = append(out, *v)
		}
	}
	return out
}

// claims is what is needed of a JSON Web Token. Its signature is the issuer's to check.
type claims struct {
	Expires int64 `json:"exp"` // s since 1970
	Auth    struct {
		Plan string `json:"chatgpt_plan_type"`
	} `json:"https://api.openai.com/auth"`
}

func claimsOf(token string) (claims, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return claims{}, errors.New("it is not a JSON Web Token")
	}
	b, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	var c claims
	if err != nil || json.Unmarshal(b, &c) != nil {
		return claims{}, errors.New("it cannot be decoded")
	}
	return c, nil
}

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
