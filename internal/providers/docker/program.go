package docker

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/imagecache"
	"github.com/laufwerk/laufwerk/internal/inside"
	"github.com/laufwerk/laufwerk/internal/login"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/providers/entered"
	"github.com/laufwerk/laufwerk/internal/providers/sessiondir"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// codex is the program whose login this target gives to agents.
const codex = "codex"

// login is the user's own login, as it may be given to sessions of a target.
func (p *Provider) login(c config) (login.Codex, error) {
	return login.CodexOf(c.ID, c.Credentials, p.c.Vars, p.c.Home, p.c.Now())
}

// readyFor is what keeps a program from being run on the target.
func (p *Provider) readyFor(name string, c config, i selected, imageErr error) []failure.Condition {
	if name != codex {
		return nil
	}
	var out []failure.Condition
	if imageErr == nil && !i.prepared && c.Network == noNetwork {
		out = append(out, condition("codex.program", unprepared(c)))
	}
	if _, err := p.login(c); err != nil {
		out = append(out, condition("codex.login", err))
	}
	return out
}

func unprepared(c config) error {
	return failure.New(failure.NotReady, "the image %s carries no prepared Codex, and without a network it cannot be installed in a session", c.Image).
		WithHint("laufwerk prepare docker")
}

// Program is the way to a program inside. Its home gets a link to the user's login as it is now, in a form that cannot be
// renewed; the login itself is only in the container's memory.
func (s *sandbox) Program(ctx context.Context, name string) (providers.Program, error) {
	if name != codex {
		return providers.Program{}, nil
	}
	at, err := s.bootstrap(ctx)
	if err != nil {
		return providers.Program{}, err
	}
	l, err := s.p.login(s.config)
	if err != nil {
		return providers.Program{}, err
	}
	content, err := l.Private()
	if err != nil {
		return providers.Program{}, err
	}
	if err := s.secret(ctx, name, login.CodexFile, content); err != nil {
		return providers.Program{}, failure.Wrap(err, failure.NotReady, "put the login into the container's memory")
	}
	return providers.Program{Path: at, Home: path.Join(homeDir, name)}, nil
}

// bootstrap is the path of Codex inside.
func (s *sandbox) bootstrap(ctx context.Context) (string, error) {
	at := Images().Prefix(codex)
	if !s.spec.Prepared {
		var err error
		if at, err = s.install(ctx); err != nil {
			return "", err
		}
	}
	binary, err := imagecache.Codex().Native(s.arch)
	return path.Join(at, binary), err
}

// installLimit bounds an installation in a session: package managers repeat for ever where a registry's certificate is not
// trusted.
const installLimit = 20 * time.Minute

// install puts the pinned Codex into the session's home, in a container whose image does not carry it, and says where. It is
// there whole or not at all: whoever is cut leaves a folder behind that goes with the session, and the next turn tries again.
// Registry, proxy and certificates are those of the image and of the target's variables: nothing of the worker's comes along.
func (s *sandbox) install(ctx context.Context) (string, error) {
	program := imagecache.Codex()
	for _, f := range program.Files {
		if err := sessiondir.Place(s.spec.Dir, recipeDir, agent.File{Path: f.Path, Content: f.Data, Mode: f.Mode}, s.spec.Gives); err != nil {
			return "", failure.Wrap(err, failure.Failed, "put the recipe of Codex into the session's home")
		}
	}
	const script = `set -eu
umask 022
mkdir -p "$0" && cd "$0"
if [ -e codex/.complete ]; then exit 0; fi
command -v pnpm >/dev/null || { echo "the image has no pnpm" >&2; exit 127; }
new=$(mktemp -d "$PWD/.new-XXXXXX")
cp "$1"/* "$new"/
shift
cd "$new"
npm_config_store_dir=$new/.store pnpm "$@" >&2
rm -rf .store
: >.complete
cd ..
mv -T "$new" codex 2>/dev/null || { rm -rf "$new"; [ -e codex/.complete ]; }`
	cmd := entered.Command{Argv: append([]string{"bash", "-c", script, bootstrapDir, path.Join(homeDir, recipeDir)}, program.Install...)}
	cmd.Env = slices.Concat(s.at.Env, s.env, []string{"CI=1", "npm_config_update_notifier=false"})
	cmd.Talk = &progress{tell: func(line string) { providers.Progress(ctx, "%s", line) }}
	if !files.Exists(filepath.Join(s.spec.Dir, sessiondir.Home, strings.TrimPrefix(bootstrapDir, homeDir), codex, ".complete")) {
		providers.Progress(ctx, "installing %s %s in the session: the image %s does not carry it", program.Title, program.Version, s.config.Image)
	}
	within, cancel := context.WithTimeout(ctx, installLimit)
	defer cancel()
	_, err := s.at.Run(within, cmd, "the installation of Codex")
	if err == nil {
		return path.Join(bootstrapDir, codex), nil
	}
	if within.Err() != nil { // it goes on without us, and nothing else runs in there
		s.end(context.WithoutCancel(ctx))
	}
	if ctx.Err() != nil {
		return "", failure.Wrap(context.Cause(ctx), failure.Cancelled, "install Codex in the session")
	}
	if within.Err() != nil {
		err = fmt.Errorf("it did not end in %s: %w", installLimit, err)
	}
	return "", failure.New(failure.NotReady, "Codex could not be installed in the session, from the image %s: %v", s.config.Image, err).
		WithHint("laufwerk prepare docker   # then build the image FROM that one, for `codexBootstrap: \"prepared\"`; or give the target's `env` what pnpm needs inside: npm_config_registry, HTTPS_PROXY, NODE_EXTRA_CA_CERTS")
}

// Where a session's own Codex is made from, below its home, and where it is.
const (
	recipeDir    = ".recipe"
	bootstrapDir = homeDir + "/.harness-bootstrap"
)

// secret puts a file into the container's memory, and a link to it into a program's home.
func (s *sandbox) secret(ctx context.Context, program, name string, content []byte) error {
	at := path.Join(loginDir, program, name)
	put := inside.Put(at, 0o600, len(content))
	_, stuck, err := s.at.Own(ctx, put, content)
	if stuck && s.end(ctx).Sure { // nothing is left that could hold it up again
		_, _, err = s.at.Own(ctx, put, content)
	}
	if err != nil {
		return err
	}
	return sessiondir.PlaceLink(s.spec.Dir, program, name, at, s.spec.Gives)
}

// Place puts a file into a program's home; a secret one only into the container's memory.
func (s *sandbox) Place(ctx context.Context, program string, f agent.File) error {
	if f.Secret {
		return s.secret(ctx, program, f.Path, f.Content)
	}
	return sessiondir.Place(s.spec.Dir, program, f, s.spec.Gives)
}

// Secrets are the tokens of the user's login, and variables whose names say what they are.
func (s *sandbox) Secrets() []string {
	out := targets.SecretValues(s.vars)
	if l, err := s.p.login(s.config); err == nil {
		out = append(out, l.Secrets()...)
	}
	return out
}
