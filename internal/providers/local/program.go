package local

import (
	"context"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/providers/sessiondir"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// WithPrograms tells which agent programs there are, and below which laufwerk home they are installed.
func (p *Provider) WithPrograms(programs agent.Programs, home string) *Provider {
	p.programs, p.home = programs, home
	return p
}

func (p *Provider) user() agent.User {
	return agent.User{Vars: p.host, Home: p.host["HOME"], Now: p.now()}
}

func (p *Provider) login(c config, credential *agent.Credential) (agent.Login, error) {
	return credential.ReadFor(c.ID, c.Credentials, p.user())
}

// install is the command that installs agent programs on this machine.
const install = "laufwerk prepare local"

// readyFor is what keeps a program from being run here.
func (p *Provider) readyFor(name string, c config) (out []failure.Condition) {
	program, ok := p.programs.Find(name)
	if !ok {
		return nil
	}
	if program.Recipe() != nil {
		if _, err := agent.ReadInstalled(p.home, program, install); err != nil {
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
		installed, err := agent.ReadInstalled(s.provider.home, program, install)
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

// passedVariables are the variables of the worker that every command gets: who and where the user is, language, and where
// developer tools lie and keep their caches. None of them is made to hold a secret or leads to an agent, a cloud, Docker or
// Kubernetes.
func passedVariables() []string {
	return []string{
		"HOME", "PATH", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR",
		"XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME",
		"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO",
		"http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
		"GOPATH", "GOROOT", "GOCACHE", "GOMODCACHE", "GOFLAGS", "GOPROXY", "GOPRIVATE", "GONOSUMDB", "GOTOOLCHAIN",
		"CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN",
		"NVM_DIR", "NVM_BIN", "VOLTA_HOME", "PNPM_HOME", "BUN_INSTALL", "DENO_DIR", "COREPACK_HOME",
		"JAVA_HOME", "MAVEN_HOME", "GRADLE_USER_HOME", "ANDROID_HOME", "ANDROID_SDK_ROOT", "DOTNET_ROOT",
		"PYENV_ROOT", "VIRTUAL_ENV", "CONDA_PREFIX", "RBENV_ROOT", "GEM_HOME", "GEM_PATH", "ASDF_DIR", "MISE_DATA_DIR",
		"NIX_PATH", "NIX_PROFILES", "NIX_SSL_CERT_FILE", "PKG_CONFIG_PATH", "LD_LIBRARY_PATH", "CC", "CXX",
	}
}

// allowedVariables are the worker's variables that are passed on, as NAME=value, sorted. A value that is an address with a password
// in it stays out, as proxies and module proxies can have one.
func allowedVariables(host map[string]string) []string {
	names := passedVariables()
	var out []string
	for _, name := range slices.Sorted(maps.Keys(host)) {
		if (slices.Contains(names, name) || strings.HasPrefix(name, "LC_")) && !hasPassword(host[name]) {
			out = append(out, name+"="+host[name])
		}
	}
	return out
}

func hasPassword(value string) bool {
	for _, part := range strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == '|' || r == ' ' }) {
		if !strings.Contains(part, "@") {
			continue
		}
		if !strings.Contains(part, "://") {
			part = "//" + part
		}
		if u, err := url.Parse(part); err != nil || u.User != nil {
			return true
		}
	}
	return false
}
