package local

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/login"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/providers/sessiondir"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// codex is the program whose login this target gives to agents.
const codex = "codex"

// Credentials are the logins that a described target gives to agents.
func (*Provider) Credentials(def json.RawMessage) []string { return targets.CredentialsOf(def) }

// WithPrograms tells where prepared programs are: find fails with NotReady for one that is not prepared.
func (p *Provider) WithPrograms(find func(program string) (agent.Receipt, error)) *Provider {
	p.programs = find
	return p
}

func (p *Provider) program(name string) (agent.Receipt, error) {
	if p.programs == nil {
		return agent.Receipt{}, failure.New(failure.NotReady, "%s is not prepared", name).WithHint("laufwerk prepare local")
	}
	return p.programs(name)
}

func (p *Provider) login(c config) (login.Codex, error) {
	return login.CodexOf(c.ID, c.Credentials, p.host, p.host["HOME"], p.now())
}

// readyFor is what keeps a program from being run here.
func (p *Provider) readyFor(name string, c config) []failure.Condition {
	if name != codex {
		return nil
	}
	var out []failure.Condition
	if _, err := p.program(name); err != nil {
		out = append(out, condition("codex.program", err))
	}
	if _, err := p.login(c); err != nil {
		out = append(out, condition("codex.login", err))
	}
	return out
}

func condition(id string, err error) failure.Condition { return targets.Missing("local", id, err) }

// Program is the prepared program. Its home gets the user's login as it is now, in a form that cannot be renewed.
func (s *sandbox) Program(_ context.Context, name string) (providers.Program, error) {
	if name != codex {
		return providers.Program{}, nil
	}
	prepared, err := s.provider.program(name)
	if err != nil {
		return providers.Program{}, err
	}
	l, err := s.provider.login(s.config)
	if err != nil {
		return providers.Program{}, err
	}
	content, err := l.Private()
	if err != nil {
		return providers.Program{}, err
	}
	if err := sessiondir.Place(s.spec.Dir, name, agent.File{Path: login.CodexFile, Content: content, Mode: 0o600, Secret: true}, nil); err != nil {
		return providers.Program{}, failure.Wrap(err, failure.Failed, "put the login into the session's private home")
	}
	return providers.Program{Path: prepared.Path, Home: filepath.Join(s.spec.Dir, filepath.FromSlash(sessiondir.ProgramHome(name)))}, nil
}

// Place puts a file into a program's home.
func (s *sandbox) Place(_ context.Context, program string, f agent.File) error {
	return sessiondir.Place(s.spec.Dir, program, f, nil)
}

// Secrets are the tokens of the user's login and of the copy that the session has, and variables whose names say what they are.
func (s *sandbox) Secrets() []string {
	out := targets.SecretValues(s.own)
	if !slices.Contains(s.config.Credentials, login.CodexSubscription) {
		return out
	}
	if l, err := s.provider.login(s.config); err == nil {
		out = append(out, l.Secrets()...)
	}
	if b, err := sessiondir.ReadHome(s.spec.Dir, codex, login.CodexFile, 1<<20); err == nil {
		out = append(out, login.CodexSecrets(b)...)
	}
	return out
}
