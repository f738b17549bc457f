package local

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/checks"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// Examine looks at this host, and for the installed programs and their logins where the target gives agents one.
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
	for _, program := range p.programs {
		out = append(out, p.examineProgram(program, c)...)
	}
	return out
}

// examineProgram looks for an agent program and its login, where the target gives agents one.
func (p *Provider) examineProgram(program agent.Program, c config) (out []checks.Check) {
	name, title, credential := program.Name(), program.Title(), program.Credential()
	if credential != nil && !slices.Contains(c.Credentials, credential.Kind) {
		return []checks.Check{checks.New(name, checks.Skip, "the target has no `credentials`, so no agent uses %s", title)}
	}
	if program.Recipe() != nil {
		if r, err := agent.ReadInstalled(p.home, program, install); err != nil {
			out = append(out, checks.Failed(name+".program", err))
		} else {
			out = append(out, checks.New(name+".program", checks.Pass, "%s %s is prepared", title, r.Version).WithEvidence(r.Path))
		}
	}
	if credential != nil {
		if l, err := p.login(c, credential); err != nil {
			out = append(out, checks.Failed(name+".login", err))
		} else {
			out = append(out, credential.Check(name+".login", l, p.now()))
		}
	}
	return out
}

// Probe asks bash, which every command needs.
func (*Provider) Probe(resource.Intent, targets.Definition) providers.Probe {
	return providers.Probe{Argv: []string{"bash", "-c", "echo $BASH_VERSION"}, Read: func(stdout []byte) []checks.Check {
		return []checks.Check{checks.New("", checks.Pass, "a command ran, and everything was removed afterwards").WithEvidence("bash " + strings.TrimSpace(string(stdout)))}
	}}
}
