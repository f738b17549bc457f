package openshell

import (
	"context"
	"path"
	"strings"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/imagecache"
	"github.com/laufwerk/laufwerk/internal/inside"
	"github.com/laufwerk/laufwerk/internal/login"
	"github.com/laufwerk/laufwerk/internal/openshell/policy"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/providers/sessiondir"
)

// Program is the way to a program of the prepared image. Its home gets a login of placeholders, as they are now; on the way out
// of the sandbox OpenShell puts the real one in their place.
func (b *sandbox) Program(ctx context.Context, name string) (providers.Program, error) {
	if name != codex {
		return providers.Program{}, nil
	}
	binary, err := imagecache.Codex().Native(b.l.e.Facts().Arch)
	if err != nil {
		return providers.Program{}, err
	}
	if err := b.learn(ctx, true); err != nil {
		return providers.Program{}, err
	}
	content, err := b.login()
	if err != nil {
		return providers.Program{}, err
	}
	if err := sessiondir.Place(b.l.s.Dir, name, agent.File{Path: login.CodexFile, Content: content, Mode: 0o600}, nil); err != nil {
		return providers.Program{}, failure.Wrap(err, failure.NotReady, "put the login of placeholders into the session's home")
	}
	return providers.Program{Path: path.Join(Images().Prefix(codex), binary), Home: path.Join(policy.Home, name), Placeholders: true}, nil
}

// login is a login of Codex that holds placeholders. A gateway drops a credential that has expired, and says nothing.
func (b *sandbox) login() ([]byte, error) {
	held := map[string]string{}
	for _, kv := range b.env {
		if name, value, ok := strings.Cut(kv, "="); ok {
			held[name] = value
		}
	}
	for _, name := range []string{login.HeldAccess, login.HeldAccount} {
		if value := held[name]; value == "" || !placeholder(value) {
			what := "the sandbox has no placeholder " + name
			if value != "" {
				what = "what the sandbox has as " + name + " is no placeholder"
			}
			return nil, failure.New(failure.NotReady, "%s, without which Codex has no login: the gateway %q drops a credential of %q that has expired", what, b.l.s.Gateway, b.l.s.Provider).
				WithHint("%s", rotate(b.def))
		}
	}
	return login.OfPlaceholders(held[login.HeldAccess], held[login.HeldAccount], b.l.p.c.Now())
}

// placeholder says whether OpenShell puts something else in the place of a value, on its way out.
func placeholder(value string) bool {
	return strings.HasPrefix(value, "openshell:resolve:env:") || strings.Contains(value, "OPENSHELL-RESOLVE-ENV-")
}

// Place puts a file into a program's home; a secret one only into the sandbox's memory, with a link to it.
func (b *sandbox) Place(ctx context.Context, program string, f agent.File) error {
	if !f.Secret {
		return sessiondir.Place(b.l.s.Dir, program, f, nil)
	}
	at := path.Join(memoryDir, "secret", program, f.Path)
	if _, _, err := b.at.Own(ctx, inside.Put(at, 0o600, len(f.Content)), f.Content); err != nil {
		return err
	}
	return sessiondir.PlaceLink(b.l.s.Dir, program, f.Path, at, nil)
}
