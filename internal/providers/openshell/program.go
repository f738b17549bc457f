package openshell

import (
	"context"
	"path"
	"strings"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/guest"
	"github.com/laufwerk/laufwerk/internal/openshell/policy"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/providers/sessiondir"
)

// Program is the way to a program of the prepared image. Its home gets a login of placeholders, as they are now; on the way out
// of the sandbox OpenShell puts the real one in their place.
func (b *sandbox) Program(ctx context.Context, name string) (providers.Program, error) {
	out := providers.Program{Home: path.Join(policy.Home, name)}
	program, ok := b.l.p.c.Programs.Find(name)
	if !ok {
		return out, nil
	}
	if program.Recipe() != nil {
		binary, err := agent.NativeBinary(program, "linux/"+b.l.e.Facts().Arch)
		if err != nil {
			return providers.Program{}, err
		}
		out.Path = path.Join(policy.Programs, name, binary)
	}
	if credential := program.Credential(); credential != nil {
		if err := b.readEnvironment(ctx, true); err != nil {
			return providers.Program{}, err
		}
		login, err := b.placeholders(credential)
		if err != nil {
			return providers.Program{}, err
		}
		for _, f := range login {
			if err := b.PutFile(ctx, name, f); err != nil {
				return providers.Program{}, failure.Wrap(err, failure.NotReady, "put the login of placeholders into the session's home")
			}
		}
		out.Placeholders = true
	}
	return out, nil
}

// placeholders are the files of a login that holds placeholders. A gateway drops a credential that has expired, and says nothing.
func (b *sandbox) placeholders(credential *agent.Credential) ([]agent.File, error) {
	files := map[string]string{}
	for _, kv := range b.env {
		if name, value, ok := strings.Cut(kv, "="); ok {
			files[name] = value
		}
	}
	for _, name := range credential.Profile.Shown {
		if value := files[name]; value == "" || !placeholder(value) {
			what := "the sandbox has no placeholder " + name
			if value != "" {
				what = "what the sandbox has as " + name + " is no placeholder"
			}
			return nil, failure.New(failure.NotReady, "%s, without which %s has no login: the gateway %q removes a credential of %q that has expired", what, credential.Title, b.l.s.Gateway, b.l.s.Provider).
				WithHint("%s", rotateHint(b.def))
		}
	}
	return credential.Profile.Placeholders(files, b.l.p.c.Now())
}

// placeholder says whether OpenShell puts something else in the place of a value, on its way out.
func placeholder(value string) bool {
	return strings.HasPrefix(value, "openshell:resolve:env:") || strings.Contains(value, "OPENSHELL-RESOLVE-ENV-")
}

// PutFile puts a file into a program's home; a secret one only into the sandbox's memory, with a link to it.
func (b *sandbox) PutFile(ctx context.Context, program string, f agent.File) error {
	if !f.Secret {
		return sessiondir.PutFile(b.l.s.Dir, program, f, nil)
	}
	at := path.Join(memoryDir, "secret", program, f.Path)
	if _, _, err := b.guest.RunOwn(ctx, guest.PutFile(at, 0o600, len(f.Content)), f.Content); err != nil {
		return err
	}
	return sessiondir.PutSymlink(b.l.s.Dir, program, f.Path, at, nil)
}
