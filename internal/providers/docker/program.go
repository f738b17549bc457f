package docker

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/guest"
	"github.com/laufwerk/laufwerk/internal/lazyregexp"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/providers/guestclient"
	"github.com/laufwerk/laufwerk/internal/providers/sessiondir"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// user is whose logins are given to agents.
func (p *Provider) user() agent.User {
	return agent.User{Vars: p.c.Vars, Home: p.c.Home, Now: p.c.Now()}
}

// login is the user's own login, as it may be given to sessions of a target.
func (p *Provider) login(c config, credential *agent.Credential) (agent.Login, error) {
	return credential.ReadFor(c.ID, c.Credentials, p.user())
}

// readyFor is what keeps a program from being run on the target.
func (p *Provider) readyFor(name string, c config, i selectedImage, imageErr error) (out []failure.Condition) {
	program, ok := p.c.Programs.Find(name)
	if !ok {
		return nil
	}
	if program.Recipe() != nil && imageErr == nil && !p.carried(program, c, i.prepared) && c.Network == noNetwork {
		out = append(out, condition(name+".program", unpreparedError(c, program)))
	}
	if credential := program.Credential(); credential != nil {
		if _, err := p.login(c, credential); err != nil {
			out = append(out, condition(name+".login", err))
		}
	}
	return out
}

func unpreparedError(c config, program agent.Program) error {
	return failure.New(failure.NotReady, "the %s contains no prepared %s, and without a network it cannot be installed in a session", c.imageName(), program.Title()).
		WithHint("laufwerk prepare docker")
}

// Program prepares a program inside. Its home gets a link to the user's current login, without the token that renews it; the login
// itself is only in the container's memory.
func (s *sandbox) Program(ctx context.Context, name string) (providers.Program, error) {
	out := providers.Program{Home: path.Join(homeDir, name)}
	program, ok := s.p.c.Programs.Find(name)
	if !ok {
		return out, nil
	}
	if program.Recipe() != nil {
		var err error
		if out.Path, err = s.binary(ctx, program); err != nil {
			return providers.Program{}, err
		}
	}
	if credential := program.Credential(); credential != nil {
		login, err := s.p.login(s.config, credential)
		if err != nil {
			return providers.Program{}, err
		}
		for _, f := range login.Private {
			if err := s.PutFile(ctx, name, f); err != nil {
				return providers.Program{}, failure.Wrap(err, failure.NotReady, "put the login into the container's memory")
			}
		}
	}
	return out, nil
}

// binary is the path of a program's executable inside, which is installed where the image does not contain it.
func (s *sandbox) binary(ctx context.Context, program agent.Program) (string, error) {
	at := Images().Prefix(program.Name())
	if !s.p.carried(program, s.config, s.spec.Prepared) {
		var err error
		if at, err = s.install(ctx, program); err != nil {
			return "", err
		}
	}
	binary, err := agent.NativeBinary(program, "linux/"+s.arch)
	return path.Join(at, binary), err
}

// installLimit bounds an installation in a session: package managers retry for ever on an untrusted certificate.
const installLimit = 20 * time.Minute

// install installs the pinned program atomically in the session's home, where the image does not have it, and returns its path. An
// interrupted installation leaves a folder until the session ends. Registry, proxy and certificates are those of the image and of the
// target's variables, not the worker's.
func (s *sandbox) install(ctx context.Context, program agent.Program) (string, error) {
	name, title, recipe := program.Name(), program.Title(), program.Recipe()
	for _, f := range recipe.PNPMFiles() {
		if err := sessiondir.PutFile(s.spec.Dir, recipeDir, agent.File{Path: f.Name, Content: f.Content, Mode: 0o644}, s.spec.FileOwner); err != nil {
			return "", failure.Wrap(err, failure.Failed, "put the recipe of %s into the session's home", title)
		}
	}
	const script = `set -eu
umask 022
mkdir -p "$0" && cd "$0"
if [ -e "$1/.complete" ]; then exit 0; fi
command -v pnpm >/dev/null || { echo "the image has no pnpm" >&2; exit 127; }
new=$(mktemp -d "$PWD/.new-XXXXXX")
cp "$2"/* "$new"/
name=$1
shift 2
cd "$new"
npm_config_store_dir=$new/.store pnpm "$@" >&2
rm -rf .store
: >.complete
cd ..
mv -T "$new" "$name" 2>/dev/null || { rm -rf "$new"; [ -e "$name/.complete" ]; }`
	cmd := guestclient.Command{Argv: append([]string{"bash", "-c", script, bootstrapDir, name, path.Join(homeDir, recipeDir)}, agent.PNPMInstall()...)}
	cmd.Env = slices.Concat(s.guest.Env, s.env, []string{"CI=1", "npm_config_update_notifier=false"})
	cmd.Stderr = &progressFilter{report: func(line string) { providers.Progress(ctx, "%s", line) }}
	if !files.Exists(filepath.Join(s.spec.Dir, sessiondir.Home, strings.TrimPrefix(bootstrapDir, homeDir), name, ".complete")) {
		providers.Progress(ctx, "installing %s %s in the session: the %s does not contain it", title, recipe.Version, s.config.imageName())
	}
	within, cancel := context.WithTimeout(ctx, installLimit)
	defer cancel()
	_, err := s.guest.Run(within, cmd, "the installation of "+title)
	if err == nil {
		return path.Join(bootstrapDir, name), nil
	}
	if within.Err() != nil { // it goes on without us, and nothing else runs in there
		s.kill(context.WithoutCancel(ctx))
	}
	if ctx.Err() != nil {
		return "", failure.Wrap(context.Cause(ctx), failure.Cancelled, "install %s in the session", title)
	}
	if within.Err() != nil {
		err = fmt.Errorf("it did not end within %s: %w", installLimit, err)
	}
	return "", failure.New(failure.NotReady, "%s could not be installed in the session, from the %s: %v", title, s.config.imageName(), err).
		WithHint("laufwerk prepare docker   # then build the image FROM that one, for `codexBootstrap: \"prepared\"`; or give the target's `env` what pnpm needs inside: npm_config_registry, HTTPS_PROXY, NODE_EXTRA_CA_CERTS")
}

// Where a session's own program is made from, below its home, and where it is.
const (
	recipeDir    = ".recipe"
	bootstrapDir = homeDir + "/.harness-bootstrap"
)

// putSecret puts a file into the container's memory, and a link to it into a program's home.
func (s *sandbox) putSecret(ctx context.Context, program, name string, content []byte) error {
	at := path.Join(loginDir, program, name)
	put := guest.PutFile(at, 0o600, len(content))
	_, stuck, err := s.guest.RunOwn(ctx, put, content)
	if stuck && s.kill(ctx).Sure { // nothing is left that could hold it up again
		_, _, err = s.guest.RunOwn(ctx, put, content)
	}
	if err != nil {
		return err
	}
	return sessiondir.PutSymlink(s.spec.Dir, program, name, at, s.spec.FileOwner)
}

// PutFile puts a file into a program's home; a secret one only into the container's memory.
func (s *sandbox) PutFile(ctx context.Context, program string, f agent.File) error {
	if f.Secret {
		return s.putSecret(ctx, program, f.Path, f.Content)
	}
	return sessiondir.PutFile(s.spec.Dir, program, f, s.spec.FileOwner)
}

// Secrets are the tokens of the user's logins, and variables whose names say what they are.
func (s *sandbox) Secrets() []string {
	return append(targets.SecretValues(s.vars), s.p.c.Programs.LoginSecrets(s.config.Credentials, s.p.user())...)
}

// progressFilter reports the lines of a package manager that show progress, warnings and errors.
type progressFilter struct {
	report   func(line string)
	line     []byte
	reported int
}

// Bounds of what is reported: other processes inside can write there too.
const (
	maxProgressLines = 100
	maxProgressBytes = 300
)

func isProgress(line []byte) bool {
	text := bytes.TrimLeft(line, "\t\f\r ")
	return bytes.HasPrefix(line, []byte("Progress:")) || bytes.HasPrefix(text, []byte("WARN")) || bytes.HasPrefix(text, []byte("ERR_"))
}

var userinfo = lazyregexp.Regexp{Pattern: `://[^/@\s]*@`}

func withoutUserinfo(line string) string {
	return userinfo.ReplaceAllString(line, "://…@")
}

func (p *progressFilter) Write(b []byte) (int, error) {
	for _, c := range b {
		if c != '\n' {
			if len(p.line) < maxProgressBytes {
				p.line = append(p.line, c)
			}
			continue
		}
		if p.reported < maxProgressLines && isProgress(p.line) {
			p.reported++
			p.report(withoutUserinfo(strings.ToValidUTF8(string(bytes.TrimSpace(p.line)), "")))
		}
		p.line = p.line[:0]
	}
	return len(b), nil
}
