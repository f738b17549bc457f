package doctor

import (
	"context"

	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/session"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// probe runs a command on a target as a session does.
func (d *doctor) probe(ctx context.Context, p providers.Provider, def targets.Definition) []Check {
	s, err := d.service(ctx)
	if err != nil {
		return oneCheck(Skip, "the home cannot be used")
	}
	out, err := session.Prober{Driver: s.Driver, Home: s.Home.Dir(), Now: d.Now}.Probe(ctx, p, def)
	if err != nil {
		return failedCheck(err)
	}
	return out
}
