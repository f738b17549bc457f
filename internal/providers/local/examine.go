package local

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/laufwerk/laufwerk/internal/checks"
	"github.com/laufwerk/laufwerk/internal/login"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// Examine looks at this host, and for the prepared program and the login where the target gives agents one.
func (p *Provider) Examine(ctx context.Context, def targets.Definition) []checks.Check {
	out := checks.OfConditions(p.Ready(ctx, def, providers.Need{Workspace: true}))
	if len(out) == 0 {
		endpoint, err := p.Endpoint(ctx, def)
		if err != nil {
			return []checks.Check{checks.Failed("", err)}
		}
		out = append(out, checks.New("", checks.Pass, "workspaces and commands can be run; isolation: %s", p.Info().Isolation).WithEvidence(endpoint))
	}
	var c config
	if err := json.Unmarshal(def.Options, &c); len(def.Options) > 0 && err != nil {
		return append(out, checks.Failed("options", err))
	}
	if !slices.Contains(c.Credentials, login.CodexSubscription) {
		return append(out, checks.New(codex, checks.Skip, "the target has no `credentials`, so no agent uses Codex"))
	}
	if r, err := p.program(codex); err != nil {
		out = append(out, checks.Failed("codex.program", err))
	} else {
		out = append(out, checks.New("codex.program", checks.Pass, "Codex %s is prepared", r.Version).WithEvidence(r.Path))
	}
	if l, err := p.login(c); err != nil {
		out = append(out, checks.Failed("codex.login", err))
	} else {
		out = append(out, l.Check("codex.login", p.now()))
	}
	return out
}

// Probe asks bash, which every command needs.
func (*Provider) Probe(resource.Intent, targets.Definition) providers.Probe {
	return providers.Probe{Argv: []string{"bash", "-c", "echo $BASH_VERSION"}, Read: func(stdout []byte) []checks.Check {
		return []checks.Check{checks.New("", checks.Pass, "a command ran and was cleaned up after").WithEvidence("bash " + strings.TrimSpace(string(stdout)))}
	}}
}
