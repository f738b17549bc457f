package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/laufwerk/laufwerk/internal/checks"
	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/session"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// loginOf is the first login that a target gives to agents and that can be used; nil for none.
func (d *doctor) loginOf(def targets.Definition) *Login {
	given := def.Credentials()
	for _, program := range d.Programs {
		credential := program.Credential()
		if credential == nil || !slices.Contains(given, credential.Kind) {
			continue
		}
		if l, err := credential.Read(d.User()); err == nil {
			return &Login{Plan: l.Plan, Expires: l.Expires, TimeLeft: int64(l.Remaining(d.Now()) / time.Second)}
		}
	}
	return nil
}

// probeSuffix ends the id of a check that takes its time.
const probeSuffix = ".probe"

func (d *doctor) targetChecks(p providers.Provider, def targets.Definition) []check {
	at := "target." + def.ID
	out := []check{
		{at, func(ctx context.Context) []Check { return prefixIDs(at, p.Examine(ctx, def)) }},
		{at + ".identity", func(ctx context.Context) []Check { return d.identity(ctx, p, def) }},
	}
	if d.Probe {
		out = append(out, check{at + probeSuffix, func(ctx context.Context) []Check { return prefixIDs(at+probeSuffix, d.probe(ctx, p, def)) }})
	}
	return out
}

func prefixIDs(at string, list []Check) []Check {
	for i := range list {
		if list[i].ID == "" {
			list[i].ID = at
		} else {
			list[i].ID = at + "." + list[i].ID
		}
	}
	return list
}

// identity compares the target's endpoint with those that claims record.
func (d *doctor) identity(ctx context.Context, p providers.Provider, def targets.Definition) []Check {
	l := p.Lister()
	if l == nil {
		return nil
	}
	here, err := p.Endpoint(ctx, def)
	if err != nil {
		return oneCheck(Skip, "not checked: nothing answers")
	}
	s, err := d.service(ctx)
	if err != nil {
		return unreadableStore()
	}
	list, err := s.Driver.List(ctx, claims.Filter{Outstanding: true})
	if err != nil {
		return unreadableStore()
	}
	n := map[string]int{}
	var out Check
	for _, c := range list {
		there := c.Intent.Endpoint
		if n[there]++; c.Kind != claims.KindSession || c.Provider != def.Kind || there == here || n[there] > 1 {
			continue
		}
		if _, err := l.List(ctx, c.Intent); err == nil { // at another socket
			continue
		}
		out = checks.New("", Warn, "claims record the %s, which does not answer; what answers is the %s", there, here).
			WithHint("laufwerk cleanup --all --accept-identity %s   # if it is the same one, moved or set up again", failure.Quote(there+"="+here))
	}
	if out.Message == "" {
		return []Check{checks.New("", Pass, "no claim records an identity other than the %s", here)}
	}
	for e, count := range n {
		out = out.WithEvidence(fmt.Sprintf("%d claims: %s", count, e))
	}
	slices.Sort(out.Evidence)
	return []Check{out}
}

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
