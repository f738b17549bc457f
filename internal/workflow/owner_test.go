package workflow

import (
	"context"
	"errors"
	"testing"

	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/providers/local"
	"github.com/laufwerk/laufwerk/internal/targets"
	"github.com/laufwerk/laufwerk/internal/workspace"
)

// ownerProvider is a provider that says whom its sandboxes run as.
type ownerProvider struct {
	providers.Provider
	uid, gid int
	ok       bool
	err      error
}

func (p ownerProvider) Owner(context.Context, targets.Definition) (int, int, bool, error) {
	return p.uid, p.gid, p.ok, p.err
}

func TestAWorkspaceBelongsToWhomItsTargetSays(t *testing.T) {
	broken := errors.New("the engine does not answer")
	for name, c := range map[string]struct {
		p    providers.Provider
		want *workspace.Owner
		err  error
	}{
		"a provider that runs as the worker": {p: local.New("", nil, nil)},
		"one that does so now":               {p: ownerProvider{uid: 7, gid: 8}},
		"another user":                       {p: ownerProvider{uid: 7, gid: 8, ok: true}, want: &workspace.Owner{UID: 7, GID: 8}},
		"root":                               {p: ownerProvider{ok: true}, want: &workspace.Owner{}},
		"one that cannot say":                {p: ownerProvider{ok: true, err: broken}, err: broken},
	} {
		got, err := workspaceOwner(t.Context(), c.p, targets.Definition{})
		if !errors.Is(err, c.err) || (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
}
