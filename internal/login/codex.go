// Package login reads the logins that users have with agent programs. A user's own is never changed and never shared with a
// process that could renew it: agents get a copy that cannot be renewed. Logins by API key are refused.
package login

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// CodexSubscription is what targets call a login of Codex with a ChatGPT subscription.
const CodexSubscription = "codex-subscription"

// Least is how long a login must still be valid for a turn to begin: agents cannot renew it.
const Least = 5 * time.Minute

// CodexFile is the login's name in a home of Codex.
const CodexFile = "auth.json"

// Codex is a login of Codex, fit for use.
type Codex struct {
	Path    string    // of the user's own file
	Plan    string    // "plus"; "" where it does not say
	Expires time.Time // of the access token
	own     codexFile
}

// codexFile is auth.json as Codex 0.171 writes it.
type codexFile struct {
	AuthMode    string       `json:"auth_mode"`
	APIKey      *string      `json:"OPENAI_API_KEY"`
	Tokens      *codexTokens `json:"tokens"`
	LastRefresh string       `json:"last_refresh"`
}

type codexTokens struct {
	ID      string `json:"id_token"`
	Access  string `json:"access_token"`
	Refresh string `json:"refresh_token"`
	Account string `json:"account_id,omitempty"`
}

// CodexPath is the user's own login: in CODEX_HOME, else in .codex of the home directory.
func CodexPath(vars map[string]string, home string) string {
	if dir := vars["CODEX_HOME"]; dir != "" {
		return filepath.Join(dir, CodexFile)
	}
	return filepath.Join(home, ".codex", CodexFile)
}

// maxFile bounds what is read of a login, in bytes; real ones have about 5 KB.
const maxFile = 1 << 20

// ReadCodex reads the user's own login. What keeps it from being used is a failure of kind NotReady with the command to type.
func ReadCodex(vars map[string]string, home string, now time.Time) (Codex, error) {
	c, err := openCodex(vars, home)
	if err != nil {
		return Codex{}, err
	}
	f, path := c.own, c.Path
	if f.Tokens.Access == "" || f.Tokens.ID == "" {
		return Codex{}, notReady(path, "Codex's login in %s has no tokens", path)
	}
	access, err := claimsOf(f.Tokens.Access)
	if err == nil && access.Expires == 0 {
		err = errors.New("it does not say when it expires")
	}
	if err != nil {
		return Codex{}, notReady(path, "the access token in %s is damaged: %v", path, err)
	}
	id, err := claimsOf(f.Tokens.ID)
	if err != nil {
		return Codex{}, notReady(path, "the identity token in %s is damaged: %v", path, err)
	}
	if c.Plan = id.Auth.Plan; c.Plan == "" {
		c.Plan = access.Auth.Plan
	}
	c.Expires = time.Unix(access.Expires, 0).UTC()
	switch left := c.Left(now); {
	case left <= 0:
		return c, notReady(path, "Codex's login expired %s ago (using Codex yourself renews it)", round(-left))
	case left < Least:
		return c, notReady(path, "Codex's login expires in %s, which is too short for a turn (using Codex yourself renews it)", round(left))
	}
	return c, nil
}

// openCodex reads the user's own login, which is one with ChatGPT, whatever its tokens are.
func openCodex(vars map[string]string, home string) (Codex, error) {
	path := CodexPath(vars, home)
	b, err := read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Codex{}, notReady(path, "Codex is not logged in: there is no %s", path)
	case err != nil:
		return Codex{}, notReady(path, "Codex's login cannot be read: %v", err)
	}
	c := Codex{Path: path}
	if !isObject(b) || json.Unmarshal(b, &c.own) != nil {
		return Codex{}, notReady(path, "Codex's login in %s is damaged: it is not what Codex writes", path)
	}
	f := c.own
	switch {
	case f.AuthMode == "" && f.Tokens == nil && f.APIKey != nil, f.AuthMode != "" && f.AuthMode != "chatgpt":
		return Codex{}, notReady(path, "Codex is logged in with %s, which is refused: a run uses your subscription and never falls back to billing by use", mode(f))
	case f.AuthMode == "":
		return Codex{}, notReady(path, "Codex's login in %s does not say that it is one with ChatGPT", path)
	case f.Tokens == nil:
		return Codex{}, notReady(path, "Codex's login in %s has no tokens", path)
	}
	return c, nil
}

// CodexOf is ReadCodex for a target, which must have been given the login; credentials are its own.
func CodexOf(target string, credentials []string, vars map[string]string, home string, now time.Time) (Codex, error) {
	if !slices.Contains(credentials, CodexSubscription) {
		return Codex{}, failure.New(failure.NotReady, "the target %q has no login for Codex", target).
			WithHint("give its constructor `credentials: %q`", CodexSubscription)
	}
	return ReadCodex(vars, home, now)
}

func read(path string) ([]byte, error) {
	info, err := files.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file", path)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%s has %d bytes", path, info.Size())
	}
	return files.Read(path)
}

func isObject(b []byte) bool {
	var m map[string]json.RawMessage
	return json.Unmarshal(b, &m) == nil && m != nil
}

func mode(f codexFile) string {
	if f.AuthMode == "" || f.AuthMode == "apikey" {
		return "an API key"
	}
	return fmt.Sprintf("the method %q", f.AuthMode)
}

func notReady(path, format string, args ...any) error {
	return failure.New(failure.NotReady, format, args...).WithPaths(path).WithHint("codex login")
}

func round(d time.Duration) time.Duration {
	if d > time.Minute {
		return d.Round(time.Minute)
	}
	return d.Round(time.Second)
}

// Left is how long the login is still valid.
func (c Codex) Left(now time.Time) time.Duration { return c.Expires.Sub(now) }

// Private is the login for a session: auth.json without the token that renews it and without a key.
func (c Codex) Private() ([]byte, error) {
	f := c.own
	tokens := *f.Tokens
	tokens.Refresh = ""
	f.Tokens, f.APIKey = &tokens, nil
	if f.LastRefresh == "" { // without it Codex sends no authorization
		f.LastRefresh = time.Unix(0, 0).UTC().Format(time.RFC3339)
	}
	b, err := json.Marshal(f)
	return append(b, '\n'), err
}

// Secrets are the values that must not get into any record.
func (c Codex) Secrets() []string { return c.own.secrets() }

func (f codexFile) secrets() []string {
	var out []string
	add := func(s string) {
		if s != "" {
			out = append(out, s)
		}
	}
	if f.APIKey != nil {
		add(*f.APIKey)
	}
	if f.Tokens != nil {
		add(f.Tokens.Access)
		add(f.Tokens.ID)
		add(f.Tokens.Refresh)
	}
	return out
}

// CodexSecrets are the secrets in the content of an auth.json, whatever state it is in: none where nothing can be read.
func CodexSecrets(content []byte) []string {
	var f codexFile
	if json.Unmarshal(content, &f) != nil {
		return nil
	}
	return f.secrets()
}
