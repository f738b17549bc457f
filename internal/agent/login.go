package agent

import (
	"slices"
	"time"

	"github.com/laufwerk/laufwerk/internal/checks"
	"github.com/laufwerk/laufwerk/internal/failure"
)

// LeastValidity is how long a login must still be valid for a turn to begin: agents cannot renew it.
const LeastValidity = 5 * time.Minute

// shortValidity is when a login's end is worth a warning: it is renewed by using the program, not by laufwerk.
const shortValidity = time.Hour

// User is the person whose login is read.
type User struct {
	Vars map[string]string // the environment of this process
	Home string            // the home directory
	Now  time.Time
}

// Credential is a login that users have with the maker of a program. A user's own is never changed, and never shared with a
// process that could renew it: agents get a copy that cannot be renewed.
type Credential struct {
	Kind  string // as the option `credentials` of targets calls it: "codex-subscription"
	Title string // of the program, for people: "Codex"
	Renew string // the command that logs the user in anew: "codex login"
	File  string // the name of the login's file in the program's home
	// APIKeys are the variables with which the program would bill by use instead: no agent gets them.
	APIKeys []string
	// Read reads the user's own login. What keeps it from being used is a failure of kind NotReady with the command to type.
	Read func(u User) (Login, error)
	// Secrets are the secrets in the content of a File, whatever state it is in: none where nothing can be read.
	Secrets func(content []byte) []string
	// Profile is how a gateway holds the login in place of sandboxes; nil where none can.
	Profile *Profile
}

// Login is a user's own login, fit for use.
type Login struct {
	Path    string    // of the user's own file
	Plan    string    // "plus"; "" where it does not say
	Expires time.Time // afterwards it is refused
	Private []File    // the copy for a session, in the program's home; it cannot be renewed
	Secrets []string  // values that must not get into any record
}

// Remaining is how long the login is still valid.
func (l Login) Remaining(now time.Time) time.Duration { return l.Expires.Sub(now) }

// ReadFor is Read for a target, which must have been given the login; credentials are its own.
func (c *Credential) ReadFor(target string, credentials []string, u User) (Login, error) {
	if !slices.Contains(credentials, c.Kind) {
		return Login{}, failure.New(failure.NotReady, "the target %q has no login for %s", target, c.Title).
			WithHint("give its constructor `credentials: %q`", c.Kind)
	}
	return c.Read(u)
}

// Check says how long a login is valid.
func (c *Credential) Check(id string, l Login, now time.Time) checks.Check {
	left := l.Remaining(now)
	out := checks.New(id, checks.Pass, "the login is valid for %s", left.Round(time.Minute)).WithEvidence(l.Path)
	if l.Plan != "" {
		out = out.WithEvidence("plan " + l.Plan)
	}
	if left < shortValidity {
		out.Status = checks.Warn
		out.Message += " only, and only " + c.Title + " itself renews it"
		out = out.WithHint("%s", c.Renew)
	}
	return out
}

// Profile is how an OpenShell gateway holds a login and where it lets it go: programs in sandboxes see placeholders, which the
// gateway replaces in requests to the endpoints of a profile.
type Profile struct {
	ID       string   // of ours: the gateway's own one with the program of prepared images as one binary more
	Own      string   // the gateway's own one, from which ours is made: "codex"
	Required []string // the names of the values that the gateway has to hold
	Optional []string
	Access   string   // which of them ends with the login
	Shown    []string // those of the required ones that a sandbox has placeholders of
	// Read is the user's own login for a gateway. Failures are of kind NotReady and name the value that is missing.
	Read func(u User) (GatewayLogin, error)
	// Expires is when a login of these values ends; the zero time where it does not say.
	Expires func(values map[string]string) time.Time
	// Placeholders are the files of the program's home that make it use the placeholders, by the names in Shown.
	Placeholders func(shown map[string]string, now time.Time) ([]File, error)
}

// GatewayLogin is a login for a gateway, which keeps it from all that runs in its sandboxes.
type GatewayLogin struct {
	Origin  string            // where it is from, for people
	Values  map[string]string // by name; an optional one that is not there is left out
	Expires time.Time         // the zero time where it does not say
}

// FromVars is a login from variables that have the names of its values. Failures are of kind NotReady and name the one that is
// missing.
func (c *Credential) FromVars(vars map[string]string) (GatewayLogin, error) {
	h := GatewayLogin{Origin: "the environment", Values: map[string]string{}}
	for _, name := range slices.Concat(c.Profile.Required, c.Profile.Optional) {
		h.Values[name] = vars[name]
	}
	if missing := c.Profile.Complete(&h); missing != "" {
		return GatewayLogin{}, failure.New(failure.NotReady, "the variable %s is not set, which the gateway needs for a login of %s", missing, c.Title).
			WithHint("export %s=…   # from a file that only you can read, not typed", missing)
	}
	return h, nil
}

// Complete names the first required value that is missing, drops optional ones that are, and reads when the login ends.
func (p *Profile) Complete(h *GatewayLogin) (missing string) {
	for _, name := range p.Required {
		if h.Values[name] == "" {
			return name
		}
	}
	for _, name := range p.Optional {
		if h.Values[name] == "" {
			delete(h.Values, name)
		}
	}
	h.Expires = p.Expires(h.Values)
	return ""
}
