package agent

import (
	"slices"

	"github.com/laufwerk/laufwerk/internal/environment"
	"github.com/laufwerk/laufwerk/internal/failure"
)

// Programs are the agent programs of a build, in the order in which people are told of them.
type Programs []Program

// Find is the program of a name.
func (l Programs) Find(name string) (Program, bool) {
	for _, p := range l {
		if p.Name() == name {
			return p, true
		}
	}
	return nil, false
}

// Installable are those that have a recipe.
func (l Programs) Installable() (out Programs) {
	for _, p := range l {
		if p.Recipe() != nil {
			out = append(out, p)
		}
	}
	return out
}

// ForImage is the program that the prepared image of a target with these credentials carries: the one that runs with one of them,
// or else the first that has a recipe; nil in a build with none.
func (l Programs) ForImage(credentials []string) (first Program) {
	for _, p := range l.Installable() {
		if c := p.Credential(); c != nil && slices.Contains(credentials, c.Kind) {
			return p
		}
		if first == nil {
			first = p
		}
	}
	return first
}

// Refused are the variables that nobody can give to sessions: own ones of theirs, those that lead programs to their private
// homes, and API keys.
func (l Programs) Refused(own ...string) environment.RefusedNames {
	for _, p := range l.Installable() {
		own = append(own, p.Recipe().HomeVariable)
	}
	return environment.RefusedNames{Own: own, APIKeys: l.APIKeys()}
}

// APIKeys are the variables with which programs would bill by use.
func (l Programs) APIKeys() (out []string) {
	for _, c := range l.credentials() {
		out = append(out, c.APIKeys...)
	}
	return out
}

// LoginSecrets are the secrets of the user's own logins, as far as they are among credentials, those of a target.
func (l Programs) LoginSecrets(credentials []string, u User) (out []string) {
	for _, p := range l {
		if c := p.Credential(); c != nil && slices.Contains(credentials, c.Kind) {
			if login, err := c.Read(u); err == nil {
				out = append(out, login.Secrets...)
			}
		}
	}
	return out
}

// ByCredential is the program that runs with a login of this kind.
func (l Programs) ByCredential(kind string) (Program, bool) {
	for _, p := range l {
		if c := p.Credential(); c != nil && c.Kind == kind {
			return p, true
		}
	}
	return nil, false
}

// CredentialKinds are the logins that a target can be told to give to agents: those of the programs, and the announced ones.
func (l Programs) CredentialKinds() []string {
	var out []string
	for _, c := range l.credentials() {
		if !slices.Contains(out, c.Kind) {
			out = append(out, c.Kind)
		}
	}
	return out
}

// Credential is the login of a kind; nil for none that is known.
func (l Programs) Credential(kind string) *Credential {
	for _, c := range l.credentials() {
		if c.Kind == kind {
			return c
		}
	}
	return nil
}

func (l Programs) credentials() (out []*Credential) {
	for _, p := range l {
		if c := p.Credential(); c != nil {
			out = append(out, c)
		}
	}
	return append(out, announcedCredentials()...)
}

// announcedCredentials are logins that options accept already, of programs that a build need not have.
func announcedCredentials() []*Credential {
	return []*Credential{{Kind: "claude-subscription", Title: "Claude Code", APIKeys: []string{"ANTHROPIC_API_KEY"}}}
}

// NativeBinary is the path of a program's executable below its installed tree, with slashes. A platform that it does not run on is
// a failure of kind NotReady.
func NativeBinary(p Program, platform string) (string, error) {
	if path := p.Recipe().Binary(platform); path != "" {
		return path, nil
	}
	return "", failure.New(failure.NotReady, "there is no %s for %s", p.Title(), platform)
}
