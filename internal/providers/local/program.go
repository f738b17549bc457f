package local

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/providers/sessiondir"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// Credentials are the logins that a described target gives to agents.
func (*Provider) Credentials(def json.RawMessage) []string { return targets.CredentialsOf(def) }

// WithPrograms tells which agent programs there are, and below which laufwerk home they are installed.
func (p *Provider) WithPrograms(programs agent.Programs, home string) *Provider {
	p.programs, p.home = programs, home
	return p
}

// user is whose logins are given to agents.
func (p *Provider) user() agent.User {
	return agent.User{Vars: p.host, Home: p.host["HOME"], Now: p.now()}
}

func (p *Provider) login(c config, credential *agent.Credential) (agent.Login, error) {
	return credential.ReadFor(c.ID, c.Credentials, p.user())
}

// readyFor is what keeps a program from being run here.
func (p *Provider) readyFor(name string, c config) (out []failure.Condition) {
	program, ok := p.programs.Find(name)
	if !ok {
		return nil
	}
	if program.Recipe() != nil {
		if _, err := agent.ReadInstalled(p.home, program); err != nil {
			out = append(out, condition(name+".program", err))
		}
	}
	if credential := program.Credential(); credential != nil {
		if _, err := p.login(c, credential); err != nil {
			out = append(out, condition(name+".login", err))
		}
	}
	return out
}

func condition(id string, err error) failure.Condition { return targets.Missing("local", id, err) }

// Program is the installed program. Its home gets the user's login as it is now, in a form that cannot be renewed.
func (s *sandbox) Program(ctx context.Context, name string) (providers.Program, error) {
	out := providers.Program{Home: filepath.Join(s.spec.Dir, filepath.FromSlash(sessiondir.ProgramHome(name)))}
	program, ok := s.provider.programs.Find(name)
	if !ok {
		return out, nil
	}
	if program.Recipe() != nil {
		installed, err := agent.ReadInstalled(s.provider.home, program)
		if err != nil {
			return providers.Program{}, err
		}
		out.Path = installed.Path
	}
	if credential := program.Credential(); credential != nil {
		login, err := s.provider.login(s.config, credential)
		if err != nil {
			return providers.Program{}, err
		}
		for _, f := range login.Private {
			if err := s.PutFile(ctx, name, f); err != nil {
				return providers.Program{}, failure.Wrap(err, failure.Failed, "put the login into the session's private home")
			}
		}
	}
	return out, nil
}

// PutFile puts a file into a program's home.
func (s *sandbox) PutFile(_ context.Context, program string, f agent.File) error {
	return sessiondir.PutFile(s.spec.Dir, program, f, nil)
}

// maxLogin bounds what is read of the copy of a login in a session's home, in bytes.
const maxLogin = 1 << 20

// Secrets are the tokens of the user's logins and of the copies that the session has, and variables whose names say what they are.
func (s *sandbox) Secrets() []string {
	p := s.provider
	out := append(targets.SecretValues(s.own), p.programs.LoginSecrets(s.config.Credentials, p.user())...)
	for _, program := range p.programs {
		credential := program.Credential()
		if credential == nil || !slices.Contains(s.config.Credentials, credential.Kind) {
			continue
		}
		if b, err := sessiondir.ReadHome(s.spec.Dir, program.Name(), credential.File, maxLogin); err == nil {
			out = append(out, credential.Secrets(b)...)
		}
	}
	return out
}
