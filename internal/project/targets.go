package project

import (
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/suggest"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// TargetsOf are the project's targets of a kind: all, or the one with an id. Where there is none with that id, the failure is
// NotFound and names the command with the id that comes closest.
func (p *Project) TargetsOf(kind, id, command string) ([]targets.Definition, error) {
	var out []targets.Definition
	var ids []string
	for _, t := range p.Targets {
		if t.Kind != kind {
			continue
		}
		ids = append(ids, t.ID)
		if id == "" || id == t.ID {
			out = append(out, t)
		}
	}
	if id == "" || len(out) > 0 {
		return out, nil
	}
	e := failure.New(failure.NotFound, "the project has no %s target %q", kind, id).WithHint("%s", command)
	if near := suggest.Closest(id, ids); near != "" {
		e.WithHint("%s --target %s", command, near)
	}
	return nil, e
}
