package login

import (
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
)

// The names under which an OpenShell gateway holds a login of Codex: those of its built-in profile codex.
const (
	HeldAccess  = "CODEX_AUTH_ACCESS_TOKEN"
	HeldRefresh = "CODEX_AUTH_REFRESH_TOKEN"
	HeldAccount = "CODEX_AUTH_ACCOUNT_ID"
	HeldID      = "CODEX_AUTH_ID_TOKEN" // optional
)

// HeldRequired are those that a gateway has to hold.
func HeldRequired() []string { return []string{HeldAccess, HeldRefresh, HeldAccount} }

// Held is a login of Codex for a gateway, which keeps it from all that runs in its sandboxes.
type Held struct {
	Origin  string            // whence it is, for people
	Values  map[string]string // by name; an optional one that is not there is left out
	Expires time.Time         // of the access token; the zero time where it does not say
}

// HeldOfCodex is the user's own login. Failures are of kind NotReady and name the value that is missing.
func HeldOfCodex(vars map[string]string, home string) (Held, error) {
	c, err := openCodex(vars, home)
	if err != nil {
		return Held{}, err
	}
	t := c.own.Tokens
	h := Held{Origin: c.Path, Values: map[string]string{HeldAccess: t.Access, HeldRefresh: t.Refresh, HeldAccount: t.Account, HeldID: t.ID}}
	if missing := h.complete(); missing != "" {
		field := map[string]string{HeldAccess: "access_token", HeldRefresh: "refresh_token", HeldAccount: "account_id"}[missing]
		return Held{}, notReady(c.Path, "Codex's login in %s has no %s, which the gateway needs as %s", c.Path, field, missing)
	}
	return h, nil
}

// HeldOfVars is a login from variables of these names. Failures are of kind NotReady and name the one that is missing.
func HeldOfVars(vars map[string]string) (Held, error) {
	h := Held{Origin: "the environment", Values: map[string]string{}}
	for _, name := range append(HeldRequired(), HeldID) {
		h.Values[name] = vars[name]
	}
	if missing := h.complete(); missing != "" {
		return Held{}, failure.New(failure.NotReady, "the variable %s is not set, which the gateway needs for a login of Codex", missing).
			WithHint("export %s=…   # from a file that only you can read, not typed", missing)
	}
	return h, nil
}

// complete names the first value that is missing, drops optional ones that are, and reads when the login ends.
func (h *Held) complete() (missing string) {
	for _, name := range HeldRequired() {
		if h.Values[name] == "" {
			return name
		}
	}
	if h.Values[HeldID] == "" {
		delete(h.Values, HeldID)
	}
	if c, err := claimsOf(h.Values[HeldAccess]); err == nil && c.Expires > 0 {
		h.Expires = time.Unix(c.Expires, 0).UTC()
	}
	return ""
}

// Secrets are the values that must not get into any record. The account's id is none.
func (h Held) Secrets() []string {
	var out []string
	for name, v := range h.Values {
		if name != HeldAccount {
			out = append(out, v)
		}
	}
	return out
}
